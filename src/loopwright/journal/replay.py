"""What a resumed run already knows: an index of its journal, made once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..records import (
    NOTHING,
    Evaluation,
    ItemOutcome,
    Iteration,
    StepOutcome,
    Stop,
    Usage,
    as_evaluation,
    is_judging,
    item_outcomes,
)
from ..records.codec import Json
from . import Entry, is_note

__all__ = ["RecordedRun"]


class RecordedRun:
    """An index over the entries of a run.

    `finished` holds effects with an outcome, `doubts` intents without one (their call may have been
    made and billed), `rounds` the iterations of each loop, `ended` how loops ended, `answers` what
    people answered, `asked` what they were asked, `raised` the limits of loops (of the run: "") that
    they raised, `accepted` the fingerprints that were accepted in place of recorded ones, `warnings`
    what was warned of, `reports` what agents said of their end, `steps` how the steps of the workflow
    ended. A record that a person edited is kept as edited.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.finished: dict[str, Entry] = {}
        self.doubts: dict[str, Entry] = {}
        self.rounds: dict[str, list[Entry]] = {}
        self.ended: dict[str, Json] = {}
        self.answers: dict[str, Json] = {}
        self.asked: dict[str, Entry] = {}
        self.raised: dict[str, dict[str, Any]] = {}
        self.accepted: dict[str, str] = {}
        self.warnings: list[str] = []
        self.reports: dict[str, Json] = {}
        self.steps: dict[str, Entry] = {}
        self.active = 0.0
        self.judging = NOTHING  # the part of what was spent that went into judging
        self.repeated: dict[str, int] = {}  # effects begun again after a crash or a cut, how often
        self._spent: dict[str, Usage] = {}
        self._effects: dict[str, int] | None = None
        self._began: dict[str, float] = {}
        for entry in entries:
            self._add(entry)
        for path, entry in self.doubts.items():
            self._spend(path, entry.reserved.at_most())  # an unsettled intent counts as spent

    def _add(self, entry: Entry) -> None:
        kind, path = entry.kind, entry.path
        # A round is recorded at its end; its seconds are those of its loop until then.
        ended = entry.at if kind == "iteration" else entry.at + entry.seconds
        self.active = max(self.active, ended)
        if kind == "started":
            if path in self.doubts:  # tried again after an earlier crash: both may have been billed
                self.repeated[path] = self.repeated.get(path, 0) + 1
                self._spend(path, self.doubts[path].reserved.at_most())
                self.answers.pop(path, None)  # it was about the attempt before
                self.asked.pop(path, None)
            self.doubts[path] = entry
            for above in _ancestors(path):
                self._began.setdefault(above, entry.at)
        elif kind == "finished":
            self.doubts.pop(path, None)
            self.finished[path] = entry
            self._spend(path, entry.usage)
        elif kind == "cut":  # settled, but what it did to the world is not known
            self._spend(path, entry.usage)
            if entry.value is None:
                self.doubts[path] = entry
            else:  # it left of itself, to ask: its next attempt begins anew
                self.doubts.pop(path, None)
        elif kind == "iteration":
            self.rounds.setdefault(path, []).append(entry)
        elif kind == "ended":
            self.ended[path] = entry.value
        elif kind == "asked":
            self.asked[path] = entry
        elif kind == "answered":
            self.answers[path] = entry.value
            if path in self.asked:
                self._heed(self.asked[path].value["request"], entry.value)
        elif kind == "accepted" and entry.value is None:
            self.accepted[path] = entry.fingerprint
        elif kind == "accepted":
            self.raised.setdefault(path, {}).update(entry.value)
        elif kind == "warned":
            self.warnings.append(entry.value)
        elif kind == "reported":
            self.reports[path] = entry.value
        elif kind == "step":
            self.steps[path] = entry

    def _heed(self, request: Json, answer: Json) -> None:
        """Take up what an answer says about a loop: its limit, or its latest record."""
        kind = request.get("kind")
        if kind not in ("limit", "iteration") or "loop" not in request:
            return  # a step's own question
        loop, number = request["loop"], request["iteration"]
        if kind == "limit" and answer["approve"]:
            most = number + answer["more"]
            self.raised.setdefault(loop, {})["max_iterations"] = most
        elif kind == "iteration" and not {"output", "feedback"}.isdisjoint(answer):
            last = self.rounds[loop][-1]
            edited = Entry("iteration", loop, last.at, seconds=last.seconds, seq=last.seq)
            edited.value = _edited(last.value, answer)
            self.rounds[loop][-1] = edited

    def _spend(self, path: str, usage: Usage) -> None:
        if usage:
            if is_judging(path):
                self.judging += usage
            for above in _ancestors(path):
                self._spent[above] = self._spent.get(above, NOTHING) + usage

    def items(self, path: str) -> list[Json]:
        """Return the items of the list at a path; none if it is no list, or has not read them."""
        found = self.finished.get(f"{path}/items")
        read = found is not None and found.error is None and isinstance(found.value, list)
        return list(found.value) if found is not None and read else []

    def lists(self) -> Iterator[str]:
        """Iterate over the paths of its lists; of what has no rounds, some are no lists."""
        ends = "/items"
        return (path.removesuffix(ends) for path in self.finished if path.endswith(ends))

    @property
    def iterations(self) -> int:
        """How many iterations are recorded: those of all its loops, and the items of its lists."""
        return sum(len(found) for found in self.rounds.values())

    def outcomes(self, outputs: Mapping[str, Json] | None = None) -> dict[str, StepOutcome]:
        """Return how the steps of the workflow ended, by name; `outputs` are those that are known."""
        found = {}
        for path, entry in self.steps.items():
            name = str(entry.value["step"])
            if (stop := entry.value.get("stop")) is None:
                found[name] = StepOutcome(name)
                continue
            of = Stop.from_json(stop)
            known = (outputs or {}).get(name, self._output(path))
            found[name] = StepOutcome(
                name=name,
                status=of.reason.status,
                reason=of.reason,
                detail=of.detail,
                seconds=entry.value["seconds"],
                output=known,
                items=self.table(path),
            )
        return found

    def table(self, path: str) -> tuple[ItemOutcome, ...]:
        """Return the item table of the list at a path; empty if it is no list."""
        items = self.items(path)
        return item_outcomes(items, [e.value for e in self.rounds.get(path, ())]) if items else ()

    def _output(self, path: str) -> Json:
        """Return the output that is recorded of the step at a path, where its kind records one."""
        if path in self.ended:
            return self.ended[path]["output"]
        for part in ("", *("/" + word for word in _IN_PLACE)):
            if (entry := self.finished.get(path + part)) is not None:
                return entry.value
        return None

    def reported(self) -> dict[str, Json]:
        """Return what agents reported, by name: the last report of each."""
        return {str(report["name"]): report for report in self.reports.values()}

    def spent(self, path: str) -> Usage:
        """Return what was spent at and under a path; "" is the whole run."""
        return self._spent.get(path, NOTHING)

    def effects(self, path: str) -> int:
        """Return how many effects began at and under a path, notes left out."""
        if self._effects is None:  # only who limits them counts them
            self._effects = {}
            for known in (self.finished, self.doubts):
                for place, entry in known.items():
                    if not is_note(entry.fingerprint):
                        for above in _ancestors(place):
                            self._effects[above] = self._effects.get(above, 0) + 1
        return self._effects.get(path, 0)

    def began(self, path: str) -> float | None:
        """Return the active second at which the first effect under a path was started."""
        return self._began.get(path)


_IN_PLACE = ("do", "try", "within", "attempt-1")  # where a step stands that another is around


def _edited(record: Iteration, answer: Mapping[str, Json]) -> Iteration:
    """Return a record with the output or feedback that a person wrote; its score stays."""
    output = answer.get("output", record.output)
    evaluation, error = record.evaluation, record.error
    if "feedback" in answer:
        if error is not None:
            error = replace(error, message=answer["feedback"])
        else:
            evaluation = as_evaluation({**_judged(evaluation), "feedback": answer["feedback"]})
    return replace(record, output=output, evaluation=evaluation, error=error)


def _judged(evaluation: Evaluation | None) -> dict[str, Json]:
    return {} if evaluation is None else dict(evaluation.to_json())


def _ancestors(path: str) -> Iterator[str]:
    yield path
    end = path.rfind("/")
    while end > 0:
        yield path[:end]
        end = path.rfind("/", 0, end)
    yield ""
