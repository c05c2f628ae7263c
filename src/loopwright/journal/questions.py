"""Questions to people, the inbox of their answers, and the cancellation of runs that wait.

A run that needs a person is suspended, with its questions recorded (`asked`), each at a path. An
answer is recorded at the same path, by any process that can open the journal, at any later time. The
next resume continues with it. Kinds of questions, and their answers:

    tool       approve a tool call?       {"approve": true, "arguments"?: {…}}
    iteration  continue with adapt?       {"approve": true, "output"?, "feedback"?}: the input of adapt
    limit      raise the used-up limit?   {"approve": true, "more"?: n}: n more (default: the same again)
    verdict    is the output good?        {"passed": true}, {"passed": false} or {"score": 0.8}; without a score for a
                                          sentence of `until`
    choice     which candidate?           {"pick": 3}: its number
    doubt      a call may have acted      "rerun", {"output": value} or "fail"
    free       the question of a step     any value

For `tool`, `iteration` and `limit`, false in place of true ends that part, with an optional "reason". `iteration` also
accepts {"approve": false, "accept": true}: the output, edited or not, satisfies the person.
True and false alone stand for {"approve": true} and {"approve": false}, in a verdict for {"passed": true} and
{"passed": false}; a number alone stands for {"pick": number}.

The process that opens a run moves the answers from its inbox to its entries, where the run reads them.

Without a process, queued and suspended runs can be cancelled, and interrupted ones that were submitted, because they
wait for a worker. Another interrupted run waits for nothing.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..conditions import CEILING
from ..errors import ConfigurationError, RunLocked, StepError, nearest
from ..records import Iteration, Reason, Stop, Usage, codec
from ..records.codec import Json
from ..records.result import ended_entry
from .protocol import Entry, Journal, Posted, RunInfo, RunLog, surviving
from .replay import RecordedRun, recorded_result, tuned_entries

# The functions on the inbox are for packages of Loopwright only.
__all__ = ["Question", "answer", "checked", "open_questions", "pending"]

SCHEDULE = "cron"  # of the source of a run: the times of its schedule, and the schedule's name
# 9999-01-01T00:00:00Z: later than every schedule, and a time in every zone.
PAUSED = 253_370_764_800.0
"""The start of the queued run of a paused schedule, in seconds since the epoch."""
_MANY = 10_000  # queued runs of a schedule, of which all but one were backfilled

_DETAILS = {
    "queued": "cancelled by a person before it started",
    "suspended": "cancelled by a person while it waited for an answer",
    "interrupted": "cancelled by a person while it waited for a worker",
}


async def take_up(store: Journal, log: RunLog) -> None:
    """Move the open answers and new limits in the inbox of an open run to its entries."""
    appended = []
    inbox = await store.inbox(log.info.run_id)
    answers = [
        Entry("answered", answer.path, log.info.active, answer.value)
        for answer in unread_answers(log.recorded, inbox)
    ]
    for entry in (*answers, *tuned_entries(log.recorded, inbox, log.info.active)):
        log.append(entry)
        appended.append(entry)
    if appended and (written := log.sync()) is not None:
        await written
    log.recorded = [*log.recorded, *appended]


def unread_answers(recorded: Sequence[Entry], answers: Sequence[Posted]) -> list[Posted]:
    """Return the answers of an inbox whose questions have no answer in the surviving entries."""
    # By the number of the question: a repeated attempt asks again at the same path.
    open_ = {}
    for entry in recorded:
        if entry.kind == "asked":
            open_[entry.path] = entry.seq
        elif entry.kind == "answered":
            open_.pop(entry.path, None)
    return [answer for answer in answers if open_.get(answer.path) == answer.asked]


def status_of(recorded: Sequence[Entry]) -> str:
    """Return the status of a run without a process, from its surviving entries.

    It is the status of its end, or the one that it had before it was answered.
    """
    for entry in reversed(recorded):
        if entry.kind == "ended" and not entry.path:
            return Stop.from_json(entry.value["stop"]).reason.status.value
        # Entries that a person added while no process ran do not change the status.
        if entry.kind not in ("answered", "accepted", "tuned"):
            return "suspended" if entry.kind == "suspended" else "interrupted"
    return "interrupted"


async def runs_of_schedule(journal: Journal, name: str, *, status: str = "") -> list[RunInfo]:
    """Return the runs of a schedule: first the one of its next time, which is queued, then the latest first.

    Without one of its next time the schedule has ended.
    """
    rows = await journal.runs(status=status, schedule=name, limit=_MANY)
    return sorted(rows, key=lambda row: -row.wake_at)


def schedule_of(row: RunInfo) -> str:
    """Return the name of the schedule of a run; "" without one."""
    return str(row.source.get(SCHEDULE, {}).get("name", ""))


async def cancel_waiting(journal: Journal, run_id: str) -> bool:
    """End a queued or suspended run, or a submitted interrupted one, as cancelled, with its present output.

    Returns:
        Whether the run was waiting; False leaves it unchanged.

    Raises:
        RunNotFound: if there is no such run.
    """
    info = await journal.find(run_id)
    if info.status not in _DETAILS or (info.status == "interrupted" and not info.queue):
        return False
    try:
        log = await journal.open(info, resume=True)
    except RunLocked:  # a process has just opened it, and can be asked to cancel
        return False
    row = replace(log.info, status=info.status)
    ending = _ending(info, log.recorded)
    try:
        if ending is not None:
            stop = Stop(Reason.CANCELLED, _DETAILS[info.status])
            value = {**ending, "stop": stop.to_json(), "request": None}
            log.append(Entry("ended", "", log.info.active, value))
            if (written := log.sync()) is not None:
                await written
            status, reason = stop.reason.status.value, stop.reason.value
            row = replace(
                row, status=status, reason=reason, detail=stop.detail, updated=time.time(),
                # A process that was killed left the row as it was when it opened the run.
                iterations=max(row.iterations, ending["iterations"]),
                usage=Usage.from_json(ending["usage"]),
            )  # fmt: skip
            if any(entry.kind == "waiting" for entry in log.recorded):
                await journal.end_wait(info.run_id)
    finally:
        await log.close(row)
    return ending is not None


def _ending(info: RunInfo, entries: Sequence[Entry]) -> dict[str, Json] | None:
    """Return the state with which a waiting run ends; None if it does not wait any more."""
    if info.status == "suspended":
        return next((e.value for e in reversed(entries) if e.kind == "suspended"), None)
    replay = RecordedRun(entries)
    # A worker took it, or ended between the last entry and the row.
    if "" in replay.ended or (entries and info.status == "queued"):
        return None
    steps = {n: one.output for n, one in replay.outcomes().items() if one.status is not None}
    result = replace(recorded_result(info, entries), steps=steps, warnings=tuple(replay.warnings))
    return ended_entry(result)


def user_name() -> str:
    """Return the name of the user of this process, as records of people's acts name it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without user names
        return "someone"


_FIELDS: dict[str, dict[str, type]] = {
    "tool": {"approve": bool, "reason": str, "arguments": dict},
    "iteration": {
        "approve": bool, "reason": str, "feedback": str, "output": object, "accept": bool,
    },
    "limit": {"approve": bool, "reason": str, "more": int},
    "hold": {"approve": bool},
}  # fmt: skip
KINDS = (*_FIELDS, "verdict", "choice", "doubt", "free")
_APPROVAL_ONLY = ("arguments", "more")
_REFUSAL_ONLY = ("reason", "accept")
_TYPES = {bool: "true or false", str: "text", int: "an integer", dict: "an object"}
_EXAMPLES = {
    "tool": '{"approve": true}, {"approve": true, "arguments": {…}} or {"approve": false, "reason": "…"}',
    "iteration": '{"approve": true, "feedback": "…"}, {"approve": false} or '
    '{"approve": false, "accept": true}',
    "limit": '{"approve": true, "more": 3} or {"approve": false}',
    "hold": '{"approve": true}',
    "verdict": '{"passed": true}, {"passed": false, "reason": "…"} or {"score": 0.8}',
    "choice": '{"pick": 3}, with the number of a candidate',
    "doubt": '"rerun", {"output": value} or "fail"',
}


@dataclass(frozen=True, slots=True)
class Question:
    """A question that a run waits to have answered.

    Args:
        path: the place of the question, and of its answer.
        kind: one of KINDS.
        detail: the question as a sentence.
        request: the values to show to the person.
        since: when it was asked, in seconds since the epoch.
        asked: the number of the entry that asked it.
    """

    path: str
    kind: str
    detail: str
    request: Mapping[str, Json] = field(default_factory=dict)
    since: float = 0.0
    asked: int = 0

    def to_json(self) -> dict[str, Json]:
        """Return the question as a JSON object, with the form of its answers as `answers`."""
        return {
            "path": self.path,
            "kind": self.kind,
            "detail": self.detail,
            "request": dict(self.request),
            "since": self.since,
            "answers": _EXAMPLES.get(self.kind, "any value"),
        }


def side_by_side(question: Question) -> dict[str, Json]:
    """Return what each candidate that a person chooses from made, by its number and score; {} for another question."""
    shown: dict[str, Json] = {}
    for one in question.request.get("candidates", ()):
        score = "" if one["score"] is None else f", score {one['score']:.3g}"
        feedback = f"\n\n{one['feedback']}" if one["feedback"] else ""
        shown[f"candidate {one['number']}{score}"] = codec.text_of(one["output"]) + feedback
    return shown


async def pending(journal: Journal, run_id: str) -> list[Question]:
    """Return the open questions of a run in the order in which they were asked.

    Args:
        journal: the journal of the run.
        run_id: the id of the run, or a unique prefix of it.

    Returns:
        The questions; an ended run has none.

    Raises:
        RunNotFound: if there is no such run.
    """
    info = await journal.find(run_id)
    recorded = surviving(await journal.entries(info.run_id))
    return _unanswered(recorded, await journal.inbox(info.run_id))


def _unanswered(recorded: Sequence[Entry], inbox: Sequence[Posted]) -> list[Question]:
    # An answer in the inbox counts at once, although the run has not read it yet.
    answered = {(answer.path, answer.asked) for answer in inbox}
    return [q for q in open_questions(recorded) if (q.path, q.asked) not in answered]


def open_questions(recorded: Sequence[Entry]) -> list[Question]:
    """Return the questions without an answer among the surviving entries of a run.

    Args:
        recorded: the surviving entries, in order.
    """
    replay = RecordedRun(recorded)
    return [
        _question(replay, entry)
        for path, entry in replay.asked.items()
        if path not in replay.answers and not _is_over(replay, path)
    ]


def _question(replay: RecordedRun, entry: Entry) -> Question:
    value: dict[str, Json] = entry.value
    request = dict(value["request"])
    kind = request.get("kind")
    # A journal of a newer version may have other kinds.
    kind = kind if kind in KINDS else "free"
    if kind in ("iteration", "limit"):
        record = _record(replay, request.get("loop", ""), request.get("iteration", 0))
        if record is not None:
            request |= {"output": record.output, "feedback": record.feedback, "score": record.score}
    return Question(
        path=entry.path,
        kind=kind,
        detail=value["detail"],
        request=request,
        since=value["since"],
        asked=entry.seq,
    )


def _is_over(replay: RecordedRun, path: str) -> bool:
    """Return whether the step that asked at a path has ended since."""
    if "" in replay.ended:
        return True
    parts = path.split("/")
    for end in range(1, len(parts)):
        above, part = "/".join(parts[:end]), parts[end]
        if above in replay.ended or above in replay.finished:
            return True
        if part.isdigit() and _passed(replay, above, int(part), parts[end + 1 :]):
            return True
    return False


def _passed(replay: RecordedRun, loop: str, number: int, rest: list[str]) -> bool:
    """Return whether a loop is past the place `rest` in an iteration."""
    if rest in (["approve"], ["limit"]):  # asked after the iteration
        return replay.began(f"{loop}/{number + 1}") is not None
    return _record(replay, loop, number) is not None


def _record(replay: RecordedRun, loop: str, number: int) -> Iteration | None:
    records: list[Iteration] = [entry.value for entry in replay.records.get(loop, ())]
    return next((record for record in records if record.number == number), None)


async def answer(
    journal: Journal, run_id: str, path: str, value: Json, *, who: str = ""
) -> Question:
    """Record the answer to an open question of a run.

    The answer is durable when this returns. A process that runs the run now, or the next resume,
    continues with it. The first of several answers counts.

    Args:
        journal: the journal of the run.
        run_id: the id of the run, or a unique prefix of it.
        path: the path of the question.
        value: the answer; see the module for the forms by kind.
        who: the name of the person (default: the user of this process).

    Returns:
        The question.

    Raises:
        RunNotFound: if there is no such run.
        ConfigurationError: if no question is open at that path (names the nearest), if it already has
            an answer (names the person and the time), or if the answer has another form.
    """
    info = await journal.find(run_id)
    recorded = surviving(await journal.entries(info.run_id))
    question = _find(info.run_id, recorded, path, await journal.inbox(info.run_id))
    mine = Posted(path, question.asked, checked(question, value), who or user_name(), time.time())
    first = await journal.post(info.run_id, mine)
    if (first.value, first.at) != (mine.value, mine.at):  # a store may add to the name
        raise _answered(info.run_id, path, first)
    # Its process reads the inbox itself; the answers for a run without one are moved here.
    try:
        log = await journal.open(info, resume=True)
    except RunLocked:
        return question
    row = replace(log.info, status=status_of(log.recorded), updated=time.time())
    try:
        await take_up(journal, log)
    finally:
        await log.close(row)
    return question


def _answered(run_id: str, path: str, first: Posted) -> ConfigurationError:
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(first.at))
    return ConfigurationError(
        f"{run_id}: the question at {path!r} is answered already: {first.who} answered "
        f"{codec.text_of(first.value)[:80]} at {at}, and the first answer counts; continue with: resume"
    )


def _find(run_id: str, recorded: Sequence[Entry], path: str, inbox: Sequence[Posted]) -> Question:
    questions = _unanswered(recorded, inbox)
    for question in questions:
        if question.path == path:
            return question
    for answer in reversed(inbox):
        if answer.path == path:
            raise _answered(run_id, path, answer)
    if any(entry.kind == "answered" and entry.path == path for entry in recorded):
        raise ConfigurationError(
            f"{run_id}: the question at {path!r} is answered already; continue with: resume"
        )
    # The message depends on the state, because each has another remedy.
    if not questions:
        raise ConfigurationError(f"{run_id}: no question of this run is open")
    paths = [question.path for question in questions]
    hint = nearest(path, paths) or f"; questions are open at {', '.join(map(repr, paths))}"
    raise ConfigurationError(f"{run_id}: no question is open at {path!r}{hint}")


def checked(question: Question, value: Json) -> Json:
    """Return an answer in the form that its question's kind requires.

    Args:
        question: the question.
        value: the answer; see the module for the forms by kind.

    Raises:
        ConfigurationError: if it has another form; shows the valid ones.
    """
    try:
        reply = codec.normalise(value, what="answer")
    except StepError as error:
        raise ConfigurationError(f"{question.path}: {error}") from None
    if question.kind == "doubt":
        if reply in ("rerun", "fail") or (isinstance(reply, dict) and list(reply) == ["output"]):
            return reply
        raise _wrong_form(question, reply)
    if question.kind == "verdict":
        return _verdict(question, reply)
    if question.kind == "choice":
        picked = reply if isinstance(reply, dict) else {"pick": reply}
        numbers = [one["number"] for one in question.request["candidates"]]
        if (
            [*picked] != ["pick"]
            or isinstance(picked["pick"], bool)
            or picked["pick"] not in numbers
        ):
            raise _wrong_form(question, picked.get("pick", reply))
        return picked
    if question.kind not in _FIELDS:
        return reply
    if isinstance(reply, bool):
        reply = {"approve": reply}
    if not isinstance(reply, dict) or not isinstance(reply.get("approve"), bool):
        raise _wrong_form(question, reply)
    _check_fields(question, reply)
    if question.kind == "hold" and not reply["approve"]:
        raise ConfigurationError(
            f"{question.path}: it stays held without an answer; to end the run, cancel it"
        )
    if question.kind == "limit" and reply["approve"]:
        # Completed before it is recorded, so that a replay does not depend on the default of its
        # version.
        reply["more"] = reply.get("more", question.request.get("more", 1))
        # Checked here, because the person can correct the answer now; the loop could only fail later.
        maximum = CEILING - int(question.request.get("iteration", 0))
        if not 1 <= reply["more"] <= maximum:
            raise ConfigurationError(
                f"{question.path}: answer: more: {reply['more']} is not an integer from 1 to {maximum}"
            )
    return reply


def _verdict(question: Question, reply: Json) -> Json:
    """Return the verdict of a person: passed or not, or a score; with an optional reason."""
    if isinstance(reply, bool):
        reply = {"passed": reply}
    if not isinstance(reply, dict) or ("passed" in reply) == ("score" in reply):
        raise _wrong_form(question, reply)
    if not isinstance(reply.get("passed", True), bool) or not isinstance(
        reply.get("reason", ""), str
    ):
        raise _wrong_form(question, reply)
    if set(reply) - {"passed", "score", "reason"}:
        raise _wrong_form(question, reply)
    if "score" in reply and "sentence" in question.request:
        raise ConfigurationError(
            f"{question.path}: answer: score: a sentence of until is true or not; use passed: true or false"
        )
    if "score" in reply:
        codec.number(f"{question.path}: answer: score", reply["score"], minimum=0, maximum=1)
    return reply


def _check_fields(question: Question, reply: Mapping[str, Json]) -> None:
    fields = _FIELDS[question.kind]
    for name, value in reply.items():
        where = f"{question.path}: answer: {name}"
        if name not in fields:
            hint = nearest(name, fields) or f"; use {_EXAMPLES[question.kind]}"
            raise ConfigurationError(f"{where}: unknown field{hint}")
        expected = fields[name]
        # True is an int in Python.
        if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
            raise ConfigurationError(f"{where}: {codec.flow_text(value)} is not {_TYPES[expected]}")
        if name in (_REFUSAL_ONLY if reply["approve"] else _APPROVAL_ONLY):
            approve = "true" if reply["approve"] else "false"
            raise ConfigurationError(
                f"{where} has no meaning with approve: {approve}; leave it out"
            )


def _wrong_form(question: Question, reply: Json) -> ConfigurationError:
    numbers = ", ".join(str(one["number"]) for one in question.request.get("candidates", ()))
    return ConfigurationError(
        f"{question.path}: {codec.text_of(reply)[:80]!r} is not an answer to this question; "
        f"use {_EXAMPLES[question.kind]}{numbers and f': {numbers}'}"
    )
