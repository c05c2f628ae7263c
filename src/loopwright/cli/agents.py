"""What `show` says of the agents in a run."""

from __future__ import annotations

from collections.abc import Sequence

from ..codec import Json
from ..journal import Entry, RunInfo, surviving
from . import texts
from .output import Output

__all__ = ["executions_in", "tell_agents"]


def executions_in(info: RunInfo, entries: Sequence[Entry]) -> list[dict[str, Json]]:
    """Return the executions of reasoning agents in a run, as JSON."""
    if not any(entry.path.endswith("/begin") for entry in entries):
        return []  # only a run with agents pays for loading them
    from ..agents.executions import execution_of

    return [one.to_json() for one in execution_of(info, entries)]


def tell_agents(info: RunInfo, entries: Sequence[Entry], output: Output) -> None:
    """Write a line for each agent: how far it came, and what ended it."""
    for entry in surviving(entries):
        if entry.kind == "reported" and entry.value.get("kind") == "phased":
            _line(entry.path, _phased(entry.value), output)
    for found in executions_in(info, entries):
        _line(found["path"], _reasoned(found), output)


def _line(path: str, said: str, output: Output) -> None:
    output.say(("agent ", "dim"), path.rpartition("/")[2], f": {texts.one_line(said)}", wrap=True)


def _phased(report: Json) -> str:
    done = ", ".join(f"{phase} {count}" for phase, count in report["phase_iterations"].items())
    cap, total = report["max_iterations_effective"], report["phase_sum"]
    ended = f"ended in {report['phase']} by {report['ended_by']}"
    return f"{done}; {report['total_iterations']} of at most {cap} (the phases: {total}); {ended}"


def _reasoned(found: Json) -> str:
    said = f"{found['status']}, {texts.plural(found['interaction_count'], 'interaction')}"
    if found["last_interaction_at"] is not None:
        said += f", the last {texts.when(found['last_interaction_at'])}"
    if found["limit_reached"]:
        said += "; its limit was reached without a final answer"
    return f"{said}; {found['error']}" if found["error"] else said
