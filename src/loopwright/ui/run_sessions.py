"""The sessions of coding agents in a recorded run, with what each of them cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..journal import Entry, surviving
from ..records import NOTHING, Usage
from ..records.codec import Json
from . import formatting as texts

__all__ = ["SessionCost", "sessions_in"]


@dataclass(frozen=True, slots=True)
class SessionCost:
    """One session of a coding agent.

    Args:
        agent: the name of the agent.
        session: the ID that the agent uses.
        calls: the calls that continued it.
        turns: the turns of all calls.
        usage: the tokens and the cost of all calls.
    """

    agent: str
    session: str
    calls: int
    turns: int
    usage: Usage

    @property
    def text(self) -> str:
        """The numbers in words, such as `2 calls, 14 turns, $0.74`."""
        parts = [texts.plural(self.calls, "call"), texts.plural(self.turns, "turn")]
        if self.usage.usd or self.usage.tokens:
            parts.append(texts.cost(self.usage))
        return ", ".join(parts)

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        numbers = {"calls": self.calls, "turns": self.turns, "usage": self.usage.to_json()}
        return {"agent": self.agent, "session": self.session, **numbers}


def sessions_in(entries: Iterable[Entry]) -> list[SessionCost]:
    """Return the sessions of agents in a run, in the order of their first calls."""
    found: dict[tuple[str, str], SessionCost] = {}
    for entry in surviving(list(entries)):
        record = entry.value
        if entry.kind != "finished" or not isinstance(record, dict) or "session_key" not in record:
            continue
        key = (str(record["program"]), str(record["session"]))
        known = found.get(key, SessionCost(*key, 0, 0, NOTHING))
        turns = known.turns + int(record["turns"])
        found[key] = SessionCost(*key, known.calls + 1, turns, known.usage + entry.usage)
    return list(found.values())
