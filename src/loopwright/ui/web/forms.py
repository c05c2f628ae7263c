"""Open questions as forms, and the answers in submitted forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ...conditions import CEILING
from ...documents.schema.inputs import DeclaredInputs, InputSpec
from ...errors import ConfigurationError
from ...journal.questions import Question, side_by_side
from ...records.codec import Json, text_of
from ..inputs import input_value

_BUTTONS = {
    "tool": [("approve", "Approve"), ("refuse", "Refuse")],
    "iteration": [
        ("approve", "Continue"),
        ("accept", "Accept this output"),
        ("refuse", "End the loop"),
    ],
    "limit": [("approve", "Continue"), ("refuse", "End the loop")],
    "verdict": [
        ("passed", "It is good"),
        ("failed", "It is not good"),
        ("score", "Give the score"),
    ],
    "hold": [("approve", "Continue")],
    "doubt": [("rerun", "Run it again"), ("fail", "Count it as failed")],
    "free": [("value", "Answer")],
}
_INPUT = "input."  # before the name of an input in the name of its field
# These are in the heading or in a field of the form.
_HIDDEN = ("kind", "loop", "iteration", "more", "candidates")


@dataclass(frozen=True, slots=True)
class QuestionForm:
    """A question as a form: its facts, its fields and its buttons."""

    path: str
    kind: str
    detail: str
    shown: list[tuple[str, str]]
    buttons: list[tuple[str, str]]
    feedback: str
    output: str
    arguments: str
    more: str
    maximum: int = CEILING

    @property
    def of_output(self) -> bool:
        """Whether the question is about an output."""
        return self.kind in ("iteration", "limit", "verdict")


def form_of(question: Question) -> QuestionForm:
    """Return a question as a form."""
    request = question.request
    edited = {
        "iteration": ("output", "feedback"),
        "verdict": ("output",),
        "tool": ("arguments",),
    }.get(question.kind, ())
    shown = [
        (name.replace("_", " "), text_of(value))
        for name, value in {**request, **side_by_side(question)}.items()
        if name not in (*_HIDDEN, *edited) and value not in (None, "")
    ]
    arguments, done = request.get("arguments"), request.get("iteration")
    # A sentence of `until` is true or not.
    buttons = [b for b in _buttons(question) if b[0] != "score" or "sentence" not in request]
    return QuestionForm(
        path=question.path,
        kind=question.kind,
        detail=question.detail,
        shown=shown,
        buttons=buttons,
        feedback=text_of(request.get("feedback")),
        output=text_of(request.get("output")),
        arguments="" if arguments is None else json.dumps(arguments, indent=2, ensure_ascii=False),
        more=text_of(request.get("more")),
        maximum=CEILING - done if isinstance(done, int) else CEILING,
    )


def _buttons(question: Question) -> list[tuple[str, str]]:
    if question.kind != "choice":
        return _BUTTONS[question.kind]
    # The first button is the one that stands out.
    best = question.request["best"]
    numbers = sorted(
        (one["number"] for one in question.request["candidates"]), key=lambda one: one != best
    )
    return [(str(number), f"Candidate {number}") for number in numbers]


def answer_of(question: Question, fields: Mapping[str, Json]) -> Json:
    """Return the answer in a submitted form; unchanged fields are ignored.

    Raises:
        ConfigurationError: for an unknown choice, or a number of iterations that is not an integer.
    """
    choice = fields.get("choice")
    if choice not in [value for value, _ in _buttons(question)]:
        raise ConfigurationError(f"{question.path}: use one of the buttons")
    if question.kind == "choice":
        return {"pick": int(text_of(choice))}
    if question.kind == "doubt":
        return choice
    if question.kind == "free":
        return input_value(text_of(fields.get("value")))
    if question.kind == "verdict":
        return _verdict(question, str(choice), fields)
    if choice == "refuse":
        return {"approve": False}
    answer: dict[str, Json] = {"approve": choice == "approve"}
    if choice == "accept":
        answer["accept"] = True
    return {**answer, **_edits(question, fields)}


@dataclass(frozen=True, slots=True)
class InputField:
    """A declared input as a field of a form, with the name of the field and its first value as text."""

    name: str
    field: str
    spec: InputSpec
    first: str


def fields_of(inputs: DeclaredInputs | None) -> list[InputField]:
    """Return the fields of declared inputs; none if a document declares none."""
    return [
        InputField(name, f"{_INPUT}{name}", spec, text_of(spec.default))
        for name, spec in (inputs.specs if inputs else {}).items()
    ]


def input_in(inputs: DeclaredInputs, fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return the input of a run in a submitted form; an empty field is a value that was not given.

    Raises:
        ConfigurationError: for a value that is not valid, or that is missing.
    """
    given = {
        one.name: inputs.value(one.name, fields[one.field], text=True)
        for one in fields_of(inputs)
        if fields.get(one.field) not in (None, "")
    }
    return inputs.complete(given)


def _verdict(question: Question, choice: str, fields: Mapping[str, Json]) -> Json:
    reason = text_of(fields.get("reason")).strip()
    more = {"reason": reason} if reason else {}
    if choice != "score":
        return {"passed": choice == "passed", **more}
    text = text_of(fields.get("score"))
    try:
        return {"score": float(text), **more}
    except ValueError:
        raise ConfigurationError(
            f"{question.path}: score: {text!r} is not a number from 0 to 1"
        ) from None


def _edits(question: Question, fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return the changed fields of a form."""
    edits: dict[str, Json] = {}
    if question.kind == "iteration":
        for name in ("feedback", "output"):
            text = text_of(fields.get(name))
            if _lines(text) != _lines(text_of(question.request.get(name))):
                edits[name] = input_value(text) if name == "output" else text
    if question.kind == "limit" and (more := text_of(fields.get("more"))):
        # `isdigit` alone accepts digits of other scripts.
        if not (more.isascii() and more.isdigit() and len(more) < 6):
            raise ConfigurationError(f"{question.path}: more: {more!r} is not an integer")
        edits["more"] = int(more)
    if question.kind == "tool" and (text := text_of(fields.get("arguments"))):
        arguments = input_value(text)
        if arguments != question.request.get("arguments"):
            edits["arguments"] = arguments
    return edits


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").strip("\n")  # a text field changes the line ends
