"""What a resumed run already knows: an index of its journal, made once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from .codec import Json
from .journal import Entry
from .records import NOTHING, Evaluation, Iteration, Usage, as_evaluation, is_judging

__all__ = ["Replay"]


class Replay:
    """An index over the entries of a run.

    `finished` holds effects with an outcome, `doubts` intents without one (their call may have been
    made and billed), `rounds` the iterations of each loop, `ended` how loops ended, `answers` what
    people answered, `asked` what they were asked, `raised` the limits of loops (of the run: "") that
    they raised, `warnings` what was warned of, `reports` what agents said of
    their end. A record that a person edited is kept as edited.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.finished: dict[str, Entry] = {}
        self.doubts: dict[str, Entry] = {}
        self.rounds: dict[str, list[Entry]] = {}
        self.ended: dict[str, Json] = {}
        self.answers: dict[str, Json] = {}
        self.asked: dict[str, Entry] = {}
        self.raised: dict[str, dict[str, Any]] = {}
        self.warnings: list[str] = []
        self.reports: dict[str, Json] = {}
        self.active = 0.0
        self.judging = NOTHING  # the part of what was spent that went into judging
        self._spent: dict[str, Usage] = {}
        self._began: dict[str, float] = {}
        for entry in entries:
            self._add(entry)
        for path, entry in self.doubts.items():
            self._spend(path, entry.reserved)  # an unsettled intent counts as spent

    def _add(self, entry: Entry) -> None:
        kind, path = entry.kind, entry.path
        # A round is recorded at its end; its seconds are those of its loop until then.
        ended = entry.at if kind == "iteration" else entry.at + entry.seconds
        self.active = max(self.active, ended)
        if kind == "started":
            if path in self.doubts:  # tried again after an earlier crash: both may have been billed
                self._spend(path, self.doubts[path].reserved)
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
        elif kind == "accepted" and entry.value is not None:
            self.raised.setdefault(path, {}).update(entry.value)
        elif kind == "warned":
            self.warnings.append(entry.value)
        elif kind == "reported":
            self.reports[path] = entry.value

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

    def reported(self) -> dict[str, Json]:
        """Return what agents reported, by name: the last report of each."""
        return {str(report["name"]): report for report in self.reports.values()}

    def spent(self, path: str) -> Usage:
        """Return what was spent at and under a path; "" is the whole run."""
        return self._spent.get(path, NOTHING)

    def began(self, path: str) -> float | None:
        """Return the active second at which the first effect under a path was started."""
        return self._began.get(path)


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
