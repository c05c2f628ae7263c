"""`approve`: what a run asks people, and their answers."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from typing import Annotated, Any

import typer

from ...errors import ConfigurationError
from ...journal import Journal, RunInfo, surviving
from ...journal.questions import Question, answer, open_questions, pending
from ...records.codec import Json as JsonValue
from ...records.codec import text_of
from ...records.redaction import of_environment
from .. import formatting as texts
from ..journals import DEFAULT, again, find_run, reading
from .options import AsJson, JournalUrl, RunName
from .output import Output
from .run import resume

__all__ = ["approve"]

SHOWN = 20  # lines of what is asked about; show has all of it
_SHOWN_APART = ("kind", "loop", "iteration", "question", "step", "more")

_HOW = {
    "tool": ("--yes", "--no --reason TEXT", "--edit ARGUMENTS"),
    "iteration": ("--yes", "--no", "--accept", "--edit FEEDBACK", "--edit '{\"output\": …}'"),
    "limit": ("--yes", "--no", "--edit N"),
    "doubt": ("--yes (run it again)", "--no (it failed)", "--edit OUTPUT (what it gave)"),
    "free": ("--value ANSWER",),
}


_BY_HAND = {
    "tool": "[y]es, [n]o, or other arguments as JSON; Enter leaves it open",
    "iteration": "[y]es, [n]o, [a]ccept it, or your feedback; Enter leaves it open",
    "limit": "[y]es, [n]o, or how many iterations more; Enter leaves it open",
    "doubt": "[y]es run it again, [n]o it failed, or what it gave as JSON; Enter leaves it open",
    "free": "your answer, JSON or text; Enter leaves it open",
}


Place = Annotated[
    str, typer.Argument(metavar="[PATH]", help="Of the question, where there are several.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Go on.")]
No = Annotated[bool, typer.Option("--no", help="Do not; see --reason.")]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why not.")]
Accept = Annotated[
    bool, typer.Option("--accept", help="End the loop: this output is what was wanted.")
]
Edit = Annotated[
    str | None,
    typer.Option(
        "--edit",
        metavar="JSON",
        help="Go on, edited: a tool's arguments; a round's feedback, or an object with output and "
        "feedback; how many iterations more; what a call in doubt gave.",
    ),
]
Answer = Annotated[
    str | None, typer.Option("--value", metavar="JSON", help="The answer as it is, or text.")
]
GoOn = Annotated[bool, typer.Option("--resume", help="Go on with the run at once.")]


def approve(
    name: RunName,
    path: Place = "",
    yes: Yes = False,
    no: No = False,
    reason: Why = "",
    accept: Accept = False,
    edit: Edit = None,
    value: Answer = None,
    go_on: GoOn = False,
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Show what a run asks, or answer it; resume goes on with the answer.

    Without an option it shows the questions, and on a terminal asks for the answers.

    Exit codes: 0, with --resume that of the run; 2 if nothing is asked there or the answer does not fit.
    """
    given = [yes, no, accept, edit is not None, value is not None]
    _expect_one(given, both=accept and edit is not None, reason=reason and not no)
    if not any(given):
        said_by_hand = _shown(name, path, journal, as_json=as_json)
        return 0 if said_by_hand is None else _go_on(said_by_hand, journal)

    def said(question: Question) -> JsonValue:
        if value is not None:
            return _read(value)
        return _said(question, yes=yes, accept=accept, edit=edit, reason=reason)

    info, question, left = reading(journal, lambda store: _answer(store, name, path, said))
    if not go_on:
        _tell(info, question, left, journal, as_json=as_json)
        return 0
    return resume(info.run_id, journal, as_json=as_json)


def _expect_one(given: list[bool], *, both: bool, reason: Any) -> None:
    if sum(given) > 1 and not (both and sum(given) == 2):
        raise ConfigurationError("give one of --yes, --no, --accept, --edit and --value")
    if reason:
        raise ConfigurationError("--reason says why not: give it with --no")


async def _answer(
    store: Journal, name: str, path: str, said: Any
) -> tuple[RunInfo, Question, list[Question]]:
    info = await find_run(store, name)
    if not path:
        path = _only(info, await pending(store, info.run_id)).path
    found = [q for q in await pending(store, info.run_id) if q.path == path]
    answered = said(found[0]) if found else None
    of_environment(os.environ).refuse("answer", answered)
    question = await answer(store, info.run_id, path.strip("/"), answered)
    return info, question, await pending(store, info.run_id)


def _only(info: RunInfo, questions: list[Question]) -> Question:
    if not questions:
        raise ConfigurationError(f"{info.run_id}: it waits for no answer, it is {info.status}")
    if len(questions) > 1:
        paths = ", ".join(question.path for question in questions)
        raise ConfigurationError(
            f"{info.run_id}: it asks {len(questions)} questions; give the path: {paths}"
        )
    return questions[0]


def _said(
    question: Question, *, yes: bool, accept: bool, edit: str | None, reason: str
) -> JsonValue:
    """Return the answer that the options mean to this kind of question."""
    kind = question.kind
    if accept and kind != "iteration":
        raise ConfigurationError(f"--accept is for rounds of a loop; {question.path} is a {kind}")
    if edit is not None:
        return _edited(question, _read(edit), accept=accept)
    if kind == "doubt":
        return "rerun" if yes else "fail"
    if kind == "free":
        return yes
    if accept:
        return {"approve": False, "accept": True}
    return (
        {"approve": True} if yes else {"approve": False, **({"reason": reason} if reason else {})}
    )


def _edited(question: Question, given: JsonValue, *, accept: bool) -> JsonValue:
    if question.kind == "tool":
        return {"approve": True, "arguments": given}
    if question.kind == "limit":
        return {"approve": True, "more": given}
    if question.kind == "doubt":
        return {"output": given}
    if question.kind == "free":
        return given
    fields = given if isinstance(given, dict) else {"feedback": given}
    return {**fields, **({"approve": False, "accept": True} if accept else {"approve": True})}


def _read(text: str) -> JsonValue:
    """Return the JSON value that a text is, else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shown(name: str, path: str, journal: str, *, as_json: bool) -> RunInfo | None:
    """Show what is asked; return the run if somebody at the terminal has answered something."""

    async def read(store: Journal) -> tuple[RunInfo, list[Question]]:
        info = await find_run(store, name)
        found = open_questions(surviving(await store.entries(info.run_id)))
        return info, [question for question in found if path in ("", question.path)]

    info, questions = reading(journal, read)
    with Output(as_json=as_json) as output:
        if as_json:
            asked = [question.to_json() for question in questions]
            output.give({"run_id": info.run_id, "status": info.status, "questions": asked})
            return None
        if not questions:
            output.say(f"{info.run_id} asks nothing, it is {info.status}")
            if info.status in ("suspended", "interrupted"):
                output.say(("go on: ", "dim"), again("resume", info.run_id, journal))
        for question in questions:
            paths = [question.path] if len(questions) > 1 else []
            _show(question, again("approve", info.run_id, journal, *paths), output)
        if not (questions and output.terminal and sys.stdin is not None and sys.stdin.isatty()):
            return None
        answered = [_by_hand(info.run_id, question, journal, output) for question in questions]
        return info if any(answered) else None


def _by_hand(run_id: str, question: Question, journal: str, output: Output) -> bool:
    """Ask a question at the terminal, again until the answer fits; return whether there is one."""
    while True:
        output.say(
            (f"{texts.one_line(question.path)}: ", "bold"), _BY_HAND[question.kind], wrap=True
        )
        line = _line(output)
        if not line:
            output.say("it stays open")
            return False
        try:
            given = _typed(question, line)
            of_environment(os.environ).refuse("answer", given)
            if not _is_choice(question, line) and not _confirmed(question, line, output):
                continue
            reading(journal, partial(answer, run_id=run_id, path=question.path, value=given))
        except ConfigurationError as error:
            output.note(str(error))
            continue
        return True


def _is_choice(question: Question, line: str) -> bool:
    """Return whether a line is one of the words of the question, not a text of its own."""
    words = {"free": ()}.get(question.kind, ("y", "yes", "n", "no"))
    more = ("a", "accept") if question.kind == "iteration" else ()
    return line.lower() in (*words, *more)


_TEXT_IS = {
    "tool": "the arguments of the call", "iteration": "your feedback, with another iteration",
    "limit": "how many iterations more", "doubt": "what the call gave", "free": "your answer",
}  # fmt: skip


def _confirmed(question: Question, line: str, output: Output) -> bool:
    """Ask whether a typed text is meant as the answer, before it is on record."""
    shown = texts.fit(texts.one_line(line), 60, output.signs)
    output.say(f"record {shown!r} as {_TEXT_IS[question.kind]}? [y/N]", wrap=True)
    return _line(output).lower() in ("y", "yes")


def _line(output: Output) -> str:
    output.flush()
    try:
        return sys.stdin.readline().strip()
    except (OSError, ValueError):
        return ""


def _typed(question: Question, line: str) -> JsonValue:
    """Return the answer that somebody typed: a letter, or what --edit takes."""
    letters = {"y": "yes", "n": "no", "a": "accept"}
    word = letters.get(line.lower(), line.lower())
    if question.kind == "free":
        return _read(line)
    if word == "accept" and question.kind == "iteration":
        return {"approve": False, "accept": True}
    if word in ("yes", "no"):
        return _said(question, yes=word == "yes", accept=False, edit=None, reason="")
    return _edited(question, _read(line), accept=False)


def _go_on(info: RunInfo, journal: str) -> int:
    with Output() as output:
        output.say("go on with the run now? [Y/n]")
        now = _line(output).lower() in ("", "y", "yes")
        if not now:
            output.say(("go on: ", "dim"), again("resume", info.run_id, journal))
            return 0
    return resume(info.run_id, journal)


def _show(question: Question, command: str, output: Output) -> None:
    output.say((texts.one_line(question.path), "bold"), f"  since {texts.when(question.since)}")
    output.say("  " + texts.one_line(question.detail), wrap=True)
    for key, value in question.request.items():
        if key in _SHOWN_APART or value in (None, ""):
            continue
        lines = _pretty(value)
        if len(lines) == 1:
            output.say((f"  {key}: ", "dim"), texts.fit(lines[0], output.width - len(key) - 4))
            continue
        output.say((f"  {key}:", "dim"))
        for line in lines[:SHOWN]:
            output.say("    " + texts.fit(line, output.width - 4, output.signs))
        if len(lines) > SHOWN:
            output.say((f"    {output.signs.more} {len(lines) - SHOWN} more lines", "dim"))
    output.say(("  answer: ", "dim"), command, (" with one of", "dim"))
    for way in _HOW[question.kind]:
        output.say(f"    {way}")


def _pretty(value: JsonValue) -> list[str]:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return [texts.clean(line) for line in text.expandtabs(4).split("\n")]


def _tell(
    info: RunInfo, question: Question, left: list[Question], url: str, *, as_json: bool
) -> None:
    with Output(as_json=as_json) as output:
        if as_json:
            asked = [question.to_json() for question in left]
            output.give(
                {"run_id": info.run_id, "path": question.path, "answered": True, "questions": asked}
            )
            return
        output.say(f"{info.run_id}: {texts.one_line(text_of(question.path))} is answered")
        for other in left:
            output.say((f"still waits at {texts.one_line(other.path)}: ", "bold"), other.detail)
        output.say(("go on: ", "dim"), again("resume", info.run_id, url))
