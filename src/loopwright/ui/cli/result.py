"""How a run ended, as people and programs are told it."""

from __future__ import annotations

from collections.abc import Sequence

from ...conditions import UNITS, unit_of
from ...journal.questions import Question
from ...records import Reason, Result, Status
from ...records.codec import Json, text_of
from .. import formatting as texts
from ..journals import again, shown_url
from ..run_summary import result_json
from .failures import tell_failure
from .live import ending_text
from .output import Output

__all__ = ["tell_interrupted", "tell_output", "tell_questions", "tell_result"]

_RAISED_BY = {
    Reason.MAX_ITERATIONS: "--max-iterations",
    Reason.PHASE_LIMIT: "--max-iterations",
}
SHOWN_LINES = 60  # of an output on a terminal; a pipe gets all of it
_STYLES = {
    Status.SATISFIED: "bold green",
    Status.EXHAUSTED: "bold yellow",
    Status.SUSPENDED: "bold cyan",
}


def tell_result(
    result: Result, output: Output, url: str, questions: Sequence[Question] = ()
) -> None:
    """Tell why a run ended, what it gave, where it is kept and how to look closer."""
    output.say((ending_text(result), _STYLES.get(result.status, "bold red")), wrap=True)
    kept = not url.startswith("memory:")  # else no other process finds it
    command = again("show", result.run_id, url, "--traceback") if kept else ""
    tell_failure(result, output, command)
    for warning in result.warnings:
        output.note(f"warning: {texts.one_line(warning)}")
    if result.request and not questions:
        asked = {key: value for key, value in result.request.items() if key != "path"}
        output.say(
            f"waits at {result.request.get('path', '')}: {texts.one_line(text_of(asked or ''))}"
        )
    tell_output(result.output, output, questions)
    if not kept:
        output.say(("kept nowhere: memory: ends with this process", "dim"))
        return
    output.say((f"kept in {shown_url(url)}", "dim"))
    output.say(("look closer: ", "dim"), again("show", result.run_id, url))
    if questions:
        tell_questions(questions, output, result.detail)
        output.say(("answer: ", "dim"), again("approve", result.run_id, url))
    elif further := _raised_by(result):
        more = again("resume", result.run_id, url, further, "N")
        output.say(("go further: ", "dim"), more)
    elif result.status is Status.SUSPENDED:
        output.say(("go on: ", "dim"), again("resume", result.run_id, url))


def _raised_by(result: Result) -> str:
    """Return the option that raises the limit that ended a run, or ""."""
    if result.reason is Reason.BUDGET:
        unit = unit_of(result.detail)
        names = [name for name, raised in UNITS.items() if raised == unit]
        return "".join(f"--{name.replace('_', '-')}" for name in names)
    return _RAISED_BY.get(result.reason, "")


def tell_questions(questions: Sequence[Question], output: Output, known: str = "") -> None:
    """Tell what a run waits for: a line per question, with its path; `known` is told already."""
    for question in questions:
        told = "" if question.detail == known else f": {texts.one_line(question.detail)}"
        output.say((f"waits at {texts.one_line(question.path)}", "bold"), told, wrap=True)


def tell_interrupted(result: Result | None, output: Output, signal: str, url: str) -> None:
    """Tell what is on record of a run that a signal ended, and how to go on with it."""
    if result is None:
        output.note(f"stopped by {signal} before anything was recorded")
        return
    if output.as_json:
        output.give(result_json(result))
    output.say((ending_text(result, "interrupted"), "bold yellow"), wrap=True)
    output.note(f"nothing recorded is lost; go on with: {again('resume', result.run_id, url)}")


def tell_output(value: Json, output: Output, questions: Sequence[Question] = ()) -> None:
    """Show the output of a run, or the one that it asks about.

    On a terminal it is wrapped at words, as far as SHOWN_LINES go; else it is as it is.
    """
    title = "output:"
    asked = [question.request["output"] for question in questions if "output" in question.request]
    if asked:
        value, title = asked[0], "output asked about:"
    if value is None:
        output.say(("output: none", "dim"))
        return
    text = text_of(value)
    if not output.terminal:
        output.say(title)
        output.say(text)
        return
    lines = output.wrapped(texts.clean(text).expandtabs(4), output.width - 2)
    output.say((title, "dim"))
    for line in lines[:SHOWN_LINES]:
        output.say("  " + line)
    if len(lines) > SHOWN_LINES:
        left = texts.plural(len(lines) - SHOWN_LINES, "more line")
        output.say((f"  {output.signs.more} {left}; show --output has all", "dim"))
