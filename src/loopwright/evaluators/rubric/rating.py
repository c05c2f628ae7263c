"""The question that rates an output by several criteria at once, and the reading of the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...models import Message, Reply, read_value
from ...records.codec import Json
from ..judge.questions import DATA, MARK, block, own_objects
from ..parsing.answers import Object
from ..parsing.scales import of_100

__all__ = [
    "CUT",
    "Rating",
    "Ratings",
    "criteria_messages",
    "cut",
    "listed_criteria",
    "read_criteria",
]

# The texts for the model in this module are part of recorded fingerprints.
CUT = 4000  # characters of an output that are rated, as in the loop controller
MOST = 5  # the maximum of criteria that a model derives from a goal
_SYSTEM = (
    f"You rate a candidate by several criteria. {DATA} Give each criterion a score from 0 to 100 for "
    "how well it is met, say in its gap what is missing (empty if nothing is), and suggest what would "
    "make the candidate better."
)
_ITEM = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+(\S.*?)\s*$", re.MULTILINE)
_GOAL_SYSTEM = (
    "You turn a goal into criteria by which work towards it can be rated. Each is one sentence that "
    "can be checked in the work itself."
)
CRITERIA_SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "properties": {"criteria": {"type": "array", "items": {"type": "string"}}},
    "required": ["criteria"],
    "additionalProperties": False,
}


def cut(text: str) -> str:
    """Return the rated part of an output: its first 4,000 characters, with a note if it was cut."""
    if len(text) <= CUT:
        return text
    return f"{text[:CUT]}\n[… cut here: {len(text) - CUT} more characters are not shown …]"


@dataclass(frozen=True, slots=True)
class Ratings:
    """The content of one answer: a score from 0 to 1 and a gap for each criterion, and suggestions.

    `problem` says why the answer could not be read; it is "" if it could.
    """

    scores: tuple[float, ...] = ()
    gaps: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Rating:
    """The question that asks for all criteria at once."""

    criteria: tuple[str, ...]

    @property
    def schema(self) -> Mapping[str, Json]:
        """The JSON Schema of the answer."""
        score = {"type": "integer", "minimum": 0, "maximum": 100}
        # Numbered members: the sentences themselves are too long and too varied for keys of a JSON Schema.
        members: dict[str, Json] = {}
        for number in range(1, len(self.criteria) + 1):
            members |= {f"score_{number}": score, f"gap_{number}": {"type": "string"}}
        members["suggestions"] = {"type": "array", "items": {"type": "string"}}
        members["mark"] = MARK
        return {
            "type": "object",
            "properties": members,
            "required": list(members),
            "additionalProperties": False,
        }

    @property
    def answer(self) -> str:
        """The instruction that describes the form of the answer."""
        fields = ", ".join(
            f'"score_{n}": 0 to 100, "gap_{n}": text' for n in range(1, len(self.criteria) + 1)
        )
        return f'Answer with a JSON object: {{{fields}, "suggestions": list of texts, "mark": the mark above}}.'

    def messages(self, goal: str, text: str, mark: str) -> list[Message]:
        """Return the messages to the model. `text` is the rated part of the output."""
        listed = "\n".join(f"{n}. {text_}" for n, text_ in enumerate(self.criteria, start=1))
        about = f"Goal of the work:\n{goal}\n\n" if goal else ""
        question = f"{about}Criteria:\n{listed}\n\n{block(text, mark)}\n{self.answer}"
        return [Message("system", _SYSTEM), Message("user", question)]

    def read(self, reply: Reply, text: str, mark: str) -> Ratings:
        """Read an answer. A missing or ambiguous score makes it unreadable. Never raises."""
        objects = own_objects(reply, text, mark, [f"score_{n}" for n in self._numbers])
        # Unmarked objects may repeat a candidate that contains scores.
        own = [one for one in objects.read if one.marked or not objects.suspect]
        if not own:
            if objects.read or objects.repeated:
                return Ratings(problem='it repeats the candidate or lacks its "mark"')
            return Ratings(problem="it has no JSON object with the scores")
        read = [self._ratings(one) for one in own]
        if len({one.scores for one in read}) > 1:
            return Ratings(problem="it gives different scores")
        if objects.damaged and not read[0].problem:
            return Ratings(problem="it has a JSON value that is broken or does not end")
        return read[0]

    @property
    def _numbers(self) -> range:
        return range(1, len(self.criteria) + 1)

    def _ratings(self, one: Object) -> Ratings:
        scores, ones = [], []
        for number in self._numbers:
            value = one.members.get(f"score{number}")
            score, problem, note = of_100(value)
            # A missing score is not 0: one criterion without a score makes the mean unknown.
            if value is None or problem or note:
                why = problem or note or "it is missing"
                return Ratings(problem=f"score_{number}: {why}")
            assert score is not None
            scores.append(score)
            ones += [number] if score == 0.01 and isinstance(value, int | float) else []
        # If no score is above 1, the model may have used the scale of 0 to 1.
        if ones and max(scores) <= 0.01:
            return Ratings(problem=f"score_{ones[0]}: 1 may mean 1 of 100 or 1 of 1")
        gaps = tuple(_text(one.members.get(f"gap{n}")) for n in self._numbers)
        return Ratings(tuple(scores), gaps, _texts(one.members.get("suggestions")))


def _text(value: Json) -> str:
    return value.strip() if isinstance(value, str) else ""


def _texts(value: Json) -> tuple[str, ...]:
    items = value if isinstance(value, list) else []
    return tuple(text for item in items if (text := _text(item)))


def listed_criteria(goal: str) -> list[str]:
    """Return the criteria listed in a goal as `- …` or `1. …`."""
    return list(dict.fromkeys(_ITEM.findall(goal)))


def criteria_messages(goal: str) -> list[Message]:
    """Return the messages that ask a model for the criteria of a goal."""
    question = (
        f"Goal:\n{goal}\n\nGive 3 to {MOST} criteria. Answer with a JSON object: "
        '{"criteria": list of texts}.'
    )
    return [Message("system", _GOAL_SYSTEM), Message("user", question)]


def read_criteria(reply: Reply) -> Sequence[str]:
    """Return the criteria in an answer, at most 5. An unreadable answer has none."""
    # Structured output if the endpoint supports it, otherwise JSON in the text.
    data = reply.data
    if data is None:
        data = read_value(reply.text, CRITERIA_SCHEMA, finish=reply.finish).value
    criteria = _texts(data.get("criteria")) if isinstance(data, Mapping) else ()
    return list(dict.fromkeys(criteria))[:MOST]
