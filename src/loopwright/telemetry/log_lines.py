"""A run as log lines: one JSON object per journal entry."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from ..journal import Entry, RunInfo
from ..records import Iteration, Stop, Usage
from ..records.codec import Json
from ..records.redaction import Redactor
from .trace import active_seconds, attempt_of, content, span_id, trace_id

_REPLY_FIELDS = ("finish", "model", "provider")
Line = tuple[str, str, dict[str, Json]]


class LogLines:
    """Writes runs as lines of JSON. Pass it to `run(listeners=[…])`, for any number of runs.

    Every line has `time` (UTC), `level`, `message`, `event` (the kind of the entry), `run`, `run_id`,
    `trace_id`, `span_id` and `path`; further fields depend on the event.

    Args:
        write: called with each line, including its line end.
        capture: write inputs, outputs and feedback (default: False).
        redactor: removes secrets from every line (default: none).
        wall: returns seconds since the epoch (default: `time.time`).

    Example:
        >>> from loopwright import Loop, MaxIterations, MemoryJournal, run_sync
        >>> lines = []
        >>> loop = Loop(lambda n: n, lambda n: 0.5, until=MaxIterations(1), name="one")
        >>> result = run_sync(loop, 1, listeners=[LogLines(lines.append)], journal=MemoryJournal())
        >>> json.loads(lines[0])["run"]
        'one'
    """

    def __init__(
        self,
        write: Callable[[str], object],
        *,
        capture: bool = False,
        redactor: Redactor | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.write = write
        self.capture = capture
        self.redactor = redactor or Redactor()
        self.wall = wall

    def opened(self, info: RunInfo, recorded: Sequence[Entry]) -> Callable[[Entry], None]:
        """Return the receiver of the entries of a run that was just opened."""
        active = active_seconds(recorded)
        shift = self.wall() - active
        verb = "continues" if recorded else "begins"
        # Written with the first entry: a run that had ended before has no lines here.
        opening: list[Line] = [("info", f"{info.name} {verb}", {})]

        def receive(entry: Entry) -> None:
            while opening:
                self._line(info, shift + active, "opened", "", opening.pop())
            # Lines are written at the end of an effect, so they have the time of the end.
            at = entry.at if entry.kind == "iteration" else entry.at + entry.seconds
            self._line(info, shift + at, entry.kind, entry.path, self._describe(entry))

        return receive

    def _line(self, info: RunInfo, at: float, event: str, path: str, line: Line) -> None:
        level, message, more = line
        fields = {
            "time": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
            "level": level,
            "message": message,
            "event": event,
            "run": info.name,
            "run_id": info.run_id,
            "trace_id": f"{trace_id(info.run_id):032x}",
            "span_id": f"{span_id(info.run_id, info.epoch, path):016x}",
            "path": path,
            **more,
        }
        # Cleaned before it is encoded: escapes in JSON would hide a secret from the redactor.
        self.write(json.dumps(self.redactor.clean(fields), ensure_ascii=False, default=str) + "\n")

    def _describe(self, entry: Entry) -> Line:
        """Return the level, the message and the fields of a line."""
        if entry.kind == "finished":
            return self._effect(entry)
        if entry.kind == "iteration":
            return self._iteration(entry)
        if entry.kind in ("ended", "suspended"):
            return self._ended(entry)
        if entry.kind == "started":
            return "debug", f"{entry.path} begins", {}
        if entry.kind == "warned":
            return "warning", str(entry.value), {}
        if entry.kind in ("cut", "expired"):
            return "warning", f"{entry.path} was cut off", _used(entry.usage)
        return "info", f"{entry.kind} {entry.path}".strip(), {}

    def _effect(self, entry: Entry) -> Line:
        more: dict[str, Json] = {"seconds": round(entry.seconds, 6), **_used(entry.usage)}
        value = entry.value
        if isinstance(value, Mapping) and attempt_of(entry.path):
            more |= {name: value[name] for name in _REPLY_FIELDS if value.get(name)}
        if entry.error is not None:
            error = entry.error
            more["error"] = {"kind": error.kind, "message": error.message}
            return "warning", f"{entry.path} failed: {error.message}", more
        if self.capture:
            more["output"] = content(value.to_json() if hasattr(value, "to_json") else value)
        return "debug", f"{entry.path} is done", more

    def _iteration(self, entry: Entry) -> Line:
        record: Iteration = entry.value
        loop = entry.path.rpartition("/")[2]
        more: dict[str, Json] = {"loop": loop, "iteration": record.number}
        more |= {"score": record.score, "passed": record.passed}
        more |= {"seconds": round(record.seconds, 6), **_used(record.usage)}
        if self.capture:
            more |= {"input": content(record.input), "output": content(record.output)}
            more["feedback"] = content(record.feedback)
        if record.error is not None:
            error = record.error
            more["error"] = {"kind": error.kind, "message": error.message, "stage": error.stage}
            return "warning", f"{loop} {record.number} failed: {error.message}", more
        score = "not scored" if record.score is None else f"score {record.score:.3f}"
        verdict = {None: "", True: ", passed", False: ", not yet"}[record.passed]
        return "info", f"{loop} {record.number}: {score}{verdict}", more

    def _ended(self, entry: Entry) -> Line:
        stop = Stop.from_json(entry.value["stop"])
        name, status = entry.value.get("name", ""), stop.reason.status.value
        more: dict[str, Json] = {"status": status, "reason": stop.reason.value}
        more["detail"] = stop.detail
        more |= _used(Usage.from_json(entry.value.get("usage")))
        if self.capture:
            more["output"] = content(entry.value.get("output"))
        level = {"failed": "error", "satisfied": "info"}.get(status, "warning")
        return level, f"{name} {status}: {stop.detail or stop.reason.value}", more


def _used(usage: Usage) -> dict[str, Json]:
    return {"usage": usage.to_json()} if usage else {}
