"""Questions to people as forms, and what a filled form answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...conditions import CEILING
from ...errors import ConfigurationError
from ...journal.questions import Question
from ...records.codec import Json, text_of
from ..inputs import input_value

__all__ = ["QuestionForm", "answer_of", "asked_of"]

_BUTTONS = {
    "tool": [("approve", "Approve"), ("refuse", "Refuse")],
    "iteration": [("approve", "Go on"), ("accept", "Accept this output"), ("refuse", "End it")],
    "limit": [("approve", "Go on"), ("refuse", "End it")],
    "doubt": [("rerun", "Run it again"), ("fail", "Count it as failed")],
    "free": [("value", "Answer")],
}
_HIDDEN = ("kind", "loop", "iteration", "more")


@dataclass(frozen=True, slots=True)
class QuestionForm:
    """A question as a form: what is shown, what may be edited, and the buttons."""

    path: str
    kind: str
    detail: str
    shown: list[tuple[str, str]]
    buttons: list[tuple[str, str]]
    feedback: str
    output: str
    arguments: str
    more: str
    most: int = CEILING

    @property
    def of_output(self) -> bool:
        """Whether it asks about an output."""
        return self.kind in ("iteration", "limit")


def asked_of(questions: Iterable[Question]) -> list[QuestionForm]:
    """Return questions as forms."""
    return [_asked(question) for question in questions]


def _asked(question: Question) -> QuestionForm:
    request = question.request
    edited = {"iteration": ("output", "feedback"), "tool": ("arguments",)}.get(question.kind, ())
    shown = [
        (name.replace("_", " "), text_of(value))
        for name, value in request.items()
        if name not in (*_HIDDEN, *edited) and value not in (None, "")
    ]
    arguments = request.get("arguments")
    return QuestionForm(
        path=question.path,
        kind=question.kind,
        detail=question.detail,
        shown=shown,
        buttons=_BUTTONS[question.kind],
        feedback=text_of(request.get("feedback")),
        output=text_of(request.get("output")),
        arguments="" if arguments is None else json.dumps(arguments, indent=2, ensure_ascii=False),
        more=text_of(request.get("more")),
        most=_most(request),
    )


def _most(request: Mapping[str, Json]) -> int:
    """Return how many iterations more a loop can be given."""
    done = request.get("iteration")
    return CEILING - done if isinstance(done, int) else CEILING


def answer_of(question: Question, given: Mapping[str, Json]) -> Json:
    """Return what a filled form answers; fields that were left as they were say nothing.

    Raises:
        ConfigurationError: for a choice that the question does not have, or arguments that are no JSON.
    """
    choice = given.get("choice")
    if choice not in [value for value, _ in _BUTTONS[question.kind]]:
        raise ConfigurationError(f"{question.path}: choose one of the buttons")
    if question.kind == "doubt":
        return choice
    if question.kind == "free":
        return input_value(text_of(given.get("value")))
    if choice == "refuse":
        return {"approve": False}
    answer: dict[str, Json] = {"approve": choice == "approve"}
    if choice == "accept":
        answer["accept"] = True
    for name in ("feedback", "output"):
        text = text_of(given.get(name))
        was = text_of(question.request.get(name))
        if question.kind == "iteration" and _lines(text) != _lines(was):
            answer[name] = input_value(text) if name == "output" else text
    if question.kind == "limit" and (more := text_of(given.get("more"))):
        answer["more"] = _whole(question, more)
    if question.kind == "tool" and (text := text_of(given.get("arguments"))):
        arguments = input_value(text)
        if arguments != question.request.get("arguments"):
            answer["arguments"] = arguments
    return answer


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").strip("\n")  # what a text field makes of a text


def _whole(question: Question, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise ConfigurationError(f"{question.path}: more: {text!r} is not a whole number")
    return int(text)
