"""`approve`: the open questions of a run, and answers to them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, NamedTuple

import typer

from ...errors import ConfigurationError, nearest
from ...journal import Journal, RunInfo, surviving
from ...journal.questions import Question, answer, open_questions, pending, side_by_side
from ...records.codec import Json, text_of
from ...records.redaction import of_environment
from .. import formatting as texts
from ..journals import DEFAULT, command_line, find_run, reading, resume_line
from ..run_summary import is_for_workers
from .live import report_continuation
from .options import AsJson, JournalUrl, RunCommandOptions, RunName
from .output import Output
from .run import resume_run

SHOWN = 20  # lines of a value, so that the question stays on the screen; `show` prints all
# These are in the detail of the question, which is printed above its values.
_SHOWN_APART = ("kind", "loop", "iteration", "question", "step", "more", "candidates")
_YES_NO = ("y", "yes", "n", "no")


class _Kind(NamedTuple):
    """A kind of question: its options, its prompt on a terminal, and the meaning of a typed text."""

    options: tuple[str, ...]
    prompt: str
    text_is: str
    words: tuple[str, ...] = _YES_NO


_KINDS = {
    "tool": _Kind(
        ("--yes", "--no --reason TEXT", "--edit ARGUMENTS"),
        "[y]es, [n]o, or other arguments as JSON",
        "the arguments of the call",
    ),
    "iteration": _Kind(
        ("--yes", "--no", "--accept", "--edit FEEDBACK", "--edit '{\"output\": …}'"),
        "[y]es, [n]o, [a]ccept it, or your feedback",
        "your feedback for another iteration",
        (*_YES_NO, "a", "accept"),
    ),
    "limit": _Kind(
        ("--yes", "--no", "--edit N"),
        "[y]es, [n]o, or the number of further iterations",
        "the number of further iterations",
    ),
    "verdict": _Kind(
        ("--passed", "--failed --reason TEXT", "--score X"),
        "[p]assed, [f]ailed, or a score from 0 to 1",
        "the score of the output",
        ("p", "passed", "f", "failed"),
    ),
    "choice": _Kind(("--pick N",), "the number of a candidate", "the number of a candidate", ()),
    "doubt": _Kind(
        ("--yes (run it again)", "--no (it failed)", "--edit OUTPUT (its result)"),
        "[y]es run it again, [n]o it failed, or its result as JSON",
        "the result of the call",
    ),
    "hold": _Kind(("--yes",), "[y]es, continue", "nothing; answer yes", ("y", "yes")),
    "free": _Kind(("--value ANSWER",), "your answer, JSON or text", "your answer", ()),
}


def approve(
    name: RunName,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="Path of the question, if there are several.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Answer yes: continue.")] = False,
    no: Annotated[bool, typer.Option("--no", help="Do not continue; see --reason.")] = False,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Reason, for --no or --failed.")
    ] = "",
    accept: Annotated[
        bool, typer.Option("--accept", help="Accept this output and end the loop.")
    ] = False,
    passed: Annotated[
        bool, typer.Option("--passed", help="Judge the output in place of the judge: it is good.")
    ] = False,
    failed: Annotated[
        bool, typer.Option("--failed", help="What failed: the output is not good; see --reason.")
    ] = False,
    score: Annotated[
        float | None,
        typer.Option("--score", metavar="X", help="Judge the output: its score, from 0 to 1."),
    ] = None,
    pick: Annotated[
        int | None,
        typer.Option("--pick", metavar="N", help="Choose a candidate of an iteration."),
    ] = None,
    edit: Annotated[
        str | None,
        typer.Option(
            "--edit",
            metavar="JSON",
            help="Continue with a change: the arguments of a tool; feedback, or an object with output "
            "and feedback; the number of further iterations; the result of a call in doubt.",
        ),
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", metavar="JSON", help="The answer, as JSON or text.")
    ] = None,
    go_on: Annotated[bool, typer.Option("--resume", help="Resume the run at once.")] = False,
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """List the open questions of a run, or answer one.

    Resume the run afterwards; a worker continues a submitted one.

    Without an option the questions are listed, and on a terminal you are asked for the answers.

    Exit codes: 0, or with --resume that of the run; 2 without an open question, or if the answer does
    not fit.

    Examples:
        loopwright approve last
        loopwright approve last --yes --resume
        loopwright approve last --edit 'Name the date'
    """
    judged = [passed, failed, score is not None]
    used = [yes, no, accept, edit is not None, value is not None, pick is not None, *judged]
    if sum(used) > 1 and not (accept and edit is not None and sum(used) == 2):
        raise ConfigurationError(
            "give one of --yes, --no, --accept, --edit, --passed, --failed, --score, --pick and --value"
        )
    if reason and not (no or failed):
        raise ConfigurationError("--reason needs --no or --failed")
    if not any(used):
        answered = _list(name, path, journal, as_json=as_json)
        return 0 if answered is None else _offer_resume(answered, journal)

    def answer_to(question: Question) -> Json:
        if value is not None:
            return _parsed(value)
        if pick is not None or question.kind == "choice":
            return _choice(question, pick)
        if any(judged) or question.kind == "verdict":
            return _verdict(question, passed=passed, failed=failed, score=score, reason=reason)
        return _answer_of(question, yes=yes, accept=accept, edit=edit, reason=reason)

    info, question, left = reading(journal, lambda store: _answer(store, name, path, answer_to))
    if go_on:
        return resume_run(info.run_id, RunCommandOptions(journal=journal, as_json=as_json))
    _report(info, question, left, journal, as_json=as_json)
    return 0


async def _answer(
    store: Journal, name: str, path: str, answer_to: Callable[[Question], Json]
) -> tuple[RunInfo, Question, list[Question]]:
    info = await find_run(store, name)
    if not path:
        questions = await pending(store, info.run_id)
        if not questions:
            raise _not_open(info, "", questions)
        if len(questions) > 1:
            paths = ", ".join(question.path for question in questions)
            raise ConfigurationError(
                f"{info.run_id} has {len(questions)} open questions. Give the path of one: {paths}"
            )
        path = questions[0].path
    # Without such a question `answer` reports the error, with the nearest path.
    named = [q for q in await pending(store, info.run_id) if q.path == path]
    value = answer_to(named[0]) if named else None
    # The journal records the answer, and no record may hold a key.
    of_environment(os.environ).refuse("answer", value)
    question = await answer(store, info.run_id, path.strip("/"), value)
    return info, question, await pending(store, info.run_id)


def _not_open(info: RunInfo, path: str, questions: list[Question]) -> ConfigurationError:
    """Return the error for a run without an open question, or without one at a path."""
    if not questions:
        return ConfigurationError(f"{info.run_id} has no open question; it is {info.status}")
    paths = [question.path for question in questions]
    hint = nearest(path, paths) or f"; questions are open at {', '.join(map(repr, paths))}"
    return ConfigurationError(f"{info.run_id}: no question is open at {path!r}{hint}")


def _verdict(
    question: Question, *, passed: bool, failed: bool, score: float | None, reason: str
) -> Json:
    if question.kind != "verdict":
        raise ConfigurationError(
            f"--passed, --failed and --score apply to verdicts; the question at {question.path} is of the kind {question.kind}"
        )
    if not (passed or failed or score is not None):
        raise ConfigurationError(
            f"{question.path} asks for a verdict. Use --passed, --failed or --score X."
        )
    answer: dict[str, Json] = {"passed": passed} if score is None else {"score": score}
    return {**answer, **({"reason": reason} if reason else {})}


def _choice(question: Question, pick: int | None) -> Json:
    if question.kind != "choice":
        raise ConfigurationError(
            f"--pick applies to candidates; the question at {question.path} is of the kind {question.kind}"
        )
    if pick is None:
        raise ConfigurationError(f"{question.path} asks for a candidate. Use --pick N.")
    return {"pick": pick}


def _answer_of(
    question: Question,
    *,
    yes: bool,
    accept: bool = False,
    edit: str | None = None,
    reason: str = "",
) -> Json:
    """Return the meaning of the options for this kind of question."""
    kind = question.kind
    if accept and kind != "iteration":
        raise ConfigurationError(
            f"--accept applies to iterations; the question at {question.path} is of the kind {kind}"
        )
    if edit is not None:
        return _edited(question, _parsed(edit), accept=accept)
    if kind == "doubt":
        return "rerun" if yes else "fail"
    if kind == "free":
        raise ConfigurationError(f"{question.path} asks for a value. Use --value ANSWER.")
    if accept:
        return {"approve": False, "accept": True}
    return {"approve": yes, **({"reason": reason} if reason else {})}


def _edited(question: Question, value: Json, *, accept: bool = False) -> Json:
    if question.kind == "tool":
        return {"approve": True, "arguments": value}
    if question.kind == "limit":
        return {"approve": True, "more": value}
    if question.kind == "doubt":
        return {"output": value}
    if question.kind in ("free", "choice"):
        return value
    changes = value if isinstance(value, dict) else {"feedback": value}
    return {**changes, **({"approve": False, "accept": True} if accept else {"approve": True})}


def _parsed(text: str) -> Json:
    """Return the JSON value of a text, or else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _list(name: str, path: str, journal: str, *, as_json: bool) -> RunInfo | None:
    """Write the open questions; return the run if one was answered at the terminal."""

    async def read(store: Journal) -> tuple[RunInfo, list[Question]]:
        info = await find_run(store, name)
        return info, open_questions(surviving(await store.entries(info.run_id)))

    info, all_questions = reading(journal, read)
    questions = [question for question in all_questions if path in ("", question.path)]
    with Output(as_json=as_json) as output:
        if as_json:
            rows = [question.to_json() for question in questions]
            output.write_json({"run_id": info.run_id, "status": info.status, "questions": rows})
        if not questions:
            if not all_questions and info.status in ("suspended", "interrupted"):
                report_continuation(info, output, journal)
            raise _not_open(info, path, all_questions)
        if as_json:
            return None
        for question in questions:
            paths = [question.path] if len(questions) > 1 else []
            _show(question, command_line("approve", info.run_id, journal, *paths), output)
        if not (questions and output.terminal and sys.stdin is not None and sys.stdin.isatty()):
            return None
        # All questions in one pass, because the run continues only after the last answer.
        answered = [_ask(info.run_id, question, journal, output) for question in questions]
        return info if any(answered) else None


def _ask(run_id: str, question: Question, journal: str, output: Output) -> bool:
    """Ask at the terminal until an answer fits; return False if the question is left open."""
    kind = _KINDS[question.kind]
    while True:
        prompt = f"{kind.prompt}. Enter leaves it open."
        output.write((f"{texts.one_line(question.path)}: ", "bold"), prompt, wrap=True)
        line = _line(output)
        if not line:
            output.write("the question stays open")
            return False
        try:
            value = _typed(question, line)
            of_environment(os.environ).refuse("answer", value)
            # A typing error such as "yse" would otherwise be recorded as feedback.
            if line.lower() not in kind.words:
                shown = texts.fit(texts.one_line(line), 60, output.signs)
                output.write(f"Record {shown!r} as {kind.text_is}? [y/N]", wrap=True)
                if _line(output).lower() not in ("y", "yes"):
                    continue
            reading(journal, partial(answer, run_id=run_id, path=question.path, value=value))
        except ConfigurationError as error:
            output.note(str(error))
            continue
        return True


def _line(output: Output) -> str:
    output.flush()
    try:
        return sys.stdin.readline().strip()
    except (OSError, ValueError):
        # A closed standard input leaves the question open.
        return ""


def _typed(question: Question, line: str) -> Json:
    """Return the answer in a typed line: a word or its first letter, or a value as for --edit."""
    if question.kind == "verdict":
        word = line.lower()
        return (
            {"passed": word[0] == "p"}
            if word in _KINDS["verdict"].words
            else {"score": _parsed(line)}
        )
    if question.kind == "free" or line.lower() not in _KINDS[question.kind].words:
        return _edited(question, _parsed(line))
    letter = line.lower()[0]
    return _answer_of(question, yes=letter == "y", accept=letter == "a")


def _offer_resume(info: RunInfo, journal: str) -> int:
    with Output() as output:
        if is_for_workers(info, journal):
            report_continuation(info, output, journal, lead="answered; ")
            return 0
        output.write("Resume the run now? [Y/n]")
        if _line(output).lower() not in ("", "y", "yes"):
            output.write(("resume: ", "dim"), resume_line(info, journal))
            return 0
    return resume_run(info.run_id, RunCommandOptions(journal=journal))


def _show(question: Question, command: str, output: Output) -> None:
    output.write((texts.one_line(question.path), "bold"), f"  since {texts.when(question.since)}")
    output.write("  " + texts.one_line(question.detail), wrap=True)
    for key, value in {**question.request, **side_by_side(question)}.items():
        if key in _SHOWN_APART or value in (None, ""):
            continue
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        lines = [texts.clean(line) for line in text.expandtabs(4).split("\n")]
        if len(lines) == 1:
            output.write((f"  {key}: ", "dim"), texts.fit(lines[0], output.width - len(key) - 4))
            continue
        output.write((f"  {key}:", "dim"))
        for line in lines[:SHOWN]:
            output.write("    " + texts.fit(line, output.width - 4, output.signs))
        if len(lines) > SHOWN:
            left = texts.plural(len(lines) - SHOWN, "more line")
            output.write((f"    {output.signs.more} {left}", "dim"))
    output.write(("  answer: ", "dim"), command, (" with one of", "dim"))
    for option in _KINDS[question.kind].options:
        output.write(f"    {option}")


def _report(
    info: RunInfo, question: Question, left: list[Question], url: str, *, as_json: bool
) -> None:
    with Output(as_json=as_json) as output:
        if as_json:
            rows = [one.to_json() for one in left]
            output.write_json(
                {"run_id": info.run_id, "path": question.path, "answered": True, "questions": rows}
            )
            return
        output.write(f"{info.run_id}: {texts.one_line(text_of(question.path))} is answered")
        for other in left:
            output.write((f"still waiting at {texts.one_line(other.path)}: ", "bold"), other.detail)
        if is_for_workers(info, url) and not left:
            report_continuation(info, output, url, lead="answered; ")
        else:
            output.write(("resume: ", "dim"), resume_line(info, url))
