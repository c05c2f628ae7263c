"""The steps of a workflow, and the effects of a run, as rows of the run's page."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...journal import Entry
from ...journal.views import RunView
from ...records import Status, StepOutcome
from ...records.codec import Json, text_of
from .. import formatting as texts
from .render import cut, readable

SHOWN = 20_000  # characters of a value; the export has all
MAX_ENTRIES = 4_000  # of a run with loops whose steps are shown; reading more is slow


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step as a row: name, status, reason, duration, output."""

    name: str
    status: str
    detail: str
    seconds: str
    output: str


def steps_of(view: RunView) -> list[StepRow]:
    """Return the steps of the workflow of a run, in the order of their ends.

    A single step that is a loop is shown as a loop, not here.
    """
    loops = view.loops()
    # The steps of such a run are read one by one from all its entries; the loops show the same facts.
    if loops and view.last > MAX_ENTRIES:
        return []
    steps = [_step(outcome) for outcome in view.steps()]
    return steps if len(steps) > 1 or not loops else []


def _step(outcome: StepOutcome) -> StepRow:
    detail = "" if outcome.status in (None, Status.SATISFIED) else outcome.detail
    took = texts.duration(outcome.seconds) if outcome.status is not None or outcome.seconds else ""
    status = texts.status_of_step(outcome)
    return StepRow(outcome.name, status, detail, took, cut(readable(outcome.output), SHOWN))


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect: start, duration, cost, the messages to a model, the result."""

    path: str
    at: float
    took: str
    cost: str
    kind: str
    start: float
    length: float
    messages: list[tuple[str, str]]
    result: str
    calls: list[str]
    error: str
    traceback: str = ""

    @property
    def failed(self) -> str:
        """The first line of its error."""
        return self.error.partition("\n")[0][:160]

    @property
    def outcome(self) -> str:
        """The beginning of its result."""
        return {"cut": "cut short", "doubt": "in flight"}.get(self.kind, self.result[:120])

    @property
    def facts(self) -> str:
        """Its duration and its cost."""
        return ", ".join(part for part in (self.took, self.cost) if part)


def effects_of(entries: list[Entry], active: float, under: str = "") -> list[Effect]:
    """Return the effects among entries, in the order of their starts, with paths relative to `under`."""
    started: dict[str, Entry] = {}
    ended: dict[str, Entry] = {}
    for entry in entries:
        if entry.kind == "started":
            started[entry.path] = entry
        elif entry.kind in ("finished", "cut"):
            ended[entry.path] = entry
    # Not 0, because the positions in the timeline are shares of it.
    total = max(active, max((e.at + e.seconds for e in ended.values()), default=0.0), 0.001)
    paths = dict.fromkeys([*started, *ended])
    effects = [
        replace(
            _effect(path, started.get(path), ended.get(path), total), path=path.removeprefix(under)
        )
        for path in paths
    ]
    return sorted(effects, key=lambda effect: effect.at)


def _effect(path: str, start: Entry | None, end: Entry | None, total: float) -> Effect:
    first = start or end
    assert first is not None
    kind = "doubt" if end is None else end.kind
    length = end.seconds if end is not None else total - first.at
    usage = end.usage if end is not None else first.reserved
    if end is not None and end.error is not None:
        kind = "failed"
    result, calls = _result(end.value if end is not None else None)
    failure = end.error if end is not None else None
    return Effect(
        path=path,
        at=first.at,
        took=texts.duration(length) if end is not None else "",
        cost=texts.cost(usage),
        kind=kind,
        start=min(1.0, first.at / total),
        length=min(1.0, max(0.0, length) / total),
        messages=_messages(start.value if start is not None else None),
        result=result,
        calls=calls,
        error=failure.message if failure is not None else "",
        traceback=failure.traceback if failure is not None else "",
    )


def _messages(value: Json) -> list[tuple[str, str]]:
    """Return the messages of a model call: role and text."""
    if not isinstance(value, dict) or not isinstance(value.get("roles"), list):
        return []
    messages = [
        (str(role), cut(text_of(value.get(f"text-{number}")), SHOWN))
        for number, role in enumerate(value["roles"], start=1)
    ]
    return [
        (f"{role} to {value.get('model')}" if role == "user" else role, text)
        for role, text in messages
    ]


def _result(value: Json) -> tuple[str, list[str]]:
    """Return the result of an effect: a model's text or a value, and the tool calls in it."""
    if isinstance(value, dict) and "finish" in value and "text" in value:
        calls = value.get("tool_calls") or []
        return cut(text_of(value["text"]), SHOWN), [text_of(call) for call in calls]
    return cut(readable(value), SHOWN), []
