"""One case of a data set."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import ConfigurationError, StepError
from ..records.codec import Json, normalise, number
from ..records.typed import Value

__all__ = ["Case"]

_MAX_ID = 200  # characters, because an ID is a part of a path in the journal
_put = object.__setattr__

# Sorted keys, so that the order in a file has no effect.
_canonical = json.JSONEncoder(
    sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
).encode


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Case(Value):
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
        if not isinstance(id, str) or len(id) > _MAX_ID or not (id.isprintable() or id == ""):
            raise ConfigurationError(
                f"id: {id!r:.60} is not a text of at most {_MAX_ID} characters in one line"
            )
        if metadata is not None and not isinstance(metadata, Mapping):
            raise ConfigurationError(f"metadata: {metadata!r:.60} is not an object")
        if isinstance(evaluators, str | Mapping) or not isinstance(evaluators, Sequence):
            raise ConfigurationError(f"evaluators: {evaluators!r:.60} is not a list")
        try:
            content = {
                "inputs": normalise(inputs, "inputs"),
                "expected": normalise(expected, "expected"),
                "metadata": normalise(metadata or {}, "metadata"),
                "evaluators": normalise(list(evaluators), "evaluators"),
                "weight": number("weight", weight, minimum=0, above=True),
            }
        except StepError as error:
            raise ConfigurationError(str(error)) from error
        digest = hashlib.sha256(_canonical(content).encode()).hexdigest()[:32]
        for name, value in content.items():
            _put(self, name, value)
        _put(self, "evaluators", tuple(content["evaluators"]))
        _put(self, "id", id or digest[:16])
        _put(self, "group", group)
        _put(self, "place", place)
        _put(self, "digest", digest)

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
