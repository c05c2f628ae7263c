"""One case of a data set."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import ConfigurationError, StepError
from ..records.codec import Json, normalise, number
from ..records.typed import Record, viewed

__all__ = ["Case"]

_MAX_ID = 200  # characters, because an ID is a part of a path in the journal

# Sorted keys, so that the order in a file has no effect.
_canonical = json.JSONEncoder(
    sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
).encode


@viewed("inputs", "expected", "metadata", "evaluators")
@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Case(Record):
    """One case: what a task gets, and what is expected of its output.

    Args:
        inputs: what the task gets, as JSON.
        expected: what evaluators compare the output with. Default: None, no expectation.
        id: its name, unique in a data set, at most 200 characters in one line. Default: the first 16
            characters of its digest.
        metadata: other facts about it, as a JSON object. Default: none.
        evaluators: evaluators of this case only, as the values of `evaluate:` in a document. Default: none.
        weight: its weight in the mean, above 0. Default: 1.
        group: the name of what it depends on with other cases, such as a customer. Default: "", nothing.
        place: where it stands, such as `cases.jsonl:17`, for messages. Default: "".

    Raises:
        ConfigurationError: for a value that JSON cannot hold, or an invalid ID or weight.

    Example:
        >>> case = Case("What is 2 + 2?", "4", id="sum")
        >>> case.to_json()
        {'id': 'sum', 'inputs': 'What is 2 + 2?', 'expected': '4'}
    """

    inputs: Json
    expected: Json
    id: str
    metadata: Mapping[str, Json]
    evaluators: tuple[Json, ...]
    weight: float
    group: str = field(compare=False)
    place: str = field(compare=False)
    digest: str
    """32 hex digits of its content without ID, group and place. Equal digests are equal cases."""

    def __init__(
        self,
        inputs: Json,
        expected: Json = None,
        *,
        id: str = "",
        metadata: Mapping[str, Json] | None = None,
        evaluators: Sequence[Json] = (),
        weight: float = 1.0,
        group: str = "",
        place: str = "",
    ) -> None:
        content = {
            "inputs": inputs,
            "expected": expected,
            "metadata": metadata or {},
            "evaluators": list(evaluators) if isinstance(evaluators, tuple) else evaluators,
        }
        try:
            content = normalise(content, "case")
        except StepError as error:
            raise ConfigurationError(str(error)) from error
        if not isinstance(id, str) or len(id) > _MAX_ID or not id.isprintable():
            raise ConfigurationError(
                f"id: {id!r:.60} is not a text of at most {_MAX_ID} characters in one line"
            )
        if not isinstance(content["metadata"], dict):
            raise ConfigurationError(f"metadata: {metadata!r:.60} is not an object")
        if not isinstance(content["evaluators"], list):
            raise ConfigurationError(f"evaluators: {evaluators!r:.60} is not a list")
        weight = number("weight", weight, minimum=0, above=True)
        text = _canonical([*content.values(), weight])
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        values = {
            **content, "evaluators": tuple(content["evaluators"]), "id": id or digest[:16], "weight": weight,
            "group": group, "place": place, "digest": digest,
        }  # fmt: skip
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def to_json(self) -> dict[str, Json]:
        """Return the case as a line of a JSONL file has it, without what has its default."""
        data: dict[str, Json] = {"id": self.id, "inputs": self.inputs}
        if self.expected is not None:
            data["expected"] = self.expected
        if self.metadata:
            data["metadata"] = dict(self.metadata)
        if self.evaluators:
            data["evaluators"] = list(self.evaluators)
        if self.weight != 1:
            data["weight"] = self.weight
        return data

    def for_task(self) -> Case:
        """Return the case without what a task must not see: what is expected, and how its output is judged."""
        case = object.__new__(_TaskCase)
        for name in ("inputs", "id", "metadata", "weight", "group", "place", "digest"):
            object.__setattr__(case, name, getattr(self, name))
        object.__setattr__(case, "evaluators", ())
        return case

    def variables(self) -> dict[str, Json]:
        """Return the variable `case` of templates."""
        return {
            "id": self.id,
            "inputs": self.inputs,
            "expected": self.expected,
            "metadata": dict(self.metadata),
        }


class _TaskCase(Case):
    """A case as a task sees it."""

    __slots__ = ()

    @property
    def expected(self) -> Json:
        raise AttributeError("case.expected: a task does not see it, only its evaluators do")

    def variables(self) -> dict[str, Json]:
        return {"id": self.id, "inputs": self.inputs, "metadata": dict(self.metadata)}
