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

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from . import codec
from .codec import Json
from .conditions import CEILING
from .errors import ConfigurationError, StepError, nearest
from .journal import Entry, Journal, RunInfo, surviving
from .replay import Replay

__all__ = ["KINDS", "Question", "answer", "checked", "open_questions", "pending", "status_of"]

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
    `request` what the answerer is shown, `since` when it was asked (seconds since the epoch).
    """

    path: str
    kind: str
    detail: str
    request: Mapping[str, Json] = field(default_factory=dict)
    since: float = 0.0

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
    return open_questions(surviving(await journal.entries(info.run_id)))


def open_questions(recorded: Sequence[Entry]) -> list[Question]:
    """Return the questions without an answer among the surviving entries of a run."""
    replay = Replay(recorded)
    return [
        _question(replay, entry)
        for path, entry in replay.asked.items()
        if path not in replay.answers and not _over(replay, path)
    ]


def _question(replay: Replay, entry: Entry) -> Question:
    value: dict[str, Any] = entry.value
    request = dict(value["request"])
    kind = request.get("kind")
    kind = kind if kind in KINDS else "free"
    if kind in ("iteration", "limit"):
        record = _record(replay, request.get("loop", ""), request.get("iteration", 0))
        if record is not None:
            request |= {"output": record.output, "feedback": record.feedback, "score": record.score}
    return Question(entry.path, kind, value["detail"], request, value["since"])


def _over(replay: Replay, path: str) -> bool:
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


def _gone(replay: Replay, loop: str, number: int, rest: list[str]) -> bool:
    """Return whether a loop is past what asked at `rest` in a round of it."""
    if rest in (["approve"], ["limit"]):  # asked after the round
        return replay.began(f"{loop}/{number + 1}") is not None
    return _record(replay, loop, number) is not None


def _record(replay: Replay, loop: str, number: int) -> Any:
    """Return the record of an iteration; None if there is none."""
    rounds = (entry.value for entry in replay.rounds.get(loop, ()))
    return next((record for record in rounds if record.number == number), None)


async def answer(journal: Journal, run_id: str, path: str, value: Json) -> Question:
    """Record the answer to an open question of a run that nobody runs now; return the question.

    The answer is durable when this returns; it is used by the next resume, which alone goes on.

    Raises:
        RunNotFound: if there is no such run.
        RunLocked: if a live process runs it.
        ConfigurationError: if nothing is asked at that path (naming the nearest question), if it is
            answered already, or if the answer does not fit the question.
    """
    info = await journal.find(run_id)
    checked(_asked(info.run_id, await _recorded(journal, info), path), value)
    log = await journal.open(info, resume=True)
    row = replace(log.info, status=status_of(log.recorded), updated=time.time())
    try:
        question = _asked(info.run_id, log.recorded, path)  # someone may have been quicker
        given = checked(question, value)
        log.append(Entry("answered", path, row.active, value=given))
        if (written := log.sync()) is not None:
            await written
    finally:
        await log.close(row)
    return question


async def _recorded(journal: Journal, info: RunInfo) -> list[Entry]:
    return surviving(await journal.entries(info.run_id))


def status_of(recorded: Sequence[Entry]) -> str:
    """Return the status of a run that nobody runs: how it was before someone answered."""
    for entry in reversed(recorded):
        if entry.kind not in ("answered", "accepted"):
            return "suspended" if entry.kind == "suspended" else "interrupted"
    return "interrupted"


def _asked(run_id: str, recorded: Sequence[Entry], path: str) -> Question:
    found = open_questions(recorded)
    for question in found:
        if question.path == path:
            return question
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
