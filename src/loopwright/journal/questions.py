"""Questions to people: which a run waits for, and the answers that let it go on.

A run that needs a person is suspended with its questions on record (`asked`), each at a path. An
answer is recorded at that path by whoever has the journal, at any time later; the next resume goes on
with it. Kinds of questions and their answers:

    tool       call a marked tool?        {"approve": true, "arguments"?: {…}}
    iteration  is another round wanted?   {"approve": true, "output"?, "feedback"?}: what adapt is given
    limit      the limit is used up       {"approve": true, "more"?: n}: so many more (default: the same)
    doubt      a call may have acted      "rerun", {"output": value} or "fail"
    free       anything a step asked      any value

For the first three, false in place of true ends it there, with a "reason" if there is one; `iteration`
also takes {"approve": false, "accept": true}: this output, edited or not, satisfies the person.
True and false alone stand for {"approve": true} and {"approve": false}.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..conditions import CEILING
from ..errors import ConfigurationError, RunLocked, StepError, nearest
from ..records import codec
from ..records.codec import Json
from . import Entry, Journal, Posted, RunInfo, surviving
from .inbox import status_of, take_up
from .replay import RecordedRun

__all__ = ["KINDS", "Question", "answer", "checked", "open_questions", "pending"]

_FIELDS: dict[str, dict[str, type]] = {
    "tool": {"approve": bool, "reason": str, "arguments": dict},
    "iteration": {
        "approve": bool, "reason": str, "feedback": str, "output": object, "accept": bool,
    },
    "limit": {"approve": bool, "reason": str, "more": int},
}  # fmt: skip
KINDS = (*_FIELDS, "doubt", "free")
_ONLY_YES = ("arguments", "more")
_ONLY_NO = ("reason", "accept")
_EXAMPLES = {
    "tool": '{"approve": true}, {"approve": true, "arguments": {…}} or {"approve": false, "reason": "…"}',
    "iteration": '{"approve": true, "feedback": "…"}, {"approve": false} or '
    '{"approve": false, "accept": true}',
    "limit": '{"approve": true, "more": 3} or {"approve": false}',
    "doubt": '"rerun", {"output": value} or "fail"',
}


@dataclass(frozen=True, slots=True)
class Question:
    """A question that a run waits for an answer to.

    `path` is where the answer belongs, `kind` a word of KINDS, `detail` the question as a sentence,
    `request` what the answerer is shown, `since` when it was asked (seconds since the epoch), `asked` the
    number of the entry that asked it.
    """

    path: str
    kind: str
    detail: str
    request: Mapping[str, Json] = field(default_factory=dict)
    since: float = 0.0
    asked: int = 0

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object, with what its answers look like as `answers`."""
        return {
            "path": self.path,
            "kind": self.kind,
            "detail": self.detail,
            "request": dict(self.request),
            "since": self.since,
            "answers": _EXAMPLES.get(self.kind, "any value"),
        }


async def pending(journal: Journal, run_id: str) -> list[Question]:
    """Return the open questions of a run, in the order they were asked; none if it has ended.

    Raises:
        RunNotFound: if there is no such run; a unique beginning of its id will do.
    """
    info = await journal.find(run_id)
    recorded = await _recorded(journal, info)
    return _unanswered(recorded, await journal.inbox(info.run_id))


def _unanswered(recorded: Sequence[Entry], inbox: Sequence[Posted]) -> list[Question]:
    answered = {(answer.path, answer.asked) for answer in inbox}
    return [q for q in open_questions(recorded) if (q.path, q.asked) not in answered]


def open_questions(recorded: Sequence[Entry]) -> list[Question]:
    """Return the questions without an answer among the surviving entries of a run."""
    replay = RecordedRun(recorded)
    return [
        _question(replay, entry)
        for path, entry in replay.asked.items()
        if path not in replay.answers and not _over(replay, path)
    ]


def _question(replay: RecordedRun, entry: Entry) -> Question:
    value: dict[str, Any] = entry.value
    request = dict(value["request"])
    kind = request.get("kind")
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


def _over(replay: RecordedRun, path: str) -> bool:
    """Return whether what asked has ended meanwhile, so that nobody waits for the answer."""
    if "" in replay.ended:
        return True
    parts = path.split("/")
    for end in range(1, len(parts)):
        above, part = "/".join(parts[:end]), parts[end]
        if above in replay.ended or above in replay.finished:
            return True
        if part.isdigit() and _gone(replay, above, int(part), parts[end + 1 :]):
            return True
    return False


def _gone(replay: RecordedRun, loop: str, number: int, rest: list[str]) -> bool:
    """Return whether a loop is past what asked at `rest` in a round of it."""
    if rest in (["approve"], ["limit"]):  # asked after the round
        return replay.began(f"{loop}/{number + 1}") is not None
    return _record(replay, loop, number) is not None


def _record(replay: RecordedRun, loop: str, number: int) -> Any:
    """Return the record of an iteration; None if there is none."""
    rounds = (entry.value for entry in replay.rounds.get(loop, ()))
    return next((record for record in rounds if record.number == number), None)


async def answer(
    journal: Journal, run_id: str, path: str, value: Json, *, who: str = ""
) -> Question:
    """Record the answer to an open question of a run; return the question.

    The answer is durable when this returns, also while a process runs the run: that one, or the next
    resume, goes on with it. Of several answers the first counts. `who` is the name of who answers
    (default: that of the user of this process).

    Raises:
        RunNotFound: if there is no such run.
        ConfigurationError: if nothing is asked at that path (naming the nearest question), if it is
            answered already (by whom and when), or if the answer does not fit the question.
    """
    info = await journal.find(run_id)
    recorded = await _recorded(journal, info)
    question = _asked(info.run_id, recorded, path, await journal.inbox(info.run_id))
    given = checked(question, value)
    mine = Posted(path, question.asked, given, who or _user(), time.time())
    first = await journal.post(info.run_id, mine)
    if (first.who, first.at) != (mine.who, mine.at):
        raise _answered(info.run_id, path, first)
    await _moved(journal, info)
    return question


async def _moved(journal: Journal, info: RunInfo) -> None:
    """Move answers to the entries of a run that nobody runs; whoever runs or opens it does so else."""
    try:
        log = await journal.open(info, resume=True)
    except RunLocked:
        return
    row = replace(log.info, status=status_of(log.recorded), updated=time.time())
    try:
        await take_up(journal, log)
    finally:
        await log.close(row)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without names
        return "someone"


def _answered(run_id: str, path: str, first: Posted) -> ConfigurationError:
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(first.at))
    return ConfigurationError(
        f"{run_id}: the question at {path!r} is answered already: {first.who} answered "
        f"{codec.text_of(first.value)[:80]} at {at}, and the first answer counts; go on with: resume"
    )


async def _recorded(journal: Journal, info: RunInfo) -> list[Entry]:
    return surviving(await journal.entries(info.run_id))


def _asked(run_id: str, recorded: Sequence[Entry], path: str, inbox: Sequence[Posted]) -> Question:
    found = _unanswered(recorded, inbox)
    for question in found:
        if question.path == path:
            return question
    if (
        first := next((answer for answer in reversed(inbox) if answer.path == path), None)
    ) is not None:
        raise _answered(run_id, path, first)
    answered = {entry.path for entry in recorded if entry.kind == "answered"}
    if path in answered:
        raise ConfigurationError(
            f"{run_id}: the question at {path!r} is answered already; go on with: resume"
        )
    if not found:
        raise ConfigurationError(f"{run_id}: it waits for no answer")
    paths = [question.path for question in found]
    hint = nearest(path, paths) or f"; it waits at {', '.join(map(repr, paths))}"
    raise ConfigurationError(f"{run_id}: nothing is asked at {path!r}{hint}")


def checked(question: Question, value: Json) -> Json:
    """Return an answer in the form that its question's kind expects.

    Raises:
        ConfigurationError: if it does not fit; says which answers would.
    """
    try:
        given = codec.normalise(value, what="answer")
    except StepError as error:
        raise ConfigurationError(f"{question.path}: {error}") from None
    if question.kind == "doubt":
        if given in ("rerun", "fail") or (isinstance(given, dict) and list(given) == ["output"]):
            return given
        raise _misfit(question, given)
    if question.kind not in _FIELDS:
        return given
    if isinstance(given, bool):
        given = {"approve": given}
    if not isinstance(given, dict) or not isinstance(given.get("approve"), bool):
        raise _misfit(question, given)
    _check_fields(question, given)
    if question.kind == "limit" and given["approve"]:
        given["more"] = given.get("more", question.request.get("more", 1))
        _check_more(question, given["more"])
    return given


def _check_fields(question: Question, given: Mapping[str, Json]) -> None:
    fields = _FIELDS[question.kind]
    for name, value in given.items():
        where = f"{question.path}: answer: {name}"
        if name not in fields:
            hint = nearest(name, fields) or f"; give {_EXAMPLES[question.kind]}"
            raise ConfigurationError(f"{where}: there is no such field{hint}")
        wanted = fields[name]
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            kind = {bool: "true or false", str: "text", int: "a whole number", dict: "an object"}
            raise ConfigurationError(f"{where}: {value!r} is not {kind[wanted]}")
        if name in (_ONLY_NO if given["approve"] else _ONLY_YES):
            said = "true" if given["approve"] else "false"
            raise ConfigurationError(f"{where} says nothing beside approve: {said}; leave it out")


def _check_more(question: Question, more: int) -> None:
    most = CEILING - int(question.request.get("iteration", 0))
    if not 1 <= more <= most:
        raise ConfigurationError(
            f"{question.path}: answer: more: {more} is not a number from 1 to {most}"
        )


def _misfit(question: Question, given: Json) -> ConfigurationError:
    return ConfigurationError(
        f"{question.path}: {codec.text_of(given)[:80]!r} is no answer to this question; "
        f"give {_EXAMPLES[question.kind]}"
    )
