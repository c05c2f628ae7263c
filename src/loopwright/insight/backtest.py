"""What another policy for the end of a loop would have done on recorded runs, at what cost, and limits to suggest.

For each recording a policy is *exact* if it stops at or before the last recorded iteration, and *censored*
if it would continue: then only bounds are known, from the best quality so far to 1. The lower bound is less
for a policy that may return a worse output than the best one. A policy with more than
5 % censored recordings gets no point estimate, unless it is exact on the runs that explored: these are a
random sample of all runs, so their mean has no bias.

Limits are suggested from replay alone, or from runs that continued to their limits.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from .._statistics import Estimate, clustered_mean, mean_estimate, paired_bootstrap
from ..conditions import (
    CEILING,
    AllOf,
    AnyOf,
    Condition,
    Judged,
    MaxIterations,
    NoImprovement,
    Passed,
    ScoreAtLeast,
    Timeout,
    TreeReading,
    check_safely,
    from_json,
    has_goal,
    questions_in,
    tag_of,
    uses_past,
)
from ..documents.schema.fields import duration
from ..engine.loop import Loop, replayed
from ..engine.step import as_step
from ..errors import ConfigurationError, LoopwrightWarning, nearest
from ..records import History, Iteration, Reason
from ..records.codec import Json, flow_text
from ..records.display import duration as seconds_text
from .recordings import Recording, Recordings, quality_of

__all__ = [
    "RECORDED",
    "Backtest",
    "Pair",
    "PolicyResult",
    "StoppingPolicy",
    "Suggestion",
    "cheapest",
    "grid",
    "policy_from_json",
    "suggestions",
    "unknown",
]

RECORDED = "recorded"  # the name of the policy that the runs had
KEYS = ("name", "until", "keep")
# These change which drafts are written, and the journal has no drafts that were not written.
_NOT_REPLAYABLE = (
    "on_stall", "candidates", "refine_from", "strategies", "optimise", "adapt", "confirm",
)  # fmt: skip
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
            return replayed(loop, until=until, evaluate=evaluate, keep=self.keep or loop.keep)

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
    # The fields as documents write them, the first one without its name.
    values = condition.field_values()
    fields = dataclasses.fields(condition) if dataclasses.is_dataclass(condition) else ()
    if fields and list(values) == [fields[0].name]:
        text = flow_text(values[fields[0].name])
    else:
        text = ", ".join(f"{name} {flow_text(value)}" for name, value in values.items())
    return f"{tag_of(type(condition))} {text}".rstrip()


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
    result = dict(data)
    for key, value in data.items():
        if key in ("timeout", "seconds") and isinstance(value, str):
            try:
                result[key] = float(duration(value))
            except ValueError as error:
                raise ConfigurationError(f"{key}: {error}") from error
        elif key in ("any_of", "all_of", "timeout"):
            result[key] = _as_json(value)
    return result


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


MOST_CENSORED = 0.05
FULL_LENGTH_RUNS = 200  # recorded runs of full length that judge a policy
EXPLORED_RUNS = 10  # explored runs that judge a policy; an interval of fewer is of no use
# By recording: where a condition first holds, whether with success, and where it first needs an answer that was
# not asked for.
_Member = tuple[list[int], bytearray, list[int]]
_FRONTIER = 20  # policies with bootstrap intervals


class Pair(NamedTuple):
    """One policy on one recording.

    Args:
        recording: its place in the list of recordings.
        iterations: iterations until the policy stops; None if it is censored.
        calls, usd: the cost until then, or the recorded cost of a censored pair.
        quality: the quality of the chosen output; None if the pair is censored.
        low: the quality, or the lowest one that the policy can return later.
        high: the quality, or 1.
    """

    recording: int
    iterations: int | None
    calls: int
    usd: float
    quality: float | None
    low: float
    high: float


@dataclass(frozen=True)
class PolicyResult:
    """The result of one policy over all recordings.

    Args:
        policy: the policy.
        exact, censored: recordings by state.
        iterations, calls, usd: means over exact pairs; None if the policy is not judged.
        quality: the mean quality with its 95 % interval, or None; also None if no output has a score or verdict.
        difference: the mean difference in quality to the recorded policy, or None.
        bounds: of the mean quality if there are censored pairs.
        judged: whether at most 5 % of the pairs are censored.
        needed: full-length runs to record before the policy can be judged; 0 if it is judged.
        satisfied: the share of exact pairs in which the policy stops where the recorded loop is satisfied, and
            that of the recorded policy; None without sentences in `until` or without intervals.
        sample: the explored runs that the figures are from; 0 if they are from all exact pairs.
        pairs: the policy on each recording; empty without intervals.
    """

    policy: StoppingPolicy
    exact: int
    censored: int
    iterations: float | None = None
    calls: float | None = None
    usd: float | None = None
    quality: Estimate | None = None
    difference: Estimate | None = None
    bounds: tuple[float, float] | None = None
    judged: bool = False
    satisfied: tuple[float, float] | None = None
    needed: int = 0
    sample: int = 0
    pairs: Sequence[Pair] = field(default=(), repr=False, compare=False)

    def to_json(self) -> dict[str, Json]:
        """Return the result as a JSON object, as `loopwright measure limits --json` prints it."""
        return {
            "policy": self.policy.to_json(),
            "exact": self.exact,
            "censored": self.censored,
            "iterations": _rounded(self.iterations),
            "calls": _rounded(self.calls),
            "usd": _rounded(self.usd),
            "quality": _limits("mean", self.quality),
            "difference": _limits("mean", self.quality and self.difference),
            "bounds": None if self.bounds is None else [round(b, 6) for b in self.bounds],
            "judged": self.judged,
            "satisfied": _rounded(self.satisfied and self.satisfied[0]),
            "needed": self.needed,
            "sample": self.sample,
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _limits(name: str, estimate: Estimate | None) -> Json:
    if estimate is None:
        return None
    return {name: round(estimate.value, 6), "low": round(estimate.low, 6),
            "high": round(estimate.high, 6)}  # fmt: skip


class Backtest:
    """Recordings of a loop, prepared for the comparison of policies.

    Args:
        recordings: the recordings.

    Raises:
        ConfigurationError: without a recording whose stop is reproduced.

    Example:
        >>> Backtest(Recordings("refine"))
        Traceback (most recent call last):
            ...
        loopwright.errors.ConfigurationError: no recorded stop of 'refine' is reproduced, so nothing can be replayed
    """

    def __init__(self, recordings: Recordings) -> None:
        if not recordings.items:
            why = f": {recordings.left_out[0].why}" if recordings.left_out else ""
            raise ConfigurationError(
                f"no recorded stop of {recordings.loop!r} is reproduced, so nothing can be replayed{why}"
            )
        self.recordings = recordings
        audited = recordings.quality == "audit score"
        self._rated = recordings.quality != "none"
        self._rows = [_Columns(recording, audited=audited) for recording in recordings.items]
        self._stops: dict[tuple[Condition, int], _Member] = {}
        self._failures = self._failing()
        self._groups = [recording.run_id for recording in recordings.items]
        self._sentences = any(
            True for recording in recordings.items for _ in questions_in(recording.loop.until)
        )
        self._verdicts = any(
            item.evaluation is not None and item.evaluation.passed is not None
            for recording in recordings.items
            for item in recording.prefixes[-1]
        )
        pairs = [
            row.pair(
                place,
                item.stopped_at,
                item.stop.reason.status.value == "satisfied",
                item.loop.keep,
            )
            for place, (row, item) in enumerate(zip(self._rows, recordings.items, strict=True))
        ]
        self.recorded = self._of_pairs(StoppingPolicy(name=RECORDED), pairs)

    @property
    def loop(self) -> Loop:
        """The loop of the first recording."""
        return self.recordings.items[0].loop

    @property
    def full_length(self) -> int:
        """The number of recordings that used all iterations of their limit."""
        return sum(recording.full_length for recording in self.recordings.items)

    def evaluate(self, policy: StoppingPolicy, *, intervals: bool = True) -> PolicyResult:
        """Return what a policy would have done.

        Args:
            policy: the policy.
            intervals: whether to compute intervals (default); point estimates are quicker.
        """
        return self._of_pairs(policy, self._pairs(policy), intervals=intervals)

    def _pairs(self, policy: StoppingPolicy) -> list[Pair]:
        """Return the pairs of a policy.

        A policy stops where its first member does, so that policies with common members share the work.
        """
        by_loop: dict[int, tuple[Loop, float, list[_Member]]] = {}
        pairs = []
        for place, (row, item) in enumerate(zip(self._rows, self.recordings.items, strict=True)):
            known = by_loop.get(id(item.loop))
            if known is None:
                applied = policy.applied(item.loop)
                columns = [self._member(c, applied.min_iterations) for c in applied.members]
                least = 0.0 if applied.keep == "last" else self._least(applied.members)
                known = by_loop[id(item.loop)] = applied, least, columns
            applied, least, columns = known
            at, satisfied, unknown = CEILING + 1, False, CEILING + 1
            for stops, goals, opens in columns:
                stop = stops[place]
                unknown = min(unknown, opens[place] or unknown)
                if stop and stop < at:
                    at, satisfied = stop, bool(goals[place])
                elif stop == at:
                    satisfied = satisfied or bool(goals[place])
            # The engine decides on failures before it asks a condition.
            if 0 < (failed := self._failures[place]) <= at:
                at, satisfied = failed, False
            # A sentence that was not asked could have ended the loop here with success.
            if unknown < at or (unknown == at and not satisfied and failed != at):
                pairs.append(row.open_pair(place, unknown, least))
                continue
            pairs.append(row.pair(place, at, satisfied, applied.keep, least))
        return pairs

    def _least(self, members: Iterable[Condition]) -> float:
        """Return the lowest score with which a loop can be satisfied; 1 if it cannot.

        A satisfied loop returns its last output, also if an earlier one has a higher score.
        """
        return min(map(self._least_score, members), default=1.0)

    def _least_score(self, condition: Condition) -> float:
        if isinstance(condition, ScoreAtLeast):
            return condition.threshold
        if isinstance(condition, AnyOf):
            return self._least(condition.members)
        if isinstance(condition, AllOf):
            goals = [self._least_score(m) for m in condition.members if has_goal(m)]
            return max(goals, default=1.0)
        if isinstance(condition, Judged):
            return 0.0
        # An evaluator of scores alone passes nothing, and the engine adds `passed` to its loop.
        verdicts = self._verdicts or not isinstance(condition, Passed)
        return 0.0 if has_goal(condition) and verdicts else 1.0

    def _member(self, condition: Condition, min_iterations: int) -> _Member:
        """Return where a condition first holds in each recording, 0 for never, if that is a success, and where it
        first needs an answer that was not asked for, 0 for nowhere."""
        first = min_iterations if condition.early else 1
        # Conditions are frozen, so equal members of different policies share one entry.
        key = condition, first
        if key not in self._stops:
            stops, goals, opens = [], bytearray(len(self._rows)), []
            judged = any(True for _ in questions_in(condition))
            for place, item in enumerate(self.recordings.items):
                stops.append(0)
                opens.append(0)
                for number in range(first, len(item) + 1):
                    history = item.prefixes[number - 1]
                    stop = (
                        condition.check(history)
                        if condition.ours
                        else check_safely(condition, history)
                    )
                    if judged and _needs_answer(condition, history, item.loop):
                        opens[place] = number
                        break
                    if stop is not None:
                        stops[place], goals[place] = number, stop.reason.status.value == "satisfied"
                        break
            self._stops[key] = stops, goals, opens
        return self._stops[key]

    def _failing(self) -> list[int]:
        """Return where failed or undecided iterations end each recording under any policy; 0 for never."""
        bare: dict[int, Loop] = {}
        failing = []
        for item in self.recordings.items:
            loop = bare.get(id(item.loop))
            if loop is None:
                policy = StoppingPolicy(MaxIterations(CEILING))
                loop = bare[id(item.loop)] = policy.applied(item.loop)
            never = (MaxIterations(CEILING),)
            numbers = (n for n, h in enumerate(item.prefixes, 1) if loop.decide(h, never))
            failing.append(next(numbers, 0))
        return failing

    def _of_pairs(
        self, policy: StoppingPolicy, pairs: Sequence[Pair], *, intervals: bool = True
    ) -> PolicyResult:
        exact = [pair for pair in pairs if pair.quality is not None]
        censored = len(pairs) - len(exact)
        bounds = (fmean(p.low for p in pairs), fmean(p.high for p in pairs)) if censored else None
        sample = 0
        if not exact or censored > MOST_CENSORED * len(pairs):
            exact = self._explored(pairs)
            sample = len(exact)
        if not exact:
            exact = [pair for pair in pairs if pair.quality is not None]
            needed = max(1, FULL_LENGTH_RUNS - self.full_length)
            return PolicyResult(
                policy,
                len(exact),
                censored,
                bounds=bounds,
                needed=needed,
                pairs=pairs if intervals else (),
            )
        qualities = [pair.quality for pair in exact if pair.quality is not None]
        groups = [self._groups[pair.recording] for pair in exact]
        quality = Estimate(fmean(qualities), 0.0, 1.0)
        difference = None
        if intervals:
            # Several executions of an inner loop in one run depend on each other.
            alone = len(set(groups)) == len(groups)
            of_mean = mean_estimate(qualities) if alone else clustered_mean(qualities, groups)
            mean, low, high = (
                of_mean or quality
            )  # too few runs for an interval: nothing is excluded
            # A limit outside the range has no meaning; an audit score may have another range than 0 to 1.
            quality = Estimate(
                mean, max(low, min(0.0, *qualities)), min(high, max(1.0, *qualities))
            )
            if policy.name != RECORDED:
                recorded = self.recorded.pairs
                differences = [
                    (pair.quality or 0.0) - (recorded[pair.recording].quality or 0.0)
                    for pair in exact
                ]
                difference = paired_bootstrap(differences, groups=groups)
        return PolicyResult(
            policy,
            len(pairs) - censored,
            censored,
            iterations=fmean(p.iterations or 0 for p in exact),
            calls=fmean(p.calls for p in exact),
            usd=fmean(p.usd for p in exact),
            quality=quality if self._rated else None,
            difference=difference,
            bounds=bounds,
            judged=True,
            satisfied=self._satisfied(exact) if intervals and self._sentences else None,
            sample=sample,
            # Of 280 policies on 10,000 runs, the pairs would fill the memory.
            pairs=pairs if intervals else (),
        )

    def _satisfied(self, exact: Sequence[Pair]) -> tuple[float, float]:
        """Return in which share of pairs the recorded loop is satisfied where the policy stops, and at its own end."""
        items = [self.recordings.items[pair.recording] for pair in exact]
        stops = [
            item.stop if at == item.stopped_at else item.loop.decide(item.prefixes[at - 1])
            for item, at in zip(items, (pair.iterations or 0 for pair in exact), strict=True)
        ]
        return fmean(s is not None and s.satisfied for s in stops), fmean(
            item.stop.satisfied for item in items
        )

    def _explored(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Return the exact pairs of the runs that explored, or none if they cannot judge a policy."""
        items = self.recordings.items
        sample = [pair for pair in pairs if items[pair.recording].explored]
        exact = [pair for pair in sample if pair.quality is not None]
        enough = len(exact) >= EXPLORED_RUNS
        return exact if enough and len(exact) >= (1 - MOST_CENSORED) * len(sample) else []

    def frontier(self, results: Sequence[PolicyResult]) -> list[PolicyResult]:
        """Return the judged results that no other one beats in both calls and quality, cheapest first."""
        judged = [r for r in results if r.judged and r.quality is not None]
        # The better one first at the same cost, or the worse one would be kept as well.
        judged.sort(key=lambda r: (r.calls or 0.0, -_mean(r)))
        best, kept = -1.0, []
        for result in judged:
            if _mean(result) > best:
                best = _mean(result)
                kept.append(result)
        return kept[-_FRONTIER:]


def _mean(result: PolicyResult) -> float:
    return result.quality.value if result.quality is not None else 0.0


def _needs_answer(condition: Condition, history: History, loop: Loop) -> bool:
    """Return whether a condition could hold after an iteration, by a sentence that was not asked then."""
    evaluation = None if history.last is None else history.last.evaluation
    if not history.can_satisfy or evaluation is None:
        return False
    # A check that refused the output closes all sentences, with any policy.
    if (
        evaluation.passed is False
        and loop.evaluate is not None
        and not as_step(loop.evaluate).asks_model
    ):
        return False
    answers = {}
    for question in questions_in(condition):
        asked = evaluation.verdicts is None or question.sentence in evaluation.verdicts
        if asked:
            answers[question.sentence] = evaluation.answer(question.sentence) is True
    return TreeReading([condition], history, answers).value() == "open"


class _Columns:
    """Quality and cost of one recording after each of its iterations."""

    __slots__ = ("best", "calls", "last", "latest", "length", "usd")

    def __init__(self, recording: Recording, *, audited: bool) -> None:
        self.length = len(recording)
        self.best: list[float] = []  # of the chosen output with `keep: best`
        self.latest: list[float] = []  # of the chosen output with `keep: last`
        self.last: list[float] = []  # of the iteration itself
        self.calls = [history.usage.calls for history in recording.prefixes]
        self.usd = [history.usage.usd or 0.0 for history in recording.prefixes]
        latest: Iteration | None = None
        for history in recording.prefixes:
            last = history.last
            latest = last if last is not None and last.eligible else latest
            self.best.append(quality_of(history.best, audited=audited))
            self.latest.append(quality_of(latest, audited=audited))
            self.last.append(quality_of(last, audited=audited))

    def open_pair(self, place: int, at: int, least: float) -> Pair:
        """Return the pair of a policy whose decision after iteration `at` needs an answer that was not asked for."""
        end = min(at, self.length) - 1
        low = min(self.best[end], least)
        return Pair(place, None, self.calls[end], self.usd[end], quality=None, low=low, high=1.0)

    def pair(self, place: int, at: int, satisfied: bool, keep: str, least: float = 1.0) -> Pair:
        """Return the pair of a policy that stops at iteration `at`, which may not be recorded.

        `least` is the lowest quality that it may return instead of the best one.
        """
        end = min(at, self.length) - 1
        calls, usd = self.calls[end], self.usd[end]
        if at > self.length:
            low = min(self.best[end], least)
            return Pair(place, None, calls, usd, quality=None, low=low, high=1.0)
        chosen = self.last if satisfied else self.latest if keep == "last" else self.best
        quality = chosen[end]
        return Pair(place, at, calls, usd, quality=quality, low=quality, high=quality)


TOLERANCE = 0.005  # loss of quality that a suggestion accepts
_AT_LIMIT = 0.20  # share of runs at their limit from which a higher one is considered


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested change of a loop.

    Args:
        key: the setting.
        old, new: its values.
        why: the reason, with its figures.
    """

    key: str
    old: int
    new: int
    why: str

    def to_json(self) -> dict[str, Json]:
        """Return the suggestion as a JSON object."""
        return {"key": self.key, "from": self.old, "to": self.new, "why": self.why}


def cheapest(
    backtest: Backtest, results: Sequence[PolicyResult], price: float
) -> PolicyResult | None:
    """Return the result to suggest: of those without a loss of quality, the best value.

    The cost of a loop without model calls is its iterations.

    Args:
        backtest: the recordings.
        results: results with intervals.
        price: the quality that one call or iteration is worth; with 0 the cheapest result.
    """
    calls = bool(backtest.recorded.calls)

    def cost(result: PolicyResult) -> float:
        return (result.calls if calls else result.iterations) or 0.0

    cheaper = [r for r in results if _loses_nothing(r) and cost(r) < cost(backtest.recorded)]

    def value(result: PolicyResult) -> tuple[float, float]:
        mean = result.quality.value if result.quality is not None else 0.0
        return (mean - price * cost(result) if price else 0.0, -cost(result))

    return max(cheaper, key=value, default=None)


def _loses_nothing(result: PolicyResult) -> bool:
    """Return whether a policy keeps the quality, and satisfies as many runs where quality counts no sentences."""
    now, before = result.satisfied or (0.0, 0.0)
    return result.difference is not None and result.difference.low >= -TOLERANCE and now >= before


def suggestions(backtest: Backtest, price: float = 0.0) -> list[Suggestion]:
    """Return the suggested changes of the iteration limit.

    The lower limit is the smallest one whose quality is within 0.005 of the present one by the lower end
    of the paired 95 % interval. A higher limit is suggested only from runs that explored.

    Args:
        backtest: the recordings.
        price: the quality that one call is worth. Default: 0.
    """
    return [*_lower(backtest), *_raise(backtest, price)]


def _lower(backtest: Backtest) -> Iterator[Suggestion]:
    loop = backtest.loop
    calls = backtest.recorded.calls or 0.0
    for limit in range(1, loop.limit):
        result = backtest.evaluate(with_limit(loop, limit))
        if not _loses_nothing(result):
            continue
        if calls:
            saved = 1 - (result.calls or 0.0) / calls
        else:
            saved = 1 - (result.iterations or 0.0) / (backtest.recorded.iterations or 1.0)
        # A limit that no run reaches changes nothing.
        if saved > 0:
            of = "calls" if calls else "iterations"
            why = f"saves {saved:.0%} of {of}"
            yield Suggestion("max_iterations", loop.limit, limit, why)
        return


def with_limit(loop: Loop, limit: int) -> StoppingPolicy:
    """Return the policy of a loop with a lower iteration limit, in addition to its own."""
    until = MaxIterations(limit) if loop.until is None else loop.until | MaxIterations(limit)
    return StoppingPolicy(until)


def _raise(backtest: Backtest, price: float) -> Iterator[Suggestion]:
    if unknown(backtest):
        return
    audited = backtest.recordings.quality == "audit score"
    gains = []
    for item in backtest.recordings.items:
        if item.explored and len(item) > 1:
            now, before = item.prefixes[-1].best, item.prefixes[-2].best
            gains.append(quality_of(now, audited=audited) - quality_of(before, audited=audited))
    gain = mean_estimate(gains)
    if gain is not None and gain.low > price:
        limit = backtest.loop.limit
        why = f"the last iteration still gains {gain.value:.3f} [{gain.low:.3f}, {gain.high:.3f}]"
        yield Suggestion("max_iterations", limit, limit + max(1, limit // 2), why)


def unknown(backtest: Backtest) -> str:
    """Return what the recordings cannot tell about a higher limit, or ""."""
    items = backtest.recordings.items
    at_limit = sum(item.stop.reason is Reason.MAX_ITERATIONS for item in items)
    if at_limit < _AT_LIMIT * len(items):
        return ""
    if sum(item.explored for item in items) >= 2:
        return ""
    return "raising max_iterations: unknown. Set explore: 0.1 on the loop, and record more runs"
