"""The answer formats of agents: the instruction in the prompt, and the reading of the reply."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import StepError
from ...models.protocol import Reply
from ...records.codec import Json
from .text import clean_text, objects_in, reply_text, without_thinking

if TYPE_CHECKING:
    from ..rubric.criteria_prompt import Criteria

__all__ = ["KINDS", "Answer", "read_binary", "read_classification", "same_decision"]

# The names, words and sentences below are fixed by the loop-node dialect and by recorded fingerprints.
KINDS = ("text", "json", "binary", "classification", "criteria")
NOT_CLASSIFIED = "not-classified"
# A reply often begins with "Correct" or "Right" instead of the requested "true".
_YES = frozenset({"yes", "true", "correct", "right", "affirmative", "1"})
_NO = frozenset({"no", "false", "incorrect", "wrong", "negative", "not", "0"})
_WORD = re.compile(r"[^\W_]+")
# In order of precedence: the members that models use for the label of a classification.
_LABELS = ("response", "category", "classification", "result")


@dataclass(frozen=True)
class Answer:
    """An answer format: `said` is added to the prompt, `read` returns the output of a reply.

    `criteria` are the criteria of a validator, None for other agents.
    """

    kind: str
    instruction: str
    read: Callable[[Reply], Json]
    criteria: Criteria | None = None


def answer(kind: str, options: Sequence[str] = ()) -> Answer:
    """Return an answer format: unchanged text, JSON, binary (true or false) or one of several options."""
    if kind == "binary":
        return Answer(
            kind, "Answer with true or false only.", lambda reply: read_binary(reply.text)
        )
    if kind == "classification":
        instruction = f"Answer with exactly one of: {', '.join(options)}." if options else ""
        return Answer(kind, instruction, lambda reply: read_classification(reply.text, options))
    return Answer(kind, "", _object if kind == "json" else lambda reply: reply.text)


def _object(reply: Reply) -> Json:
    """Return the object with a member `response` in a reply, otherwise the text without thinking blocks."""
    text = without_thinking(reply.text)
    reply_object = next((o for o in objects_in(text) if "response" in o), None)
    return dict(reply_object) if reply_object is not None else text


def read_binary(text: str) -> bool:
    """Return whether a reply means yes, by its first word that is a yes or a no.

    Raises:
        StepError: If it contains neither.
    """
    reply_object = next(objects_in(text), None)
    # Only these members are read: the words of other members, such as a reason, are not the answer.
    if reply_object is not None and isinstance(
        reply_object.get("response", reply_object.get("result")), bool | str
    ):
        text = reply_text(reply_object.get("response", reply_object.get("result")))
    for word in _WORD.findall(clean_text(without_thinking(text)).lower()):
        if word in _YES or word in _NO:
            return word in _YES
    raise StepError(
        f"the reply {text[:60]!r} is neither true nor false; ask for true or false only",
        kind="unreadable",
    )


def read_classification(text: str, options: Sequence[str]) -> str:
    """Return the option that a reply equals, or the only one it names, otherwise `not-classified`."""
    labels = (o[key] for o in objects_in(text) for key in _LABELS if key in o)
    label = reply_text(next(labels, text))
    label = clean_text(without_thinking(label)).strip().strip("\"'`*. ").casefold()
    for option in options:
        if option.casefold() == label:
            return option
    # Without word boundaries "unsafe" would count as "safe".
    matches = [o for o in options if re.search(rf"(?<!\w){re.escape(o.casefold())}(?!\w)", label)]
    return matches[0] if len(matches) == 1 else NOT_CLASSIFIED


def same_decision(output: Json, key: str) -> bool:
    """Whether an agent's output decides for a key: the same word, or both true or both false."""
    if isinstance(output, Mapping) and "result" in output and "response" not in output:
        output = output["result"]
    decision = clean_text(reply_text(output)).strip().strip("\"'`*. ").casefold()
    expected = key.strip().casefold()
    if decision == expected:
        return True
    # The key of a route may be `true` where the agent answers "yes".
    return (decision in _YES and expected in _YES) or (decision in _NO and expected in _NO)
