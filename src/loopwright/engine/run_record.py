"""A run in its journal: the options of `run` and `resume`, the opening, and the row.

A row contains the bounds of a run, which are the conditions of each loop, for lists and pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import random
import re
import time
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, cast, runtime_checkable

from ..conditions import Budget
from ..errors import ConfigurationError, JournalError, ReplayMismatch, StepError, nearest
from ..journal import Journal, NoLog, RunInfo, RunLog
from ..journal.inbox import status_of, take_up
from ..journal.open import open_journal
from ..records import Result, codec
from ..records.codec import Json
from ..records.excerpts import shortened
from ..records.redaction import Redactor, secrets_in
from .fingerprints import VERSION, changed_parts, parts_of
from .loop import Loop
from .run_state import Clock, Listener, RunResources
from .step import MODEL_NAME, CompositeStep, Leaf, Step
from .text_listeners import OnText, model_call, text_listener

if TYPE_CHECKING:
    from ..models import Models

__all__ = [
    "ResumeLimits",
    "ResumeOptions",
    "RunOptions",
    "StepWithResources",
    "bounds_of",
    "chained",
    "check_names",
    "check_options",
    "described",
    "fresh_row",
    "journal_of",
    "new_run_id",
    "open_run",
    "progress_listeners",
    "row_of",
    "valid_run_id",
    "with_models",
]

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
# Seeded by the system, and not the generator of `random`, whose seed may be the same in two processes.
_random = random.Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@runtime_checkable
class StepWithResources(Protocol):
    """A step with the objects that it needs, such as a loaded document."""

    @property
    def step(self) -> Step: ...
    @property
    def default_input(self) -> Json: ...
    @property
    def budget(self) -> Budget | None: ...
    @property
    def resources(self) -> Mapping[str, Any]: ...
    @property
    def source(self) -> Mapping[str, Json]: ...


class ResumeOptions(TypedDict, total=False):
    """The options of `run` that `resume` passes on."""

    budget: Budget | None
    clock: Clock | None
    random: Callable[[], float] | None
    listeners: Sequence[Listener]
    models: Models | None
    model: str
    on_text: OnText | None
    progress: bool | Listener
    resources: Mapping[str, Any] | None
    source: Mapping[str, Json] | None
    accept_changes: bool
    in_doubt: str
    takeover: bool


class ResumeLimits(ResumeOptions, total=False):
    """The options of `resume`, which explains them."""

    max_iterations: int | None
    max_usd: float | None
    max_calls: int | None
    max_total_tokens: int | None
    max_effects: int | None


class RunOptions(ResumeOptions, total=False):
    """The options of `run`, which explains them."""

    journal: Journal | str | None
    run_id: str


def chained(first: Mapping[str, Any], second: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the resources of both, the first before the second."""
    # No copy, which would load resources that no step may need. Nothing is written to it.
    return ChainMap(*(cast("MutableMapping[str, Any]", part) for part in (first, second)))


def progress_listeners(progress: bool | Listener) -> list[Listener]:
    """Return the listeners that show the progress of a run."""
    if progress is True:
        # By name: progress is a layer above the engine, and loads rich or IPython.
        return [importlib.import_module("loopwright.progress").automatic()]
    if progress is False:
        return []
    if not callable(progress) and not hasattr(progress, "opened"):
        raise ConfigurationError(
            f"run: progress: {progress!r:.60} is not a listener; use True, False or one of "
            "loopwright.progress, such as tqdm_bar()"
        )
    return [progress]


def with_models(
    resources: Mapping[str, Any] | None,
    models: Models | None,
    *,
    model: str,
    on_text: OnText | None,
) -> Mapping[str, Any] | None:
    """Return the resources with the models and the text listener of a run."""
    own: dict[str, Any] = {}
    if models is not None:
        if not hasattr(models, "resolve"):
            raise ConfigurationError(
                f"run: models: {models!r:.60} is not a Models; use one, such as Models(…)"
            )
        own["models"] = models
    if model:
        own["model"] = model
    if on_text is not None:
        listener = text_listener(on_text)
        own["on_text"] = lambda path, text: listener(text, model_call(path))
    if not own:
        return resources
    for name in own if resources is not None else ():
        if name in cast("Mapping[str, Any]", resources):
            raise ConfigurationError(f"run: {name}: it is also in resources; remove one of the two")
    # A chain, because a copy would load resources that no step may need.
    return ChainMap(own, cast("MutableMapping[str, Any]", resources)) if resources else own


def check_names(root: Step, resources: Mapping[str, Any] | None) -> None:
    """Raise ConfigurationError for the names of templates and models that this run does not supply."""
    missing = root.unsupplied
    if not missing:
        return
    names = getattr((resources or {}).get("models"), "names", {})
    sentences = [
        f"{sentence}{nearest(name.removeprefix(MODEL_NAME), names) if names else ''}"
        for name, sentence in missing.items()
        if not name.startswith(MODEL_NAME) or name.removeprefix(MODEL_NAME) not in names
    ]
    if sentences:
        raise ConfigurationError("; ".join(sentences))


def journal_of(journal: Journal | str | None) -> tuple[Journal | None, bool]:
    """Return a journal, and whether it was opened here."""
    if isinstance(journal, str):
        return open_journal(journal), True
    if journal is not None and not hasattr(journal, "open"):
        raise ConfigurationError(
            f"journal: {journal!r} is not a journal; use a Journal, a URL such as sqlite:runs.db, "
            "or None"
        )
    return journal, False


def check_options(
    budget: object, in_doubt: object, listeners: Sequence[Listener], resources: object
) -> None:
    """Raise ConfigurationError for an invalid option of `run`."""
    if budget is not None and not isinstance(budget, Budget):
        raise ConfigurationError(
            f"run: budget: {budget!r} is not a Budget; use one, such as Budget(usd=0.5)"
        )
    words = ("suspend", "rerun")
    if in_doubt not in words:
        hint = nearest(str(in_doubt), words)
        raise ConfigurationError(f"run: in_doubt: {in_doubt!r} is neither suspend nor rerun{hint}")
    if resources is not None and not isinstance(resources, Mapping):
        raise ConfigurationError(
            f"run: resources: {resources!r:.60} is not a mapping; use objects by name, such as {{'model': …}}"
        )
    if callable(listeners):
        raise ConfigurationError(f"run: listeners: {listeners!r} is not a list; use a list")
    for listener in listeners:
        if not callable(listener) and not hasattr(listener, "opened"):
            raise ConfigurationError(f"run: listeners: {listener!r} is not a function")


def new_run_id() -> str:
    """Return a new run ID that sorts by time: date, time and 6 random letters and digits."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + "".join(_random.choices(_LETTERS, k=6))


def valid_run_id(run_id: str) -> str:
    """Return a run ID; "" stands for a new one. Raises ConfigurationError."""
    if run_id and not (isinstance(run_id, str) and _ID.fullmatch(run_id)):
        raise ConfigurationError(
            f"run_id: {run_id!r} is not a run ID; use 1 to 64 letters, digits, - and _"
        )
    return run_id


def fresh_row(step: Step, value: Json, run_id: str) -> RunInfo:
    """Return the row of a new run.

    Raises:
        ConfigurationError: for an invalid run ID or input.
    """
    valid_run_id(run_id)
    declared = step.input_type
    try:
        if declared is None:
            recorded_input = codec.normalise(value, what="input")
        else:
            recorded_input = declared.write_input(value)
    except StepError as error:
        raise ConfigurationError(str(error)) from None
    now = time.time()
    return RunInfo(run_id or new_run_id(), step.name, recorded_input, created=now, updated=now)


def described(
    fresh: RunInfo, step: Step, source: Mapping[str, Json], budget: Budget | None
) -> RunInfo:
    """Return a row with the fields that only a journal needs: the step's fingerprint, and its bounds."""
    bounds = bounds_of(step, budget)
    code: Json = {"fingerprints": VERSION}
    if len(parts := parts_of(step)) <= _MAX_NAMES:
        code["parts"] = parts
    described_source = {**source, "code": code, **({"bounds": bounds} if bounds else {})}
    return replace(fresh, fingerprint=step.fingerprint, source=described_source)


def _bounded(info: RunInfo, fresh: RunInfo) -> RunInfo:
    """Return the row with the bounds of this opening: a resume may have others than the first one."""
    bounds = fresh.source.get("bounds")
    if bounds is None or info.source.get("bounds") == bounds:
        return info
    return replace(info, source={**info.source, "bounds": bounds})


async def open_run(
    step: Step,
    value: Json,
    store: Journal | None,
    *,
    resources: RunResources,
    redactor: Redactor | None,
    budget: Budget | None,
    source: Mapping[str, Json],
    accept_changes: bool,
    run_id: str,
    takeover: bool,
    observed: bool,
    has_input: bool,
) -> tuple[RunInfo, RunLog]:
    """Open the journal of a run; return its row, with the bounds of this opening, and the log.

    `has_input` is whether the caller passed the value: a default is not compared with a recorded input.

    Raises:
        JournalError: if it cannot be opened, or holds another run under this ID.
    """
    fresh = fresh_row(step, value, run_id)
    if redactor is None and step.asks_model and "models" not in resources:
        # The default models read these keys at the first call, when the input is on record.
        redactor = Redactor(secrets_in(os.environ))
    if redactor is not None:
        # Refused, not redacted: a run cannot compute with a replaced input.
        redactor.refuse("input", fresh.input)
        redactor.refuse("the source of the run", source)
    if store is not None or observed:  # listeners may read the limits
        fresh = described(fresh, step, source, budget)
    if store is None:
        return fresh, NoLog(fresh)
    log = await store.open(fresh, takeover=takeover)
    try:
        if log.recorded and not accept_changes:
            _check_same(log, step, fresh, has_input=has_input)
        if not log.recorded and "forked" in log.info.source and log.info.epoch > 1:
            raise ConfigurationError(
                f"{log.info.run_id}: the process that forked it ended before its entries were written; "
                "fork again with another run ID"
            )
        # Answers and limits that were posted while no process ran it become entries before the replay.
        if log.recorded or log.info.queue:
            await take_up(store, log)
    except BaseException:
        # Released with its former status: the run is as it was before this attempt.
        with contextlib.suppress(JournalError):
            await asyncio.shield(log.close(replace(log.info, status=status_of(log.recorded))))
        raise
    return _bounded(log.info, fresh), log


def _check_same(log: RunLog, step: Step, fresh: RunInfo, *, has_input: bool) -> None:
    """Raise ReplayMismatch if the log holds a run of another step or input."""
    info = log.info
    if has_input and codec.digest(fresh.input) != codec.digest(info.input):
        raise ReplayMismatch(
            f"{info.run_id}: {_changed_input(info.input, fresh.input)}; "
            "resume without an input, or use another run ID",
            path="",
            recorded=codec.digest(info.input),
            now=codec.digest(fresh.input),
        )
    if info.name != step.name:
        raise ReplayMismatch(
            f"{info.run_id}: it was recorded as {info.name!r}, not as {step.name!r}; "
            "resume with the step of that name, or use another run ID",
            path="",
            recorded=info.name,
            now=step.name,
        )
    recorded = _accepted_in(log) or info.fingerprint
    if recorded and not step.recorded_as(recorded):
        raise ReplayMismatch(
            f"{info.run_id}: {step.name} changed since the run was recorded: "
            f"{_what_changed(info, fresh, step)}; resume with the old version, or give accept_changes",
            path="",
            recorded=recorded,
            now=step.fingerprint,
        )


def _changed_input(before: Json, now: Json) -> str:
    """Return what differs in words: the keys of an object, else both values, shortened."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        return f"{', '.join(keys[:_MAX_SHOWN])} of its input changed since it was recorded"
    then, given = (shortened(codec.flow_text(value), _MAX_INPUT) for value in (before, now))
    return f"its input was {then} when it was recorded, now it is {given}"


def _what_changed(info: RunInfo, fresh: RunInfo, step: Step) -> str:
    """Return what is not as it was recorded: parts of the program, or what this package makes of it."""
    before, now = info.source.get("code") or {}, fresh.source["code"]
    texts = [(source.get("documents") or {}).get("files") for source in (info.source, fresh.source)]
    version = before.get("fingerprints", 0)
    what = ""
    if "parts" in before and "parts" in now:
        what = ", ".join(changed_parts(before["parts"], now["parts"])[:_MAX_SHOWN])
    # Of a run that records no document, only an earlier version of this package can be told.
    if version < VERSION and texts[0] == texts[1]:
        renewed = dict.fromkeys(text for since, text in _renewed(step) if since > version)
        meaning = ", ".join(renewed) or "what its steps mean"
        same = "the document is the same, but " if texts[0] else ""
        return f"{same}this version of Loopwright changed {meaning}" + (
            f" ({what})" if what else ""
        )
    return what or "its settings"


def _renewed(step: Step) -> Iterator[tuple[int, str]]:
    yield from step.renewed
    for part in step.parts():
        yield from _renewed(part)


def _accepted_in(log: RunLog) -> str:
    """Return the fingerprint of the code that was accepted instead of the recorded one, or ""."""
    accepted = (e for e in reversed(log.recorded) if e.kind == "accepted" and not e.path)
    return next((e.fingerprint for e in accepted if e.value is None), "")


def row_of(info: RunInfo, result: Result, active: float) -> RunInfo:
    """Return the row of a run that ended; `active` are its active seconds."""
    inner = (r.history.best for r in result.loops.values() if r.history.best)
    best = result.history.best or next(inner, None)
    return replace(
        info,
        status=result.status.value,
        reason=result.reason.value,
        detail=result.detail,
        active=active,
        updated=time.time(),
        iterations=result.total,
        score=best.evaluation.score if best and best.evaluation else None,
        usage=result.usage,
    )


_MAX_INPUT = 60  # characters of an input in a message
_MAX_SHOWN = 3  # changed parts in a message
_MAX_NAMES = 200  # loops and lists in a row; a generated workflow may have thousands


def bounds_of(step: Step, budget: Budget | None = None) -> dict[str, Json]:
    """Return the bounds of a step as JSON: `{"budget": {…}, "loops": [{name, within, until, rules, sentences}],
    "lists": [name], "at_once": {name: n}}`.

    `within` is the name of the nearest loop around it, `until` its conditions with the guards, each
    as `Condition.to_json` writes it, `rules` what `loop_of_rules` reads, `sentences` how many it asks. `at_once` has the steps whose number
    of jobs at a time can be tuned.
    A step without loops and without a budget has no bounds: {}.
    """
    loops: list[Json] = []
    lists: dict[str, None] = {}
    at_once: dict[str, int] = {}
    _collect(step, loops, lists, at_once)
    bounds: dict[str, Json] = {"loops": loops[:_MAX_NAMES]} if loops else {}
    if lists:
        bounds["lists"] = list(lists)[:_MAX_NAMES]
    if at_once:
        bounds["at_once"] = dict(list(at_once.items())[:_MAX_NAMES])
    if budget is not None:
        bounds["budget"] = budget.to_json()["budget"]
    return bounds


def _collect(
    step: Step,
    loops: list[Json],
    lists: dict[str, None],
    at_once: dict[str, int],
    *,
    within: str = "",
    in_folder: bool = False,
) -> None:
    """Add the loops and lists inside a step, and the jobs at a time of its steps that can have another number."""
    over_list = getattr(step, "over_list", False)
    if over_list:
        lists[step.name] = None
    if isinstance(step, Loop):
        loop: dict[str, Json] = {
            "name": step.name,
            "until": step.bounds,
            "rules": step.rules,
            **({"sentences": len(step.sentences)} if step.sentences else {}),
        }
        loops.append({**loop, "within": within} if within else loop)
        within = step.name
    most = getattr(step, "at_once", None)
    # Items of a list are independent, unless they work on the same files. Other steps that run one at a
    # time may use the results of those before.
    adjustable = over_list and not in_folder
    if isinstance(step, CompositeStep) and isinstance(most, int) and (most > 1 or adjustable):
        at_once.setdefault(step.name, most)
    in_folder = in_folder or getattr(step, "workspace", None) is not None
    for part in () if isinstance(step, Leaf) else step.parts():
        _collect(part, loops, lists, at_once, within=within, in_folder=in_folder)
