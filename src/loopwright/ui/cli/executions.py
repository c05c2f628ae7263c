"""What `show` says of the agents in a run, and `runs --executions` of those in many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import ConfigurationError, RunNotFound, nearest
from ...journal import Entry, Journal, RunInfo, surviving
from ...records.codec import Json, text_of
from .. import formatting as texts
from ..journals import reading, shown_url
from ..run_summary import executions_in
from .output import Output

if TYPE_CHECKING:
    from ...agents.reasoning.executions import Execution

__all__ = ["list_executions", "tell_agents"]


def list_executions(url: str, limit: int, name: str, status: str, *, as_json: bool) -> int:
    """Write the executions of agents in the latest runs, a line each, newest run first."""
    from ...agents.reasoning.executions import STATUSES, execution_of

    if status and status not in STATUSES:
        hint = nearest(status, STATUSES) or f"; those of executions are {', '.join(STATUSES)}"
        raise ConfigurationError(f"--status: {status!r} is no status of an execution{hint}")

    async def found_in(store: Journal) -> list[Execution]:
        rows = await store.runs(limit=limit, name=name)
        every = [one for r in rows for one in execution_of(r, await store.entries(r.run_id))]
        return [one for one in every if not status or one.status == status]

    with Output(as_json=as_json) as output:
        try:
            found = reading(url, found_in)
        except RunNotFound:  # no journal yet
            found = []
        if as_json:
            output.give({"executions": [one.to_json() for one in found]})
        elif not found:
            output.note(f"no executions of agents in {shown_url(url)}")
        for one in [] if as_json else found:
            _row(one, output)
    return 0


def _row(one: Execution, output: Output) -> None:
    prompt, result = texts.one_line(one.prompt), texts.one_line(one.error or text_of(one.result))
    begun = texts.when(one.started_at) if one.started_at is not None else ""
    counted = f"{texts.plural(one.interaction_count, 'interaction'):>15}"
    head = f"{one.run_id}  {one.status:9}  {one.agent}  {counted}  {begun}  "
    said = texts.fit(f"{prompt} -> {result}", max(10, output.width - len(head)), output.signs)
    output.say((one.run_id, "bold"), head.removeprefix(one.run_id), (said, "dim"))


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
