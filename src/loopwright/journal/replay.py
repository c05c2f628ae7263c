"""A recorded run from its entries: their index, the limits that people changed, and the results.

The index is built once when the run is resumed or shown.

A request to change limits is put into the inbox of the run, under the question UNASKED and a path of its own. The
owner of the run records one entry of kind `tuned` for each limit, at the path of its loop ("" is the run):

    {"id": …, "who": …, "when": seconds since the epoch, "loop": …, "key": …, "old": …, "new": …, "reason": …}

`loop` is a path or a name; a name applies to all runs of that loop. A `new` of null removes the limit. What
is decided after the entry uses the new limit, so a resume and a replay decide as the live run did.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..records import (
    NOTHING,
    Evaluation,
    Failure,
    History,
    ItemOutcome,
    Iteration,
    LoopResults,
    Reason,
    Result,
    Status,
    StepOutcome,
    Stop,
    Usage,
    as_evaluation,
    case_path,
    failure_of,
    is_judging,
    item_outcomes,
)
from ..records.codec import Json
from ..records.result import explored_by
from .protocol import Entry, Posted, RunInfo, is_note, surviving, without_folded

__all__ = [
    "ended_result",
    "loop_result",
    "recorded_result",
]

UNASKED = 0  # in place of the number of a question, which is at least 1
_PREFIX = "tune/"


class TunedLimits:
    """The limits that people changed, in the order of their entries."""

    __slots__ = ("_changes", "ids")

    def __init__(self) -> None:
        self._changes: list[tuple[str, str, Json, float]] = []
        self.ids: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._changes)

    def add(self, entry: Entry, at: float | None = None) -> None:
        """Add the change that an entry records, at its active second or at another one."""
        value = entry.value
        self.ids.add(value["id"])
        self.set(value["loop"], value["key"], value["new"], entry.at if at is None else at)

    def set(self, loop: str, key: str, new: Json, at: float = 0.0) -> None:
        """Add a change of a loop, by its path or name; "" is the run."""
        self._changes.append((loop, key, new, at))

    def of(self, path: str, until: float = math.inf) -> dict[str, Json]:
        """Return the changed limits of the loop at a path, by key; "" is the run.

        Args:
            path: the path.
            until: the active second of the last change that counts.
        """
        return {
            key: new for loop, key, new, at in self._changes if at <= until and applies(loop, path)
        }


def applies(loop: str, path: str) -> bool:
    """Return whether the path or name of a loop in a request is that of the loop at a path."""
    return loop == path or (bool(loop) and path.endswith(f"/{loop}") and "/" not in loop)


def request(changes: Sequence[Json], *, reason: str, who: str, at: float) -> Posted:
    """Return the request to change limits: a list of `{loop, key, old, new}`."""
    # The time first, because an inbox is read in the order of its paths; the rest tells requests of one
    # moment apart.
    path = f"{_PREFIX}{at:018.6f}-{os.urandom(4).hex()}"
    return Posted(path, UNASKED, {"changes": list(changes), "reason": reason}, who, at)


def tuned_entries(recorded: Iterable[Entry], inbox: Sequence[Posted], active: float) -> list[Entry]:
    """Return the entries for the requests in an inbox that are not recorded yet.

    Args:
        recorded: the entries of the run so far.
        inbox: the inbox of the run.
        active: the active seconds of the run.
    """
    before = [entry.value for entry in recorded if entry.kind == "tuned"]
    ids = {value["id"] for value in before}
    entries = []
    for posted in inbox:
        if posted.asked != UNASKED or not posted.path.startswith(_PREFIX) or posted.path in ids:
            continue
        for change in posted.value["changes"]:
            # The request names the limit of its own moment; another request may be recorded since.
            same = [v for v in before if (v["loop"], v["key"]) == (change["loop"], change["key"])]
            value = {
                "id": posted.path,
                "who": posted.who,
                "when": posted.at,
                **change,
                "old": same[-1]["new"] if same else change["old"],
                "reason": posted.value["reason"],
            }
            before.append(value)
            entries.append(Entry("tuned", change["loop"], active, value))
    return entries


# The parts of a wrapping step that record its output.
_INNER = ("", "/do", "/try", "/within", "/attempt-1")


class RecordedRun:
    """An index over the surviving entries of a run.

    Most attributes are by path:

    - `finished`: effects with an outcome
    - `unsettled`: effects without an outcome, whose call may have been made and billed
    - `records`: the iterations of each loop; one that a person edited is the edited one
    - `ended`: the ends of loops, "" for the run
    - `would_stop`: the normal ends of loops that explore
    - `asked`, `answers`: questions to people and their answers
    - `raised`: raised limits of loops, "" for the run; without those that were tuned before
    - `accepted`: the fingerprints accepted in place of recorded ones
    - `requests`: the requests of effects that ask a model or another program
    - `reports`: the reports of agents about their end
    - `steps`: the outcomes of the steps of the workflow
    - `waiting`, `woken`: the records of waits and their decisions
    - `steered`: the hints that iterations have read
    - `plans`: the plans of iterations
    - `taken`: the highest number and the latest time of the events that the run took, by their name and key
    - `repeated`: how many times an effect began again after a crash or cut
    - `folded`: the entries that stand for everything at and under a path, which is nowhere else in the index

    `warnings` are its warnings, `active` its active seconds, `tuned` the limits that people changed, `noise` the
    sigma of the scores of loops by name, or None.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.finished: dict[str, Entry] = {}
        self.unsettled: dict[str, Entry] = {}
        self.records: dict[str, list[Entry]] = {}
        self.ended: dict[str, Json] = {}
        self.would_stop: dict[str, Json] = {}
        self.answers: dict[str, Json] = {}
        self.asked: dict[str, Entry] = {}
        self.raised: dict[str, dict[str, Json]] = {}
        self.tuned = TunedLimits()
        self.noise: dict[str, float] | None = None
        self.accepted: dict[str, str] = {}
        self.warnings: list[str] = []
        self.reports: dict[str, Json] = {}
        self.requests: dict[str, Mapping[str, Json]] = {}
        self.steps: dict[str, Entry] = {}
        self.waiting: dict[str, Mapping[str, Json]] = {}
        self.woken: dict[str, Mapping[str, Json]] = {}
        self.taken: dict[tuple[str, str], tuple[int, float]] = {}
        self.steered: dict[str, list[Json]] = {}
        self.plans: dict[str, Mapping[str, Json]] = {}
        self.active = 0.0
        self.repeated: dict[str, int] = {}
        self.folded: dict[str, Entry] = {}
        self._spent: dict[str, Usage] = {}
        self._judged: dict[str, Usage] = {}
        self._effects: dict[str, int] | None = None
        self._began: dict[str, float] = {}
        handlers = {
            "started": self._add_started, "finished": self._add_finished, "cut": self._add_cut,
            "iteration": self._add_iteration, "ended": self._add_ended, "asked": self._add_asked,
            "answered": self._add_answer, "accepted": self._add_accepted,
            "warned": self._add_warning, "reported": self._add_report, "step": self._add_step,
            "tuned": self._add_tuned,
            "would_stop": self._add_normal_end, "noise": self._add_noise, "waiting": self._add_waiting,
            "woken": self._add_woken, "taken": self._add_taken, "steered": self._add_steered,
            "planned": self._add_planned, "folded": self._add_folded,
        }  # fmt: skip
        entries = list(entries)
        if any(entry.kind == "folded" for entry in entries):
            entries = without_folded(entries, lambda entry: (entry.kind, entry.path))
        for entry in entries:
            # The `seconds` of an iteration are those of its loop, which ended at `at`.
            end = entry.at if entry.kind == "iteration" else entry.at + entry.seconds
            self.active = max(self.active, end)
            if (handler := handlers.get(entry.kind)) is not None:
                handler(entry)
        # Their calls may have been billed in full, and a budget must count what may have been spent.
        for path, entry in self.unsettled.items():
            self._spend(path, entry.reserved.at_most())

    def _add_started(self, entry: Entry) -> None:
        path = entry.path
        if path in self.unsettled:  # repeated after a crash: both attempts may have been billed
            self.repeated[path] = self.repeated.get(path, 0) + 1
            self._spend(path, self.unsettled[path].reserved.at_most())
            self.answers.pop(path, None)  # about the earlier attempt
            self.asked.pop(path, None)
        self.unsettled[path] = entry
        if isinstance(entry.value, Mapping):
            self.requests[path] = entry.value
        for above in _ancestors(path):
            # The first effect below a path is its beginning: composites have no entry of their own.
            self._began.setdefault(above, entry.at)

    def _add_finished(self, entry: Entry) -> None:
        self.unsettled.pop(entry.path, None)
        self.finished[entry.path] = entry
        self._spend(entry.path, entry.usage)

    def _add_cut(self, entry: Entry) -> None:
        self._spend(entry.path, entry.usage)
        if entry.value is None:  # its usage is settled, its effect on the world is unknown
            self.unsettled[entry.path] = entry
        else:  # it stopped to ask a person, and its next attempt starts again
            self.unsettled.pop(entry.path, None)

    def _add_iteration(self, entry: Entry) -> None:
        self.records.setdefault(entry.path, []).append(entry)

    def _add_ended(self, entry: Entry) -> None:
        self.ended[entry.path] = entry.value

    def _add_asked(self, entry: Entry) -> None:
        self.asked[entry.path] = entry

    def _add_normal_end(self, entry: Entry) -> None:
        self.would_stop[entry.path] = entry.value

    def _add_waiting(self, entry: Entry) -> None:
        self.waiting[entry.path] = entry.value
        for above in _ancestors(entry.path):  # a wait may be the first thing that an iteration does
            self._began.setdefault(above, entry.at)

    def _add_woken(self, entry: Entry) -> None:
        self.woken[entry.path] = entry.value

    def _add_steered(self, entry: Entry) -> None:
        self.steered[entry.path] = entry.value

    def _add_planned(self, entry: Entry) -> None:
        self.plans[entry.path] = entry.value

    def _add_taken(self, entry: Entry) -> None:
        from .events import add_taken  # few runs take events

        add_taken(self.taken, entry.value)

    def _add_answer(self, entry: Entry) -> None:
        self.answers[entry.path] = entry.value
        if entry.path not in self.asked:
            return
        request, answer = self.asked[entry.path].value["request"], entry.value
        kind = request.get("kind")
        if kind not in ("limit", "iteration") or "loop" not in request:
            return  # the question of a step
        # An answer about a loop applies to its limit, or to its latest record.
        loop, number = request["loop"], request["iteration"]
        if kind == "limit" and answer["approve"]:
            self._raise(loop, {"max_iterations": number + answer["more"]})
        elif kind == "iteration" and not {"output", "feedback"}.isdisjoint(answer):
            # The question was about the latest record, which adapt reads next.
            last = self.records[loop][-1]
            record = _edited(last.value, answer)
            self.records[loop][-1] = Entry(
                "iteration", loop, last.at, value=record, seconds=last.seconds, seq=last.seq
            )

    def _add_accepted(self, entry: Entry) -> None:
        if entry.value is None:
            # Without a value it accepts changed code; with one it raises limits.
            self.accepted[entry.path] = entry.fingerprint
        else:
            self._raise(entry.path, entry.value)

    def _raise(self, path: str, limits: Mapping[str, Json]) -> None:
        """Raise limits of a loop; the latest change counts, so a tuned limit is tuned again."""
        tuned = self.tuned.of(path)
        for key, value in limits.items():
            if key in tuned:
                self.tuned.set(path, key, value)
            else:
                self.raised.setdefault(path, {})[key] = value

    def _add_tuned(self, entry: Entry) -> None:
        # A request that waited for a resume is recorded with the time of the row, which a kill leaves behind.
        self.tuned.add(entry, max(entry.at, self.active))

    def _add_noise(self, entry: Entry) -> None:
        self.noise = {loop: measured["sigma"] for loop, measured in entry.value.items()}

    def _add_warning(self, entry: Entry) -> None:
        self.warnings.append(entry.value)

    def _add_report(self, entry: Entry) -> None:
        self.reports[entry.path] = entry.value

    def _add_step(self, entry: Entry) -> None:
        self.steps[entry.path] = entry

    def _add_folded(self, entry: Entry) -> None:
        path, judging = entry.path, entry.value.get("judging")
        self.folded[path] = entry
        self._spend(path, entry.usage, Usage.from_json(judging))
        for above in _ancestors(path):
            self._began.setdefault(above, entry.at)

    def _spend(self, path: str, usage: Usage, judging: Usage | None = None) -> None:
        """Add a usage, and the part of it for judging: by default all or nothing of it, by the path."""
        if not usage:
            return
        if judging is None:
            judging = usage if is_judging(path) else NOTHING
        for above in _ancestors(path):
            # Sums for every path above, so that each account of a resumed run reads its own.
            self._spent[above] = self._spent.get(above, NOTHING) + usage
            if judging:
                self._judged[above] = self._judged.get(above, NOTHING) + judging

    def items(self, path: str) -> list[Json]:
        """Return the items of the list at a path; none for other steps, or before they were read."""
        # The items are recorded as an effect, so that a resume has the same list.
        entry = self.finished.get(f"{path}/items")
        if entry is None or entry.error is not None or not isinstance(entry.value, list):
            return []
        return list(entry.value)

    def lists(self) -> Iterator[str]:
        """Iterate over the paths of its lists; a path without iterations may be another step."""
        end = "/items"
        return (path.removesuffix(end) for path in self.finished if path.endswith(end))

    @property
    def iterations(self) -> int:
        """The number of recorded iterations of all loops and items of all lists, without explored ones."""
        return sum(1 for _ in self.own_records())

    def own_records(self) -> Iterator[Entry]:
        """Iterate over the iterations of loops and lists without explored ones, and without those of cases."""
        for path, entries in self.records.items():
            if not case_path(path):
                yield from (entry for entry in entries if not entry.value.explored)

    def history(self, path: str) -> tuple[History, int]:
        """Return the iterations of the loop at a path, and the number of those that it explored later.

        What a loop explored after its normal end has no effect on its result, so it is left out.
        """
        history, usage, explored = History(), NOTHING, 0
        for entry in self.records.get(path, ()):
            if entry.value.explored:
                explored += 1
                continue
            usage += entry.value.usage
            history = history.with_iteration(entry.value, entry.seconds, usage, entry.at)
        return history, explored

    def outcomes(self, outputs: Mapping[str, Json] | None = None) -> dict[str, StepOutcome]:
        """Return the outcomes of the steps of the workflow by name.

        `outputs` are outputs by step name; the others are read from the entries.
        """
        outcomes = {}
        for path, entry in self.steps.items():
            name = str(entry.value["step"])
            if (data := entry.value.get("stop")) is None:
                outcomes[name] = StepOutcome(name)
                continue
            stop = Stop.from_json(data)
            outcomes[name] = StepOutcome(
                name=name,
                status=stop.reason.status,
                reason=stop.reason,
                detail=stop.detail,
                seconds=entry.value["seconds"],
                output=(outputs or {}).get(name, self._output(path)),
                items=self.table(path),
            )
        return outcomes

    def table(self, path: str) -> tuple[ItemOutcome, ...]:
        """Return the item table of the list at a path; empty for other steps."""
        items = self.items(path)
        return item_outcomes(items, [e.value for e in self.records.get(path, ())]) if items else ()

    def _output(self, path: str) -> Json:
        """Return the recorded output of the step at a path; None if its kind records none."""
        if path in self.ended:
            return self.ended[path]["output"]
        for part in _INNER:
            if (entry := self.finished.get(path + part)) is not None:
                return entry.value
        return None

    def reported(self) -> dict[str, Json]:
        """Return the last report of each agent by its name."""
        return {str(report["name"]): report for report in self.reports.values()}

    def spent(self, path: str) -> Usage:
        """Return the usage at and under a path; "" is the run."""
        return self._spent.get(path, NOTHING)

    def judged(self, path: str) -> Usage:
        """Return the part of that usage for judging."""
        return self._judged.get(path, NOTHING)

    @property
    def judging(self) -> Usage:
        """The usage of judging in the run."""
        return self.judged("")

    def effects(self, path: str) -> int:
        """Return the number of effects that began at and under a path, without notes."""
        if self._effects is None:  # counted only for runs that limit them
            self._effects = {}
            for entries in (self.finished, self.unsettled, self.folded):
                for place, entry in entries.items():
                    if not is_note(entry.fingerprint):
                        count = entry.value["effects"] if entry.kind == "folded" else 1
                        for above in _ancestors(place):
                            self._effects[above] = self._effects.get(above, 0) + count
        return self._effects.get(path, 0)

    def loops_named(self, name: str) -> list[str]:
        """Return the paths of the loops and lists with a name, in the order in which they began."""
        ends = f"/{name}"
        return [
            path
            for path in self._began
            if (path == name or path.endswith(ends))
            and (f"{path}/1" in self._began or path in self.records)
        ]

    def began(self, path: str) -> float | None:
        """Return the active second at which the first effect under a path started."""
        return self._began.get(path)


def _edited(record: Iteration, answer: Mapping[str, Json]) -> Iteration:
    """Return a record with the output or feedback that a person wrote; its score is unchanged."""
    evaluation, error = record.evaluation, record.error
    if "feedback" in answer:
        if error is not None:
            error = replace(error, message=answer["feedback"])
        else:
            fields = (evaluation or Evaluation()).to_json()
            evaluation = as_evaluation({**fields, "feedback": answer["feedback"]})
    output = answer.get("output", record.output)
    return replace(record, output=output, evaluation=evaluation, error=error)


def _ancestors(path: str) -> Iterator[str]:
    yield path
    end = path.rfind("/")
    while end > 0:
        yield path[:end]
        end = path.rfind("/", 0, end)
    yield ""


_BESIDE = ("tuned", "answered", "accepted")  # entries that people add while no process runs a run


def can_be_undone(entries: Sequence[Entry]) -> bool:
    """Return whether the latest of these entries, besides what people add, is a rewind."""
    latest = next((entry for entry in reversed(entries) if entry.kind not in _BESIDE), None)
    return latest is not None and latest.kind == "rewound" and "undo" not in (latest.value or {})


_OPEN = {
    "queued": "no worker has started it yet",
    "running": "a process is running it",
    "interrupted": "its process has ended; the recorded results are kept",
    "rewound": "the later results were discarded, the earlier ones are kept; a resume continues from there",
}


def state_of(info: RunInfo, entries: Sequence[Entry]) -> str:
    """Return the status of a run, or `rewound` if it waits for a resume because a person rewound it."""
    return "rewound" if info.status == "interrupted" and can_be_undone(entries) else info.status


def recorded_result(info: RunInfo, entries: Sequence[Entry], detail: str = "") -> Result:
    """Return the Result of a recorded run.

    A run that has not ended counts as cancelled, with `detail`; its output is the best so far.
    """
    replay = RecordedRun(surviving(entries))
    loops = _loops(info, replay)
    end = replay.ended.get("") or None
    if end is None and info.status == Status.SUSPENDED:
        suspended = (e.value for e in reversed(entries) if e.kind == "suspended" and not e.path)
        end = next(suspended, None)
    # The outermost loop has the name of the step.
    own = loops.get(end["name"] if end is not None else info.step)
    workspace = _workspace(info.step, replay) or (own.workspace if own is not None else None)
    if end is not None:
        result = ended_result(info.run_id, replay, end, loops)
        return replace(result, workspace=workspace, request=end.get("request"))
    # A Result needs a status of an end; readers of JSON get the real status from `recorded_json`.
    state = state_of(info, entries)
    stop = Stop(Reason.CANCELLED, detail or _OPEN.get(state, "the run has not ended"))
    outputs = (loop.output for loop in reversed(loops.values()) if loop.output is not None)
    return Result(
        **_ended_by(stop),
        output=own.output if own else next(outputs, None),
        usage=replay.spent(""),
        name=info.step,
        loops=loops,
        seconds=max(info.active, replay.active),
        outcomes=replay.outcomes(),
        history=own.history if own is not None else History(),
        run_id=info.run_id,
        judging=replay.judging,
        agents=replay.reported(),
        items=own.items if own is not None else (),
        total=replay.iterations,
        workspace=workspace,
    )


def _workspace(path: str, replay: RecordedRun) -> Mapping[str, Json] | None:
    """Return where the files of a workflow with a workspace are, as in its result."""
    names = ("workspace", "placed", "merged")
    entries = [replay.finished.get(f"{path}/{name}") for name in names]
    values = [entry.value for entry in entries if entry is not None]
    if len(values) < len(names) or "folder" not in values[0]:
        return None
    begun, placed, merged = values
    where = {"folder": begun["folder"], "base": begun["commit"], "iteration": 0}
    return {**where, **{key: placed[key] for key in ("commit", "tree")}, **merged}


def _loops(info: RunInfo, replay: RecordedRun) -> LoopResults:
    """Return the loops of a run, ended ones first, in the order of their ends."""
    loops = LoopResults()
    loops.lists = frozenset(replay.lists())
    ended_paths = [path for path in replay.ended if path]
    for path in [*ended_paths, *(path for path in replay.records if path not in replay.ended)]:
        if case_path(path):
            continue
        if (end := replay.ended.get(path)) is not None:
            loops.keep(path, loop_result(info.run_id, replay, path, end))
            continue
        history, explored = replay.history(path)
        stop = Stop(Reason.CANCELLED, f"the loop has not ended; the run is {info.status}")
        result = Result(
            **_ended_by(stop),
            output=history.best.output if history.best else None,
            history=history,
            usage=replay.spent(path),
            run_id=info.run_id,
            name=path.rsplit("/", 1)[-1],
            seconds=history.elapsed,
            explored_iterations=explored,
            items=replay.table(path),
            error=failure_of(stop, history),
        )
        loops.keep(path, result)
    return loops


def _ended_by(stop: Stop) -> dict[str, Any]:
    return {"status": stop.reason.status, "reason": stop.reason, "detail": stop.detail}


def ended_result(
    run_id: str, replay: RecordedRun, ended: Json, loops: Mapping[str, Result]
) -> Result:
    """Return the result in the entry of a run's end, with values without their declared types."""
    stop, own = Stop.from_json(ended["stop"]), loops.get(ended["name"])
    return Result(
        stop.reason.status,
        stop.reason,
        stop.detail,
        ended["output"],
        own.history if own is not None else History(),
        usage=Usage.from_json(ended["usage"]),
        run_id=run_id,
        name=ended["name"],
        also=stop.also,
        loops={name: loops[name] for name in ended["loops"] if name in loops},
        steps=ended["steps"],
        warnings=tuple(ended["warnings"]),
        seconds=ended["seconds"],
        judging=replay.judging,
        reported_score=own.reported_score if own is not None else None,
        held_out=own.held_out if own is not None else None,
        explored_iterations=explored_by(own, loops),
        agents=replay.reported(),
        outcomes=replay.outcomes(ended["steps"]),
        total=replay.iterations,
        items=own.items if own is not None else (),
        error=Failure.from_json(ended.get("error")),
        workspace=ended.get("workspace"),
    )


def loop_result(run_id: str, replay: RecordedRun, path: str, value: Json) -> Result:
    """Return the result in the entry of a loop's end, with values without their declared types."""
    history, explored = replay.history(path)
    stop = Stop.from_json(value["stop"])
    return Result(
        stop.reason.status,
        stop.reason,
        stop.detail,
        value["output"],
        history,
        usage=replay.spent(path),
        run_id=run_id,
        name=value["name"],
        also=stop.also,
        seconds=history.elapsed,
        reported_score=value.get("reported_score"),
        held_out=value.get("held_out"),
        explored_iterations=explored,
        items=replay.table(path),
        error=failure_of(stop, history),
        workspace=value.get("workspace"),
    )
