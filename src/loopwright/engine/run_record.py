"""A run in its journal: its options and opening, its row, its results, and changes to it before it is resumed.

1. Entries are never deleted. A rewind sets aside those that a change makes invalid.
2. Each change, such as a higher limit or another input of an iteration, is an entry (`accepted`, `answered`), so
   that every later resume applies it too.
3. The row contains the bounds of a run, which are the conditions of each loop, for lists and pages.
4. A run that ended outside its root step, or that had ended when it was opened, has its result from its entries.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import os
import random
import re
import time
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, cast, runtime_checkable

from ..conditions import CEILING, UNITS, Budget, amount, unit_of
from ..errors import (
    ConfigurationError,
    JournalError,
    ReplayMismatch,
    RunNotFound,
    StepError,
    nearest,
)
from ..journal import Entry, Journal, NoLog, Rewind, RunInfo, RunLog, surviving
from ..journal.protocol import checked_tags
from ..records import (
    Failure,
    History,
    Reason,
    Result,
    Status,
    Stop,
    agents_history,
    case_path,
    codec,
    item_outcomes,
)
from ..records.codec import Json
from ..records.display import shortened
from ..records.typed import Value, ValueType
from .effects import retyped
from .functions import VERSION, changed_parts, parts_of
from .loop import Loop
from .loop_options import LoopDeclaration
from .run_state import Clock, Listener, Run, RunResources
from .step import MODEL_NAME, CompositeStep, Leaf, Step

if TYPE_CHECKING:
    from ..journal.replay import RecordedRun
    from ..models.registry import Models
    from ..records.redaction import Redactor

__all__ = [
    "ModelCall",
    "OnText",
    "ResumeLimits",
    "ResumeOptions",
    "RunOptions",
    "StepWithResources",
    "bounds_of",
    "chained",
    "check_names",
    "check_options",
    "cut_result",
    "described",
    "failed_result",
    "finished",
    "fresh_row",
    "journal_of",
    "model_call",
    "new_run_id",
    "open_run",
    "progress_listeners",
    "raise_limit",
    "raises_of",
    "rewind_with_input",
    "row_of",
    "show_ended_loops",
    "text_listener",
    "valid_run_id",
    "with_models",
]

_WORDS = {"usd": "dollars", "calls": "calls", "tokens": "tokens", "effects": "effects"}
_UNITS = {**_WORDS, "usd": "USD"}
_LIMITS = (Reason.MAX_ITERATIONS, Reason.PHASE_LIMIT)


async def raise_limit(
    journal: Journal,
    run_id: str,
    *,
    max_iterations: int | None = None,
    max_usd: float | None = None,
    max_calls: int | None = None,
    max_total_tokens: int | None = None,
    max_effects: int | None = None,
    loop: str = "",
    step: Step | None = None,
    source: Mapping[str, Json] | None = None,
) -> list[str]:
    """Raise the limit that ended a run, so that the next resume continues from there.

    A run that has not ended gets the limit and keeps its entries.

    Args:
        journal: the journal of the run.
        run_id: the run.
        max_iterations: the new limit of a loop.
        max_usd: the new limit in US dollars of the run or loop that used up its budget.
        max_calls: the same in model calls.
        max_total_tokens: the same in input and output tokens together.
        max_effects: the same in effects.
        loop: the path or name of the loop for `max_iterations`. Default: the outermost loop that used up
            its iterations; of the phases of an agent, the last one.
        step: the step that continues the run, which must be the recorded one. Default: any.
        source: how to load it, for the sentence on what differs.

    Returns:
        The paths of the loops whose limit was raised, "" for the run.

    Raises:
        RunNotFound: if there is no such run.
        RunLocked: if a live process runs it.
        ConfigurationError: if something else ended it, or the limit is not above the used amount.
        ReplayMismatch: if the step is not the recorded one.
    """
    limits = {
        "max_iterations": max_iterations, "max_usd": max_usd, "max_calls": max_calls,
        "max_total_tokens": max_total_tokens, "max_effects": max_effects,
    }  # fmt: skip
    info = await journal.find(run_id)
    entries = await journal.entries(info.run_id)
    raises = raises_of(info.run_id, entries, limits, loop)
    # Before anything is recorded: a refused resume leaves the run as it is.
    if step is not None:
        fresh = described(fresh_row(step, None, info.run_id), step, source or {}, None)
        _check_same(info, surviving(entries), step, fresh, has_input=False)
    for path, point, new in raises:
        # First the rewind: it would set aside an entry that was recorded before it.
        if point:
            await journal.rewind(info.run_id, point)
        await _append(journal, info.run_id, Entry("accepted", path, 0.0, value=new))
    return [path for path, _, _ in raises]


def raises_of(
    run_id: str, entries: Sequence[Entry], limits: Mapping[str, Any], loop: str = ""
) -> list[tuple[str, str, dict[str, Json]]]:
    """Return for each new limit its owner ("" is the run), the point to rewind to, and the limit.

    Raises:
        ConfigurationError: as `raise_limit` does.
    """
    from ..journal.replay import RecordedRun

    raises = []
    for name in ("max_iterations", *UNITS):
        maximum = limits.get(name)
        if maximum is None:
            continue
        # Of what the limits before leave: they may rewind the run.
        kept = surviving(entries)
        if name == "max_usd":
            codec.number(name, maximum, minimum=0, above=True)
        else:
            codec.integer(name, maximum, minimum=1)
        if name == "max_iterations":
            path, point = _iterations(run_id, RecordedRun(kept), maximum, loop)
        else:
            path, point = _budget(run_id, kept, name, maximum)
        raises.append((path, point, {name: maximum}))
        if point:
            entries = [*kept, Entry("rewound", point, 0.0)]
    return raises


def _iterations(run_id: str, replay: RecordedRun, maximum: int, loop: str) -> tuple[str, str]:
    """Return the path of the loop to continue, and the point to rewind to, "" if it has not ended."""
    ends = {path: Stop.from_json(end["stop"]) for path, end in replay.ended.items() if path}
    running = [path for path in replay.records if path not in ends and "" not in replay.ended]
    loops = [*running, *(path for path, stop in ends.items() if stop.reason in _LIMITS)]
    # The length of a list is its limit, which cannot be raised.
    loops = [path for path in loops if f"{path}/items" not in replay.finished]
    if loop:
        loops = [path for path in loops if loop in (path, path.rsplit("/", 1)[-1])]
    if not loops:
        raise _not_by_limit(run_id, replay, loop, ends)
    path = loops[-1]
    if not loop:
        path = min(loops, key=lambda path: path.count("/"))
        # Of the phases of an agent, the last one.
        if path in ends and ends[path].reason is Reason.PHASE_LIMIT:
            agent = path.rpartition("/")[0]
            path = [one for one in loops if one in ends and one.rpartition("/")[0] == agent][-1]
    used = len(replay.records.get(path, ()))
    if maximum <= used:
        raise ConfigurationError(
            f"max_iterations: {maximum} is not above the {used} iterations that {path} has used; "
            f"use {used + 1} or more"
        )
    if maximum > CEILING:
        raise ConfigurationError(
            f"max_iterations: {maximum} is above the ceiling of {CEILING}; use at most {CEILING}"
        )
    return path, f"{path}/ended" if path in ends else ""


def _not_by_limit(
    run_id: str, replay: RecordedRun, loop: str, ends: dict[str, Stop]
) -> ConfigurationError:
    names = {path.rsplit("/", 1)[-1] for path in replay.records}
    if loop and loop not in names | set(replay.records):
        hint = nearest(loop, names) or f"; its loops are: {', '.join(sorted(names)) or 'none'}"
        return ConfigurationError(f"loop: there is no loop {loop!r} in {run_id}{hint}")
    stops = [stop for path, stop in ends.items() if not loop or loop in path.split("/")]
    root = replay.ended.get("")
    stop = stops[-1] if stops else Stop.from_json(root["stop"]) if root else None
    why = (
        f"it ended for another reason ({stop.reason.value}: {stop.detail})"
        if stop
        else "no iteration of a loop is recorded"
    )
    hint = "rewind it to continue from an earlier point"
    if root is None:
        hint = f"change its limits with loopwright limits {run_id}"
    return ConfigurationError(
        f"{run_id}: no limit of iterations ended {loop or 'it'}: {why}; {hint}"
    )


def _budget(run_id: str, entries: Sequence[Entry], name: str, maximum: float) -> tuple[str, str]:
    """Return the owner of the used-up budget ("" is the run), and the point to rewind to."""
    from ..journal.replay import RecordedRun

    unit = UNITS[name]
    replay = RecordedRun(entries)
    root = replay.ended.get("")
    stop = Stop.from_json(root["stop"]) if root is not None else None
    if stop is not None and (stop.reason is not Reason.BUDGET or unit_of(stop.detail) != unit):
        raise ConfigurationError(
            f"{run_id}: no budget of {_WORDS[unit]} ended it, but {stop.reason.value}: {stop.detail}"
        )
    stops = [owner for entry in entries if (owner := _used_up_by(entry)) is not None]
    path, point = "", ""
    if root is not None:
        path = stops[-1][0] if stops else ""
        point = next((at for owner, at in stops if owner == path), "ended")
    used = replay.effects(path) if unit == "effects" else getattr(replay.spent(path), unit)
    if maximum <= used:
        raise ConfigurationError(
            f"{name}: {amount(maximum)} is not above the {amount(used)} {_UNITS[unit]} that are spent; "
            "use a higher limit"
        )
    return path, point


def _used_up_by(entry: Entry) -> tuple[str, str] | None:
    """Return the owner of the used-up budget that an entry records, and the point of the entry."""
    word = Reason.BUDGET.value
    if entry.kind == "iteration" and entry.error is not None and entry.error.kind == word:
        return entry.error.path, f"{entry.path}/{entry.value.number}/record"
    if entry.kind == "ended" and entry.path and entry.value["stop"]["reason"] == word:
        # A loop that an outer budget ended names its owner.
        cut = entry.value.get("cut") or {}
        return cut.get("owner", entry.path), f"{entry.path}/ended"
    return None


async def rewind_with_input(journal: Journal, run_id: str, path: str, value: Json) -> Rewind:
    """Rewind a run to the beginning of an iteration, which then has another input.

    Args:
        journal: the journal of the run.
        run_id: the run.
        path: the path of the iteration, such as `refine/3`.
        value: its new input, in place of the output of adapt.

    Raises:
        RunNotFound: if there is no such run, or no entry at the path.
        RunLocked: if a live process runs it.
        ConfigurationError: if the path is not that of an iteration, or the value is not JSON.
    """
    info = await journal.find(run_id)
    try:
        new_input = codec.normalise(value, what="input")
    except StepError as error:
        raise ConfigurationError(str(error)) from None
    entries = surviving(await journal.entries(info.run_id))
    loop, _, number = path.rpartition("/")
    stages = {
        entry.path.removeprefix(f"{path}/").split("/")[0]
        for entry in entries
        if entry.kind == "started" and entry.path.startswith(f"{path}/")
    }
    # The input of an item is the item, so a list has no input to replace.
    is_list = any(entry.path == f"{loop}/items" for entry in entries)
    if not loop or not number.isdigit() or is_list or not stages & {"adapt", "execute"}:
        paths = [f"{e.path}/{e.value.number}" for e in entries if e.kind == "iteration"]
        hint = nearest(path, paths) or (f", such as {paths[-1]}" if paths else "")
        raise ConfigurationError(
            f"{path!r} is not an iteration of a loop, and only an iteration can have another input; "
            f"use its path{hint}"
        )
    done = await journal.rewind(info.run_id, path)
    await _append(journal, info.run_id, Entry("answered", f"{path}/input", 0.0, value=new_input))
    return done


async def _append(journal: Journal, run_id: str, entry: Entry) -> None:
    """Append an entry durably to a run without a process, and release the run."""
    from ..journal.questions import status_of

    log = await journal.open(await journal.find(run_id), resume=True)
    # An open run has the status "running"; the entries know the one from before.
    row = replace(log.info, status=status_of(log.recorded), updated=time.time())
    entry.at = row.active
    try:
        log.append(entry)
        if (written := log.sync()) is not None:
            await written
    finally:
        await log.close(row)


_ATTEMPT = re.compile(r"/?attempt-([0-9]+)$")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ModelCall(Value):
    """The call that a piece of text belongs to.

    Args:
        path: the path of the step that called the model.
        attempt: the number of the attempt, from 1.

    Example:

    >>> model_call("draft/1/execute/attempt-2")
    ModelCall(path='draft/1/execute', attempt=2)
    """

    path: str
    attempt: int


OnText = Callable[[str], object] | Callable[[str, ModelCall], object]


def model_call(path: str) -> ModelCall:
    """Return the call of the attempt at a path."""
    match = _ATTEMPT.search(path)
    return ModelCall(path, 1) if match is None else ModelCall(path[: match.start()], int(match[1]))


def text_listener(function: OnText) -> Callable[[str, ModelCall], object]:
    """Return a function of text and call for `f(text)` or `f(text, call)`.

    A function receives the call if it requires a second positional argument, so `print` does not.

    Raises:
        ConfigurationError: for an object that cannot be called.
    """
    if not callable(function):
        raise ConfigurationError(f"on_text: {function!r:.60} is not a function of text")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a function written in C may have no signature
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in positional and p.default is p.empty]
    if len(required) >= 2:
        return cast("Callable[[str, ModelCall], object]", function)
    plain = cast("Callable[[str], object]", function)
    return lambda text, call: plain(text)


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
    on_wait: str
    takeover: bool


class ResumeLimits(ResumeOptions, total=False):
    """The options of `resume`, which explains them."""

    max_iterations: int | None
    max_usd: float | None
    max_calls: int | None
    max_total_tokens: int | None
    max_effects: int | None
    retry: bool


class RunOptions(ResumeOptions, total=False):
    """The options of `run`, which explains them."""

    journal: Journal | str | None
    run_id: str
    tags: Mapping[str, str] | None
    seed: int | None


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
        from ..journal.open import open_journal

        return open_journal(journal), True
    if journal is not None and not hasattr(journal, "open"):
        raise ConfigurationError(
            f"journal: {journal!r} is not a journal; use a Journal, a URL such as sqlite:runs.db, "
            "or None"
        )
    return journal, False


def check_options(
    budget: object,
    in_doubt: object,
    on_wait: object,
    listeners: Sequence[Listener],
    resources: object,
    seed: object = None,
) -> None:
    """Raise ConfigurationError for an invalid option of `run`."""
    if seed is not None:
        codec.integer("run: seed", seed, minimum=0)
    if budget is not None and not isinstance(budget, Budget):
        raise ConfigurationError(
            f"run: budget: {budget!r} is not a Budget; use one, such as Budget(usd=0.5)"
        )
    words = ("suspend", "rerun")
    if in_doubt not in words:
        hint = nearest(str(in_doubt), words)
        raise ConfigurationError(f"run: in_doubt: {in_doubt!r} is neither suspend nor rerun{hint}")
    if on_wait not in ("stay", "leave"):
        raise ConfigurationError(f"run: on_wait: {on_wait!r} is neither stay nor leave")
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


def fresh_row(
    step: Step, value: Json, run_id: str, tags: Mapping[str, str] | None = None
) -> RunInfo:
    """Return the row of a new run.

    Raises:
        ConfigurationError: for an invalid run ID, input or tag.
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
    row = RunInfo(run_id or new_run_id(), step.name, recorded_input, created=now, updated=now)
    return replace(row, tags=checked_tags(tags)) if tags else row


def described(
    fresh: RunInfo, step: Step, source: Mapping[str, Json], budget: Budget | None
) -> RunInfo:
    """Return a row with the fields that only a journal needs: the step's fingerprint, and its bounds.

    A `name` in the source is that of the run, in place of the step's.
    """
    bounds = bounds_of(step, budget)
    code: Json = {"fingerprints": VERSION}
    if len(parts := parts_of(step)) <= _MAX_NAMES:
        code["parts"] = parts
    described_source = {**source, "code": code, **({"bounds": bounds} if bounds else {})}
    name = codec.text_of(described_source.pop("name", "")) or fresh.name
    if name != step.name:
        described_source["step"] = step.name
    return replace(fresh, name=name, fingerprint=step.fingerprint, source=described_source)


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
    tags: Mapping[str, str] | None = None,
) -> tuple[RunInfo, RunLog]:
    """Open the journal of a run; return its row, with the bounds of this opening, and the log.

    `has_input` is whether the caller passed the value: a default is not compared with a recorded input.

    Raises:
        JournalError: if it cannot be opened, or holds another run under this ID.
    """
    if step.complete_input is not None and (has_input or not await _is_recorded(store, run_id)):
        value = step.complete_input(value)
    fresh = fresh_row(step, value, run_id, tags)
    if redactor is None and step.asks_model and "models" not in resources:
        # The default models read these keys at the first call, when the input is on record.
        from ..records.redaction import Redactor, secrets_in

        redactor = Redactor(secrets_in(os.environ))
    if redactor is not None:
        # Refused, not redacted: a run cannot compute with a replaced input.
        redactor.refuse("input", fresh.input)
        redactor.refuse("the source of the run", source)
        redactor.refuse("the tags of the run", fresh.tags)
    if "seed" in source:
        fresh = replace(fresh, source={"seed": source["seed"]})
    if store is not None or observed:  # listeners may read the limits
        fresh = described(fresh, step, source, budget)
    if store is None:
        return fresh, NoLog(fresh)
    log = await store.open(fresh, takeover=takeover)
    try:
        if log.recorded and not accept_changes:
            _check_same(log.info, log.recorded, step, fresh, has_input=has_input)
        if not log.recorded and "forked" in log.info.source and log.info.epoch > 1:
            raise ConfigurationError(
                f"{log.info.run_id}: the process that forked it ended before its entries were written; "
                "fork again with another run ID"
            )
        if fresh.tags.items() - log.info.tags.items():  # of a run that existed
            await store.tag(log.info.run_id, fresh.tags)
        # Answers and limits that were posted while no process ran it become entries before the replay.
        if log.recorded or log.posted:
            from ..journal.questions import take_up

            await take_up(store, log)
    except BaseException:
        # Released with its former status: the run is as it was before this attempt.
        from ..journal.questions import status_of

        with contextlib.suppress(JournalError):
            await asyncio.shield(log.close(replace(log.info, status=status_of(log.recorded))))
        raise
    info, bounds = log.info, fresh.source.get("bounds")
    # A resume may have others than the first opening.
    if bounds is not None and info.source.get("bounds") != bounds:
        info = replace(info, source={**info.source, "bounds": bounds})
    return info, log


async def _is_recorded(store: Journal | None, run_id: str) -> bool:
    """Return whether a journal has a run with exactly this ID."""
    if store is None or not run_id:
        return False
    try:
        return (await store.find(run_id)).run_id == run_id
    except RunNotFound:
        return False


def _check_same(
    info: RunInfo, entries: Sequence[Entry], step: Step, fresh: RunInfo, *, has_input: bool
) -> None:
    """Raise ReplayMismatch if the entries are those of another step or input."""
    if has_input and codec.digest(fresh.input) != codec.digest(info.input):
        before, now = info.input, fresh.input
        # The keys of an object, else both values, shortened.
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
            changed = f"{', '.join(keys[:_MAX_SHOWN])} of its input changed since it was recorded"
        else:
            then, given = (shortened(codec.flow_text(one), _MAX_INPUT) for one in (before, now))
            changed = f"its input was {then} when it was recorded, now it is {given}"
        raise ReplayMismatch(
            f"{info.run_id}: {changed}; resume without an input, or use another run ID",
            path="",
            recorded=codec.digest(info.input),
            now=codec.digest(fresh.input),
        )
    if info.step != step.name:
        raise ReplayMismatch(
            f"{info.run_id}: it was recorded as {info.step!r}, not as {step.name!r}; "
            "resume with the step of that name, or use another run ID",
            path="",
            recorded=info.step,
            now=step.name,
        )
    # The code that was accepted instead of the recorded one, if any was.
    accepted = (e for e in reversed(entries) if e.kind == "accepted" and not e.path)
    recorded = next((e.fingerprint for e in accepted if e.value is None), "") or info.fingerprint
    if recorded and not step.recorded_as(recorded):
        raise ReplayMismatch(
            f"{info.run_id}: {step.name} changed since the run was recorded: "
            f"{step.changed(entries) or _what_changed(info, fresh, step)}; resume with the old version, or give accept_changes",
            path="",
            recorded=recorded,
            now=step.fingerprint,
        )


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


def row_of(info: RunInfo, result: Result, active: float) -> RunInfo:
    """Return the row of a run that ended; `active` are its active seconds."""
    inner = (r.history.best for r in result.loops.values() if r.history.best)
    best = result.history.best or next(inner, None)
    score = best.evaluation.score if best and best.evaluation else None
    if "eval" in info.source and isinstance(result.output, Mapping):
        score = (result.output.get("score") or {}).get("mean")
    return replace(
        info,
        status=result.status.value,
        reason=result.reason.value,
        detail=result.detail,
        active=active,
        updated=time.time(),
        iterations=result.total,
        score=score,
        usage=result.usage,
    )


_MAX_INPUT = 60  # characters of an input in a message
_MAX_SHOWN = 3  # changed parts in a message
_MAX_NAMES = 200  # loops and lists in a row; a generated workflow may have thousands


def bounds_of(step: Step, budget: Budget | None = None) -> dict[str, Json]:
    """Return the bounds of a step as JSON: `{"budget": {…}, "loops": [{name, within, until, rules, sentences, runs}],
    "lists": [name], "at_once": {name: n}, "once": [fingerprint]}`.

    `within` is the name of the nearest loop around it, `until` its conditions with the guards, each
    as `Condition.to_json` writes it, `rules` what `loop_of_rules` reads, `sentences` how many it asks,
    `runs` the commands and agents of a loop with files. `at_once` has the steps whose number
    of jobs at a time can be tuned, `once` those that may not run twice after a crash.
    A step without any of these has no bounds: {}.
    """
    loops: list[Json] = []
    lists: dict[str, None] = {}
    at_once: dict[str, int] = {}
    once: dict[str, None] = {}
    _collect(step, loops, lists, at_once, once)
    bounds: dict[str, Json] = {"loops": loops[:_MAX_NAMES]} if loops else {}
    if lists:
        bounds["lists"] = list(lists)[:_MAX_NAMES]
    if at_once:
        bounds["at_once"] = dict(list(at_once.items())[:_MAX_NAMES])
    if once:
        bounds["once"] = list(once)[:_MAX_NAMES]
    if budget is not None:
        bounds["budget"] = budget.to_json()["budget"]
    return bounds


def _collect(
    step: Step,
    loops: list[Json],
    lists: dict[str, None],
    at_once: dict[str, int],
    once: dict[str, None],
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
            **({"candidates": several.n} if (several := step.several) is not None else {}),
        }
        stages = {"execute": step.execute, "evaluate": step.evaluate}
        words = {name: _words(one) for name, one in stages.items() if isinstance(one, Step)}
        if in_folder or step.workspace is not None:
            loop["runs"] = {name: text for name, text in words.items() if text}
        loops.append({**loop, "within": within} if within else loop)
        within = step.name
    most = getattr(step, "at_once", None)
    # Items of a list are independent, unless they work on the same files. Other steps that run one at a
    # time may use the results of those before.
    adjustable = over_list and not in_folder
    if isinstance(step, CompositeStep) and isinstance(most, int) and (most > 1 or adjustable):
        at_once.setdefault(step.name, most)
    in_folder = in_folder or getattr(step, "workspace", None) is not None
    if isinstance(step, Leaf):
        if not step.idempotent:
            once[step.fingerprint] = None
        return
    for part in step.parts():
        _collect(part, loops, lists, at_once, once, within=within, in_folder=in_folder)


def _words(step: Step) -> str:
    """Return what a step runs outside of this process, or the first of its parts that runs something."""
    parts = () if isinstance(step, Leaf | Loop) else step.parts()
    return step.words or next(filter(None, map(_words, parts)), "")


def finished(state: Run, ended: Json, step: Step) -> Result:
    """Return the result of a run whose end is in the journal.

    Raises:
        ReplayMismatch: if a recorded value no longer fits its declared type.
    """
    from ..journal.replay import ended_result

    replay = state.replay
    assert replay is not None
    show_ended_loops(state, replay, step)
    result = ended_result(state.run_id, replay, ended, state.loops)
    # A workflow may contain a loop of its own name, whose history is not that of the run.
    history = result.history if ended.get("iterations") else History()
    if result.agents.get(result.name, {}).get("kind") == "phased":
        # The iterations of its phases.
        records = replay.records.items()
        phases = [each for loop, each in records if loop.rpartition("/")[0] == result.name]
        history = agents_history([entry.value for entry in each] for each in phases)
    members: Mapping[str, Step] = getattr(step, "named_steps", {})
    return replace(
        result,
        output=_typed(step.output_type, result.output, step.name),
        history=history,
        steps={
            name: _typed(members[name].output_type, value, name) if name in members else value
            for name, value in result.steps.items()
        },
        members=members,
    )


def failed_result(error: StepError, state: Run, step: Step) -> Result:
    """Return the result of a run that an error ended; the reason is that of the failed loop, if any."""
    failure: Failure = state.clean(Failure.of("", error, redact=state.redact))
    loop = error.result
    reason = loop.reason if loop is not None and loop.status is Status.FAILED else Reason.ERROR
    detail = f"{failure.path}: {failure.message}" if failure.path else failure.message
    stopped = cut_result(Stop(reason, detail), state, step)
    return replace(stopped, error=failure, cause=error.__cause__)


def cut_result(stop: Stop, state: Run, step: Step) -> Result:
    """Return the result of a run that was ended from outside its root step, with its output so far."""
    own = state.loops.get(step.name)
    if own is not None:
        return replace(own, status=stop.reason.status, reason=stop.reason, detail=stop.detail)
    output = next((r.output for r in reversed(state.loops.values()) if r.output is not None), None)
    return Result(stop.reason.status, stop.reason, stop.detail, output)


def _typed(declared: ValueType | None, value: Json, path: str) -> Json:
    return value if declared is None or value is None else retyped(declared, value, path)


def show_ended_loops(state: Run, replay: RecordedRun, step: Step) -> None:
    """Show the results of the loops whose end is in the journal, in the order of their ends."""
    from ..journal.replay import loop_result

    loops = state.loops
    # The loops and lists by name; of two with one name the first. Walking the step takes time, and a run
    # without ended loops has nothing to type.
    declared: dict[str, LoopDeclaration] = {}
    waiting = [step] if replay.ended else []
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, Loop) or getattr(part, "over_list", False):
            declared.setdefault(part.name, cast("LoopDeclaration", part))
        waiting += part.parts()
    loops.lists = frozenset(replay.lists())  # first: the names of loops in a list depend on it
    for path, value in replay.ended.items():
        if path and not case_path(path):
            result = loop_result(state.run_id, replay, path, value)
            loop = declared.get(result.name)
            loops.keep(path, result if loop is None else _typed_result(loop, result))


def _typed_result(loop: LoopDeclaration, result: Result) -> Result:
    """Return the recorded result of a loop with the declared types of its values."""
    input_type, output_type = loop.iteration_types
    if all(each is None or each.is_json for each in (input_type, output_type)):
        return result
    history = History()
    for item in result.history:
        value = item.input if input_type is None else input_type.attach(item.input)
        typed = replace(item, input=value, output=_typed(output_type, item.output, result.name))
        history = history.with_iteration(
            typed, result.history.elapsed, result.history.usage, result.history.now
        )
    output = _typed(loop.output_type, result.output, result.name)
    items = [
        row.item if input_type is None else input_type.attach(row.item) for row in result.items
    ]
    return replace(result, output=output, history=history, items=item_outcomes(items, history))
