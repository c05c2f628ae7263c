"""A recorded run as commands and pages show it: its facts, its sessions of coding agents, and why it waits."""

from __future__ import annotations

import operator
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import agents
from ..errors import ConfigurationError
from ..journal import Entry, Journal, RunInfo, surviving
from ..journal.questions import PAUSED, Question, open_questions
from ..journal.replay import RecordedRun, recorded_result
from ..journal.views import directly
from ..records import NOTHING, Iteration, Result, Status, Usage
from ..records.codec import Json, text_of
from . import formatting as texts
from .journals import files_line, find_run, folder_of
from .run_files import in_place, names_text, turned_tests, uncommitted_text

if TYPE_CHECKING:
    from ..cluster.shared_runs import SharedRuns

__all__ = [
    "SessionCost",
    "sessions_in",
]


@dataclass(frozen=True, slots=True)
class SessionCost:
    """One session of a coding agent.

    Args:
        agent: the name of the agent.
        session: the ID that the agent uses.
        calls: the calls that continued it.
        turns: the turns of all calls.
        usage: the tokens and the cost of all calls.
    """

    agent: str
    session: str
    calls: int
    turns: int
    usage: Usage

    @property
    def text(self) -> str:
        """The numbers in words, such as `2 calls, 14 turns, $0.74`."""
        parts = [texts.plural(self.calls, "call"), texts.plural(self.turns, "turn")]
        if self.usage.usd or self.usage.tokens:
            parts.append(texts.cost(self.usage))
        return ", ".join(parts)

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        numbers = {"calls": self.calls, "turns": self.turns, "usage": self.usage.to_json()}
        return {"agent": self.agent, "session": self.session, **numbers}


def sessions_in(entries: Iterable[Entry]) -> list[SessionCost]:
    """Return the sessions of agents in a run, in the order of their first calls."""
    found: dict[tuple[str, str], SessionCost] = {}
    for entry in surviving(list(entries)):
        record = entry.value
        if entry.kind != "finished" or not isinstance(record, dict) or "session_key" not in record:
            continue
        key = (str(record["program"]), str(record["session"]))
        known = found.get(key, SessionCost(*key, 0, 0, NOTHING))
        turns = known.turns + int(record["turns"])
        found[key] = SessionCost(*key, known.calls + 1, turns, known.usage + entry.usage)
    return list(found.values())


# The recorded name of the document of `until`, which no file has.
UNTIL_DOCUMENT = ".loopwright-until.yaml"


async def on_record(store: Journal, name: str) -> tuple[RunInfo, list[Entry]]:
    """Return a run and its entries, by its ID, the beginning of the ID, or `last`."""
    info = await find_run(store, name)
    entries = await store.entries(info.run_id)
    return in_place(info, entries, folder_of(store)), entries


def origin_of(info: RunInfo) -> str:
    """Return the document, the Python step or the command of a run."""
    file = text_of(info.source.get("file") or "")
    if Path(file).name == UNTIL_DOCUMENT:
        return "loopwright until"
    return file or text_of(info.source.get("python") or info.source.get("program") or "")


def ended(entries: Sequence[Entry]) -> bool:
    """Return whether the run has ended."""
    return any(entry.kind == "ended" and not entry.path for entry in surviving(entries))


FIRST = 20  # entries, among which is the first case of an evaluation
_CASE = re.compile(r"[^/]+(?:/eval)?/cases/s[0-9]+/.+")


def is_evaluation(entries: Sequence[Entry]) -> bool:
    """Return whether the entries of a run, or its first ones, are those of an evaluation of a data set."""
    return any(_CASE.fullmatch(entry.path) for entry in entries[:FIRST])


def result_json(result: Result, questions: Sequence[Question] = ()) -> dict[str, Json]:
    """Return the object of `run --json`; for a suspended run, with its open questions."""
    data: dict[str, Json] = dict(result.to_json())
    if questions:
        data["questions"] = [question.to_json() for question in questions]
    return {**data, "request": dict(result.request)} if result.request else data


def recorded_json(info: RunInfo, entries: Sequence[Entry]) -> dict[str, Json]:
    """Return the object of `show --json`: that of `run --json` with the facts of the run's row.

    A run that has not ended has the status `running` or `interrupted`, and no reason.
    """
    data = result_json(recorded_result(info, entries), open_questions(surviving(entries)))
    # A suspended run has a status of `Status` although it has not ended.
    if not ended(entries) and info.status not in list(Status):
        data |= {"status": info.status, "reason": None}
    row = info.to_json()
    if executions := executions_in(info, entries):
        data["executions"] = executions
    if sessions := sessions_in(entries):
        data["sessions"] = [one.to_json() for one in sessions]
    if (coding := coding_of(info, entries)) is not None:
        data["coding"] = coding.to_json()
    extra = ("name", "input", "created", "updated", "active", "source", "fingerprint")
    return {**data, **{key: row[key] for key in extra}}


def iterations_of(entries: Sequence[Entry]) -> dict[str, list[Iteration]]:
    """Return the iterations of each loop by its path, with the edits of people.

    The loops are in the order of their first iterations, and the items of a list in that of their numbers.
    """
    loops = RecordedRun(surviving(entries)).records
    number = operator.attrgetter("number")
    return {path: sorted((e.value for e in own), key=number) for path, own in loops.items()}


def items_of_lists(entries: Sequence[Entry]) -> dict[str, list[Json]]:
    """Return the items of each list by its path."""
    replay = RecordedRun(surviving(entries))
    return {path: replay.items(path) for path in replay.lists()}


TREES = "trees"  # the folder of copies
_MAX_TESTS = 10  # names of tests in a line


@dataclass(frozen=True, slots=True)
class CodingSummary:
    """What a loop that edits files did.

    Args:
        check: the command of its check; "" if it has none.
        agents: what edited the files, with its sessions and what they cost.
        iteration: the number of the iteration whose files are the result; 0 is the start.
        verdict: the first line of what the check says of these files.
        fixed: the tests that pass now and failed at the start.
        broken: the tests that fail now and passed at the start.
    """

    check: str
    agents: Sequence[str]
    iteration: int
    verdict: str
    fixed: Sequence[str]
    broken: Sequence[str]

    def lines(self) -> Iterator[tuple[str, str]]:
        """Iterate over (title, text) of the facts that are known."""
        for text in self.agents:
            yield "agent", text
        if self.check:
            yield "check", f"{self.check}{self.verdict and f': {self.verdict}'}"
        for title, names in (("turned green", self.fixed), ("turned red", self.broken)):
            if names:
                more = f" and {len(names) - _MAX_TESTS} more" if len(names) > _MAX_TESTS else ""
                yield f"tests that {title}", f"{', '.join(names[:_MAX_TESTS])}{more}"

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {
            "check": self.check,
            "agents": list(self.agents),
            "iteration": self.iteration,
            "verdict": self.verdict,
            "fixed": list(self.fixed),
            "broken": list(self.broken),
        }


def coding_of(info: RunInfo, entries: Sequence[Entry]) -> CodingSummary | None:
    """Return what the first loop of a run that edits files did; None without one."""
    declared = (info.source.get("bounds") or {}).get("loops") or ()
    loop = next((one for one in declared if one.get("runs")), None)
    if loop is None:
        return None
    kept = surviving(entries)
    paths = [e.path for e in kept if e.path.rpartition("/")[2] == loop["name"]]
    path = paths[-1] if paths else ""
    items = iterations_of(kept).get(path, [])
    placed = [e.value for e in kept if e.kind == "finished" and e.path == f"{path}/placed"]
    number = placed[-1].get("iteration", 0) if placed else len(items)
    chosen = next((item for item in items if item.number == number), None)
    start = directly(kept, path, 0)
    at_start = [e.value for e in start if e.kind == "finished" and e.path.endswith("/evaluate")]
    fixed, broken = turned_tests(None, chosen, start) if chosen is not None else ([], [])
    feedback = chosen.feedback if chosen is not None else ""
    if chosen is None and at_start and isinstance(at_start[-1], dict):
        feedback = text_of(at_start[-1].get("feedback") or "")
    runs, sessions = loop["runs"], sessions_in(kept)
    # The step of `until` is a script around the command of the user.
    words = text_of(runs.get("execute", ""))
    agent = words if sessions else text_of(info.source.get("agent") or words)
    return CodingSummary(
        texts.one_line(text_of(runs.get("evaluate", ""))),
        [texts.one_line(f"{agent}, session {one.session[:12]}: {one.text}") for one in sessions]
        or [texts.one_line(agent)],
        number,
        texts.one_line(feedback.partition("\n")[0]),
        fixed,
        broken,
    )


@dataclass(frozen=True, slots=True)
class HandedOver:
    """One way in which the files of a run were handed over.

    Args:
        label: `branch`, `patch`, `applied` or `or`; "" for a warning.
        text: the branch, the file, or the sentence.
        command: the command that takes it, "" if none is needed.
        problem: what is wrong with these files, "" if nothing is.
    """

    label: str
    text: str
    command: str = ""
    problem: str = ""


def workspaces_of(result: Result) -> list[Mapping[str, Json]]:
    """Return where the files of a result are; a loop may have the workspace in place of its document."""
    own = [loop.workspace for loop in result.loops.values() if loop.workspace]
    return [result.workspace] if result.workspace else own


def handed_over(workspace: Mapping[str, Json], result: Result) -> list[HandedOver]:
    """Return how the files of a workspace were handed over, with the commands that take them."""
    folder = Path(text_of(workspace.get("folder", "")))
    failing = failing_text(workspace, result)
    conflicts = workspace.get("conflicts")
    found = []
    if branch := texts.one_line(text_of(workspace.get("branch", ""))):
        command = f"git merge {shlex.quote(branch)}"
        if (dirty := workspace.get("uncommitted")) and folder.parent.parent.name == TREES:
            found.append(HandedOver("", uncommitted_text(dirty)))
            command = files_line("apply", result.run_id, folder)
        found.append(HandedOver("branch", branch, texts.one_line(command), failing))
    if conflicts:
        both = (
            f"you and the run both changed {names_text(conflicts)}; none of your files was changed"
        )
        found.append(HandedOver("", f"not applied: {both}"))
    if patch := texts.one_line(text_of(workspace.get("patch", ""))):
        # Where both changed a file, it writes the parts that do not fit beside it.
        reject = "--reject " if conflicts else ""
        found.append(HandedOver("patch", patch, f"git apply {reject}{shlex.quote(patch)}", failing))
    if conflicts and (folder / ".git").exists():
        command = files_line("branch", result.run_id, folder)
        found.append(HandedOver("or commit your edits, and git merge the branch of", command))
    if "applied" in workspace:
        count = texts.plural(workspace["applied"], "file")
        found.append(HandedOver("applied", f"{count} of yours changed"))
    return found


def failing_text(workspace: Mapping[str, Json], result: Result) -> str:
    """Return what to say of files on which the check does not pass, else ""."""
    items = [item for one in (result, *result.loops.values()) for item in one.history]
    # The workspace of a document names no iteration.
    same = [item for item in items if (item.files or {}).get("tree") == workspace.get("tree")]
    return "; the check does not pass on it" if same and same[-1].passed is False else ""


def in_doubt(info: RunInfo, entries: Sequence[Entry]) -> list[str]:
    """Return the effects without an outcome that may have acted, so that a resume asks before it repeats them."""
    kept = surviving(entries)
    once = (info.source.get("bounds") or {}).get("once") or ()
    restored = [e.path.removesuffix("workspace") for e in kept if e.path.endswith("/workspace")]
    return [
        path
        for path, entry in RecordedRun(kept).unsettled.items()
        # The files of a workspace are put back first.
        if entry.fingerprint.partition(":")[0] in once and not path.startswith(tuple(restored))
    ]


def executions_in(info: RunInfo, entries: Sequence[Entry]) -> list[dict[str, Json]]:
    """Return the executions of reasoning agents in a run, as JSON."""
    # The first effect of an execution has this name, so other runs need not load the agents.
    if not any(entry.path.endswith("/begin") for entry in entries):
        return []
    return [one.to_json() for one in agents.execution_of(info, entries)]


@dataclass(frozen=True)
class Wait:
    """Why a run waits for a worker: the text, and the reason and number of its returns to the queue.

    `remedy` is the command that lets it start, if there is one: its name and its other words.
    """

    text: str
    reason: str = ""
    attempts: int = 0
    remedy: tuple[str, ...] = ()

    @property
    def cause(self) -> str:
        """The part that another attempt with the same result leaves unchanged."""
        return self.reason or self.text


Returns = Mapping[str, Wait]
"""Why runs wait, by run."""

_WAITING = ("queued", "interrupted")


def is_for_workers(info: RunInfo, url: str) -> bool:
    """Return whether workers continue a run: it was submitted, and its journal is one that they share."""
    return bool(info.queue) and url.startswith(("postgres:", "postgresql:"))


async def returns_of(store: Journal, rows: Sequence[RunInfo]) -> Returns:
    """Return why submitted runs among these have not continued; runs that only wait are left out."""
    waiting = [row for row in rows if row.queue and row.status in _WAITING]
    if not waiting:
        return {}
    # The package of workers takes a third of a second to load, which other runs do not need.
    from ..cluster.shared_runs import delay_text, open_runs

    try:
        runs = open_runs(store)
    except ConfigurationError:  # a journal of one machine, to which the run was copied
        return {}
    try:
        # A worker clears the time of a run that it takes, so an earlier return is not in force then.
        may_be = [row.run_id for row in waiting if row.status == "queued" or row.wake_at > 0]
        returned = await runs.returns(may_be)
        waits = {}
        for row in waiting:
            reason, attempts = returned.get(row.run_id, ("", 0))
            if text := delay_text(texts.one_line(reason), attempts, row.deliveries):
                waits[row.run_id] = Wait(text, reason, attempts)
        others = [row for row in waiting if row.run_id not in waits and not _is_later(row)]
        return waits | await _without_worker(runs, others)
    finally:
        await runs.close()


async def _without_worker(runs: SharedRuns, rows: Sequence[RunInfo]) -> dict[str, Wait]:
    """Return the runs among these that no active worker can take."""
    if not rows:
        return {}
    active = [worker for worker in await runs.workers() if worker.alive]
    paused = await runs.paused_queues()
    hosts = {run_id: host for host, ids in (await runs.pinned()).items() for run_id in ids}
    waits = {}
    for row in rows:
        able = [worker for worker in active if worker.serves(row.queue)]
        host = hosts.get(row.run_id, "")
        if not able:
            waits[row.run_id] = Wait(
                f"no worker serves the queue {row.queue}",
                remedy=("worker start", "--queue", row.queue),
            )
        elif row.queue in paused:
            waits[row.run_id] = Wait(
                f"the queue {row.queue} is paused",
                remedy=("worker queues", row.queue, "--continue"),
            )
        elif host and host not in {worker.host for worker in able}:
            waits[row.run_id] = Wait(f"its workspace is on {host}; it waits for a worker there")
    return waits


async def wait_of(store: Journal, info: RunInfo) -> Wait | None:
    """Return what a submitted run waits for that is not a person; None for a run that does not wait."""
    if info.status == "suspended" and info.wake_at:
        return Wait(
            f"suspended: {texts.one_line(info.detail)}; it starts at {texts.start(info.wake_at)}"
        )
    if info.status not in _WAITING:
        return None
    returns = await returns_of(store, [info])
    if text := waiting_text(info, returns):
        return replace(returns.get(info.run_id, Wait(text)), text=f"{info.status}: {text}")
    if info.status == "interrupted":
        return Wait("its worker ended; waiting for another worker")
    return Wait("waiting for a worker")


def waiting_text(info: RunInfo, returns: Returns) -> str:
    """Return why a submitted run waits: a reason of workers or its start time; else ""."""
    if not info.queue or info.status not in _WAITING:
        return ""
    if info.run_id in returns:
        return returns[info.run_id].text
    if info.wake_at == PAUSED:
        return "its schedule is paused"
    return f"it starts at {texts.start(info.wake_at)}" if _is_later(info) else ""


def submitted_json(info: RunInfo, returns: Returns) -> dict[str, Json]:
    """Return the facts of a submitted run that `show --json` adds; none for another run."""
    if not info.queue:
        return {}
    row = info.to_json()
    data = {key: row[key] for key in ("queue", "priority", "wake_at", "deliveries", "owner")}
    wait = returns.get(info.run_id)
    if wait is not None and wait.attempts:
        data["returned"] = {"reason": wait.reason, "attempts": wait.attempts}
    return data


def _is_later(row: RunInfo) -> bool:
    return row.wake_at > time.time()
