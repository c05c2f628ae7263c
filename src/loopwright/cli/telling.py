"""How a run ended, as people and programs are told it."""

from __future__ import annotations

from collections.abc import Sequence

from ..approvals import Question
from ..codec import Json, text_of
from ..records import Reason, Result, Status
from . import texts
from .journals import again, shown_url
from .output import Output
from .recorded import result_json
from .rows import ending_text

__all__ = ["tell_interrupted", "tell_output", "tell_questions", "tell_result"]

_RAISED_BY = {
    Reason.MAX_ITERATIONS: ("--max-iterations", "N"),
    Reason.PHASE_LIMIT: ("--max-iterations", "N"),
    Reason.BUDGET: ("--max-usd", "N"),
}
SHOWN_LINES = 12  # of an output on a terminal; a pipe gets all of it
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
    for warning in result.warnings:
        output.note(f"warning: {texts.one_line(warning)}")
    if result.request and not questions:
        asked = {key: value for key, value in result.request.items() if key != "path"}
        output.say(
            f"waits at {result.request.get('path', '')}: {texts.one_line(text_of(asked or ''))}"
        )
    tell_output(result.output, output)
    if url.startswith("memory:"):  # no other process finds it: there is nothing to look closer at
        output.say(("kept nowhere: memory: ends with this process", "dim"))
        return
    output.say((f"kept in {shown_url(url)}", "dim"))
    output.say(("look closer: ", "dim"), again("show", result.run_id, url))
    if questions:
        tell_questions(questions, output, result.detail)
        output.say(("answer: ", "dim"), again("approve", result.run_id, url))
    elif result.reason in _RAISED_BY and (result.reason is not Reason.BUDGET or result.usage.usd):
        more = again("resume", result.run_id, url, *_RAISED_BY[result.reason])
        output.say(("go further: ", "dim"), more)
    elif result.status is Status.SUSPENDED:
        output.say(("go on: ", "dim"), again("resume", result.run_id, url))


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


def tell_output(value: Json, output: Output) -> None:
    """Show an output: on a terminal its first lines, else all of it."""
    if value is None:
        output.say(("output: none", "dim"))
        return
    text = text_of(value)
    if not output.terminal:
        output.say("output:")
        output.say(text)
        return
    lines = texts.clean(text).expandtabs(4).split("\n")
    room = output.width - 2
    output.say(("output:", "dim"))
    for line in lines[:SHOWN_LINES]:
        output.say("  " + texts.fit(line, room, output.signs))
    if len(lines) > SHOWN_LINES:
        left = texts.plural(len(lines) - SHOWN_LINES, "more line")
        output.say((f"  {output.signs.more} {left}", "dim"))
