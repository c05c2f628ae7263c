"""One way in which an endpoint can fail, and what such ways have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from faulty_server import Answer

VERDICT = {
    "type": "object",
    "properties": {"verdict": {"enum": ["yes", "no"]}, "score": {"type": "integer"}},
    "required": ["verdict", "score"],
    "additionalProperties": False,
}

# One timer is short and the others are long: which one runs out does not depend on the machine.
BEGIN = {"timers": (1.0, 9.0, 9.0)}
IDLE = {"timers": (9.0, 0.5, 9.0)}
WHOLE = {"timers": (9.0, 9.0, 1.0)}
CUT = ("transient", "stream_incomplete", "maybe")


@dataclass(frozen=True)
class Case:
    """One behaviour of an endpoint. `kind` "" means that it is a good reply with this `text`."""

    name: str
    answer: Answer
    kind: str = ""
    reason: str = ""
    billed: str = "no"
    text: str = ""
    ask: dict[str, Any] = field(default_factory=dict)
    told: float | None = None
