"""What agents are asked to answer, and how their replies are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import StepError
from ...records.codec import Json
from .text import clean_text, objects_in, reply_text, without_thinking

if TYPE_CHECKING:
    from ..rubric.criteria_prompt import Criteria

__all__ = ["KINDS", "Answer", "read_binary", "read_classification", "same_decision"]

KINDS = ("text", "json", "binary", "classification", "criteria")
NOT_CLASSIFIED = "not-classified"
_YES = frozenset({"yes", "true", "correct", "right", "affirmative", "1"})
_NO = frozenset({"no", "false", "incorrect", "wrong", "negative", "not", "0"})
_WORD = re.compile(r"[^\W_]+")
_LABELS = ("response", "category", "classification", "result")  # of an answer that is an object


@dataclass(frozen=True)
class Answer:
    """An answer of a kind: `said` is added to the prompt, `read` makes the output of a reply.

    `criteria` are those of a validator.
    """

    kind: str
    said: str
    read: Callable[[str], Json]
    criteria: Criteria | None = None


def answer(kind: str, options: Sequence[str] = ()) -> Answer:
    """Return the answer of a kind: text as it is, json, binary (true or false), one of some options."""
    if kind == "binary":
        return Answer(kind, "Answer with true or false only.", read_binary)
    if kind == "classification":
        said = f"Answer with exactly one of: {', '.join(options)}." if options else ""
        return Answer(kind, said, lambda text: read_classification(text, options))
    return Answer(kind, "", _object if kind == "json" else lambda text: text)


def _object(text: str) -> Json:
    """Return a reply that is an object with a `response` as that, any other without thinking aloud."""
    said = without_thinking(text)
    found = next((o for o in objects_in(said) if "response" in o), None)
    return dict(found) if found is not None else said


def read_binary(text: str) -> bool:
    """Return whether a reply says yes: by its first word that is a yes or a no.

    Raises:
        StepError: if it says neither.
    """
    found = next(objects_in(text), None)
    if found is not None and isinstance(found.get("response", found.get("result")), bool | str):
        text = reply_text(found.get("response", found.get("result")))
    for word in _WORD.findall(clean_text(without_thinking(text)).lower()):
        if word in _YES or word in _NO:
            return word in _YES
    raise StepError(
        f"the reply {text[:60]!r} is neither true nor false; ask for true or false only",
        kind="unreadable",
    )


def read_classification(text: str, options: Sequence[str]) -> str:
    """Return the option that a reply is, or the only one that it names; else `not-classified`."""
    told = (o[key] for o in objects_in(text) for key in _LABELS if key in o)
    said = reply_text(next(told, text))
    said = clean_text(without_thinking(said)).strip().strip("\"'`*. ").casefold()
    for option in options:
        if option.casefold() == said:
            return option
    named = [o for o in options if re.search(rf"(?<!\w){re.escape(o.casefold())}(?!\w)", said)]
    return named[0] if len(named) == 1 else NOT_CLASSIFIED


def same_decision(output: Json, key: str) -> bool:
    """Whether an agent's output is a decision for a key: the same word, or both true or both false."""
    if isinstance(output, Mapping) and "result" in output and "response" not in output:
        output = output["result"]
    said = clean_text(reply_text(output)).strip().strip("\"'`*. ").casefold()
    wanted = key.strip().casefold()
    if said == wanted:
        return True
    return (said in _YES and wanted in _YES) or (said in _NO and wanted in _NO)
