"""Limits and durations as people write them, on the command line and on the page."""

from __future__ import annotations

from pydantic_core import PydanticCustomError

from ..documents.schema.fields import duration
from ..engine.change_limits import CLEAR
from ..errors import ConfigurationError, nearest
from ..records.codec import Json


def limit_value(name: str, text: str) -> Json:
    """Return the value of a new limit, or the word `clear`, from text that a person wrote.

    Args:
        name: the limit, as `change_limits` names it.
        text: a number, a duration such as `5m`, or a date.

    Raises:
        ConfigurationError: for text that is none of these.
    """
    if text == CLEAR or name == "deadline":
        return text
    what = {"timeout": "a duration", "max_usd": "a number"}.get(name, "an integer")
    try:
        if name == "timeout":
            # A duration without a unit is a number of seconds.
            return float(duration(f"{text}s" if text.replace(".", "", 1).isdigit() else text))
        return float(text) if name == "max_usd" else int(text)
    except (PydanticCustomError, ValueError):
        examples = "use seconds, text like 30s or 5m, or" if name == "timeout" else "use one, or"
        hint = nearest(text, [CLEAR]) or f"; {examples} {CLEAR}"
        raise ConfigurationError(f"{name}: {text[:40]!r} is not {what}{hint}") from None


def seconds(option: str, text: str) -> float:
    """Return the seconds of a duration such as `90s`, `5m` or `1h30m`. Raises ConfigurationError."""
    try:
        return float(duration(text))
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}") from None
