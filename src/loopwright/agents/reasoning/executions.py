"""Executions of reasoning agents, derived from the journal.

An execution begins with the effect `begin` at the path of the agent (task, settings and time). Its calls
are the attempts of models below that path. It ends with the report of the agent, or with the run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import ConfigurationError, nearest
from ...journal import Entry, Journal, RunInfo, surviving
from ...records.codec import Json, sanitised
from .completion import completion

__all__ = ["STATUSES", "Execution", "execution_of", "executions"]

STATUSES = ("pending", "running", "completed", "failed")
_ATTEMPT = re.compile(r"(?:.*/)?attempt-[0-9]+")


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a reasoning agent.

    Args:
        run_id: The ID of its run.
        path: Its path in the run.
        agent: The name of the agent.
        status: `pending` (no call was made yet, or the run waits or is interrupted), `running`,
            `completed` or `failed`.
        prompt: The task.
        result: The answer, or None.
        error: The sanitised error, or "" without one.
        interaction_count: The number of model calls.
        last_interaction_at, started_at, completed_at: Seconds since the epoch, or None. `completed_at`
            is never before `started_at`.
        iterations: The number of iterations.
        limit_reached: Whether the agent used all its iterations.
        input_params: The settings of the agent.
    """

    run_id: str
    path: str
    agent: str
    status: str
    prompt: str
    result: Json = None
    error: str = ""
    interaction_count: int = 0
    last_interaction_at: float | None = None
    started_at: float | None = None
    completed_at: float | None = None
    iterations: int = 0
    limit_reached: bool = False
    input_params: Mapping[str, Json] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {name: getattr(self, name) for name in self.__slots__} | {
            "input_params": dict(self.input_params)
        }


async def executions(
    journal: Journal, *, run_id: str = "", status: str = "", limit: int = 50
) -> list[Execution]:
    """Return the executions of the latest runs, newest run first, or those of one run.

    Args:
        journal: The journal of the runs.
        run_id: The ID of one run, or a unique prefix of it. Default: the latest runs.
        status: The status of the executions. Default: all.
        limit: The maximum of runs. Default: 50.

    Returns:
        The executions. Those of one run are in the order in which they began.

    Raises:
        RunNotFound: If there is no run `run_id`.
        ConfigurationError: For an unknown status.
    """
    if status and status not in STATUSES:
        hint = nearest(str(status), STATUSES)
        raise ConfigurationError(
            f"executions: status: {status!r} is none of {', '.join(STATUSES)}{hint}"
        )
    rows = [await journal.find(run_id)] if run_id else await journal.runs(limit=limit)
    every: list[Execution] = []
    for row in rows:
        every += execution_of(row, await journal.entries(row.run_id))
    return [one for one in every if not status or one.status == status]


def execution_of(info: RunInfo, entries: Sequence[Entry]) -> list[Execution]:
    """Return the executions in one run, in the order in which they began.

    Args:
        info: The row of the run.
        entries: Its entries.
    """
    entries = surviving(entries)  # without the entries that a rewind discarded
    ended = next((e for e in entries if e.kind == "ended" and not e.path), None)
    return [_execution(info, e, entries, ended) for e in entries if _begins(e)]


def _begins(entry: Entry) -> bool:
    value = entry.value
    return (
        entry.kind == "finished"
        and entry.path.endswith("/begin")
        and isinstance(value, dict)
        and value.get("kind") == "reasoning"
    )


def _execution(
    info: RunInfo, begun: Entry, entries: Sequence[Entry], ended: Entry | None
) -> Execution:
    path = begun.path.removesuffix("/begin")
    inside = [e for e in entries if e.path == path or e.path.startswith(f"{path}/")]
    calls = [e.at for e in inside if e.kind == "started" and _ATTEMPT.fullmatch(e.path)]
    # A resumed execution reports again; the last report counts.
    report = next((e.value for e in reversed(inside) if e.kind == "reported"), None)
    value = begun.value
    started = float(value["started_at"])
    common = {
        "run_id": info.run_id,
        "path": path,
        "agent": value["agent"],
        "prompt": value["prompt"],
        "started_at": started,
        "input_params": value["input_params"],
    }
    if report is not None:
        names = ("interaction_count", "last_interaction_at", "iterations", "limit_reached")
        return Execution(
            **common,
            **{name: report[name] for name in names},
            status=report["status"],
            result=report.get("result"),
            error=report.get("error", ""),
            completed_at=report["completed_at"],
        )
    records = [e for e in inside if e.kind == "iteration"]
    # Entries have active seconds, and the beginning has the only wall-clock time.
    last = started + max(0.0, max(calls, default=0.0) - begun.at) if calls else None
    status, error = _open_status(info, ended, bool(calls))
    return Execution(
        **common,
        status=status,
        error=error,
        interaction_count=len(calls),
        last_interaction_at=_latest(records, last),
        iterations=len(records),
        completed_at=max(started, info.updated) if ended is not None else None,
        # A run that still continues has no result yet.
        result=_best_effort(records) if ended is not None else None,
    )


def _best_effort(records: Sequence[Entry]) -> Json:
    """Return the result of an execution that a limit ended: the latest text, without the marker."""
    texts = [e.value.output for e in records if isinstance(e.value.output, str)]
    return (completion(texts[-1], lenient=True) or texts[-1].strip()) if texts else None


def _latest(records: Sequence[Entry], last: float | None) -> float | None:
    """Return the time of the latest call: of the last record, or of the last call that began."""
    recorded = [float((e.value.steps or {}).get("at") or 0.0) for e in records]
    return max([last, *recorded]) if last is not None else None


def _open_status(info: RunInfo, ended: Entry | None, called: bool) -> tuple[str, str]:
    """Return status and error of an execution without a report."""
    if ended is not None:
        return "failed", sanitised(f"{info.reason}: {info.detail}")
    return ("running" if called and info.status == "running" else "pending"), ""
