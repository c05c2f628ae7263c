"""Policies: rules for the end of a loop that replay compares."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..conditions import (
    AllOf,
    AnyOf,
    Condition,
    MaxIterations,
    NoImprovement,
    ScoreAtLeast,
    Timeout,
    from_json,
    questions_in,
    tag_of,
    uses_past,
)
from ..documents.schema.fields import duration
from ..engine.loop import Loop
from ..errors import ConfigurationError, LoopwrightWarning, nearest
from ..records.codec import Json, flow_text
from ..records.display import duration as seconds_text

__all__ = ["RECORDED", "StoppingPolicy", "grid", "policy_from_json"]

RECORDED = "recorded"  # the name of the policy that the runs had
KEYS = ("name", "until", "keep")
# These change which drafts are written, and the journal has no drafts that were not written.
_NOT_REPLAYABLE = ("on_stall", "candidates", "refine_from", "strategies", "adapt", "confirm")
_THRESHOLDS = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
_PATIENCE = (0, 1, 2, 3, 4)
_MIN_DELTA = (0.0, 0.02)


@dataclass(frozen=True, slots=True)
class StoppingPolicy:
    """A rule for the end of a loop.

    Args:
        until: the condition that ends it; None is that of the recorded loop.
        keep: the output of a loop that did not succeed: `best` or `last`; "" is that of the recorded loop.
        name: shown in tables; by default, the condition in short.

    Raises:
        ConfigurationError: for any other `keep`.

    Example:
        >>> from loopwright import MaxIterations, ScoreAtLeast
        >>> StoppingPolicy(ScoreAtLeast(0.9) | MaxIterations(8)).title
        'score ≥ 0.9 | limit 8'
    """

    until: Condition | None = None
    keep: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        if self.keep not in ("", "best", "last"):
            hint = nearest(str(self.keep), ("best", "last")) or "; use best or last"
            raise ConfigurationError(f"keep: {self.keep!r} is not a rule{hint}")

    @property
    def title(self) -> str:
        """The name of the policy, or its condition in short."""
        if self.name:
            return self.name
        text = RECORDED if self.until is None else shown(self.until)
        return f"{text} | keep {self.keep}" if self.keep else text

    def applied(self, loop: Loop) -> Loop:
        """Return a loop with this policy in place of its `until`; its guards stay."""
        with warnings.catch_warnings():
            # The remarks are for loops that run.
            warnings.simplefilter("ignore", LoopwrightWarning)
            until = loop.until if self.until is None else self.until
            # A single sentence of a loop without an evaluator would become its evaluator.
            judged = loop.evaluate is None and any(True for _ in questions_in(until))
            evaluate = _unasked if judged else loop.evaluate
            return dataclasses.replace(
                loop, until=until, evaluate=evaluate, keep=self.keep or loop.keep
            )

    def to_json(self) -> dict[str, Json]:
        """Return the policy as the JSON object that `policy_from_json` reads."""
        data: dict[str, Json] = {"name": self.title}
        if self.until is not None:
            data["until"] = self.until.to_json()
        if self.keep:
            data["keep"] = self.keep
        return data


def _unasked(output: Json) -> None:
    """Stand for an evaluator in a replay, which calls none."""


def shown(condition: Condition) -> str:
    """Return a condition in short, as tables show it."""
    if isinstance(condition, ScoreAtLeast):
        first = condition.min_iterations
        return f"score ≥ {condition.threshold:g}" + (
            f" from iteration {first}" if first > 1 else ""
        )
    if isinstance(condition, MaxIterations):
        return f"limit {condition.limit}"
    if isinstance(condition, NoImprovement):
        delta = f" ({condition.min_delta:g})" if condition.min_delta else ""
        return f"patience {condition.patience}{delta}"
    if isinstance(condition, Timeout):
        return f"timeout {seconds_text(condition.seconds)}"
    if isinstance(condition, AnyOf):
        return " | ".join(shown(member) for member in condition.members)
    if isinstance(condition, AllOf):
        members = ((shown(m), isinstance(m, AnyOf)) for m in condition.members)
        return " & ".join(f"({text})" if several else text for text, several in members)
    return f"{tag_of(type(condition))} {_fields_text(condition)}".rstrip()


def _fields_text(condition: Condition) -> str:
    """Return the fields of a condition as documents write them, the first one without its name."""
    values = condition.field_values()
    fields = dataclasses.fields(condition) if dataclasses.is_dataclass(condition) else ()
    if fields and list(values) == [fields[0].name]:
        return flow_text(values[fields[0].name])
    return ", ".join(f"{name} {flow_text(value)}" for name, value in values.items())


def policy_from_json(data: Json, where: str = "policy") -> StoppingPolicy:
    """Return the policy in a JSON value: `{until, keep, name}`, or conditions alone.

    Args:
        data: the value.
        where: its position, for messages.

    Raises:
        ConfigurationError: for an unknown key or condition, or a policy that cannot be replayed.

    Example:
        >>> policy_from_json([{"score_at_least": 0.9}, {"max_iterations": 8}]).title
        'score ≥ 0.9 | limit 8'
    """
    if isinstance(data, Mapping):
        for key in _NOT_REPLAYABLE:
            if key in data:
                raise ConfigurationError(
                    f"{where}: {key}: a policy with another {key} is not replayable, because it needs "
                    "drafts that were not written. Record new runs with it."
                )
    if isinstance(data, Mapping) and "until" in data:
        for key in data:
            if key not in KEYS:
                hint = nearest(str(key), KEYS) or f"; it has {', '.join(KEYS)}"
                raise ConfigurationError(f"{where}: unknown key {key!r}{hint}")
        keep = data.get("keep", "")
        if not isinstance(data.get("name", ""), str):
            raise ConfigurationError(f"{where}: name: {flow_text(data['name'])} is not text")
        try:
            return StoppingPolicy(
                _condition(data["until"], f"{where}: until"),
                keep=keep if isinstance(keep, str) else flow_text(keep),
                name=data.get("name", ""),
            )
        except ConfigurationError as error:
            text = str(error)
            raise ConfigurationError(
                text if text.startswith(where) else f"{where}: {text}"
            ) from error
    return StoppingPolicy(_condition(data, where))


def _condition(data: Json, where: str) -> Condition:
    if isinstance(data, Mapping) and len(data) > 1 and "python" not in data:
        # Several conditions in one object are alternatives, as in a list.
        data = [{key: value} for key, value in data.items()]
    if not data:
        raise ConfigurationError(f"{where}: there is no condition. Write one, such as passed.")
    try:
        condition = from_json(_as_json(data))
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from error
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{where}: {flow_text(data)} is not a condition ({error})"
        ) from error
    if uses_past((condition,)):
        raise ConfigurationError(
            f"{where}: degrading: sigma: past is measured when a run starts. Write a number for replay."
        )
    return condition


def _as_json(data: Json) -> Json:
    """Return conditions with what documents write: durations such as `5m`, and sentences."""
    if isinstance(data, list):
        return [_as_json(item) for item in data]
    # Replay asks no model; it reads the recorded answer.
    if isinstance(data, str) and " " in data.strip():
        return {"judged": data}
    if not isinstance(data, Mapping):
        return data
    return {
        key: _seconds(key, value)
        if key in ("timeout", "seconds") and isinstance(value, str)
        else _as_json(value)
        if key in ("any_of", "all_of", "timeout")
        else value
        for key, value in data.items()
    }


def _seconds(key: str, text: str) -> float:
    try:
        return float(duration(text))
    except ValueError as error:
        raise ConfigurationError(f"{key}: {error}") from error


def grid(limit: int) -> Iterator[StoppingPolicy]:
    """Iterate over policies of threshold, patience, limit and minimal improvement.

    Args:
        limit: the iteration limit of the recorded loop; no policy exceeds it.

    Example:
        >>> len(list(grid(8)))
        252
    """
    caps = sorted({max(1, math.ceil(limit * share / 4)) for share in (1, 2, 3, 4)})
    for threshold in _THRESHOLDS:
        for cap in caps:
            for patience in _PATIENCE:
                # Without patience there is no improvement to measure.
                for min_delta in _MIN_DELTA if patience else (0.0,):
                    members: list[Condition] = [ScoreAtLeast(threshold), MaxIterations(cap)]
                    if patience:
                        members.append(NoImprovement(patience, min_delta))
                    yield StoppingPolicy(AnyOf(tuple(members)))
