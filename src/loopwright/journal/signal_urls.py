"""The addresses at which other programs send an event, each to one run.

The token of an address is derived from the run, the name and the key of the event, with a secret of the user. Nothing is
stored for it, and a replay renders the same address. Whoever has the address can send this event to this run, once.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from urllib.parse import quote

from .._home import user_secret
from ..errors import ConfigurationError
from ..records.codec import Json, text_of
from .events import Event, checked_event

__all__ = ["PUBLIC_URL", "event_id", "signal_secret", "signal_token", "signal_url"]

PUBLIC_URL = "LOOPWRIGHT_PUBLIC_URL"
_VARIABLE = "LOOPWRIGHT_SIGNAL_KEY"
_SHORTEST = 32  # characters of a secret


def signal_secret() -> str:
    """Return the secret of the tokens: LOOPWRIGHT_SIGNAL_KEY, or that in the state folder of the user.

    Raises:
        ConfigurationError: for one that is too short, or that cannot be stored.
    """
    if not (given := os.environ.get(_VARIABLE, "")):
        return user_secret("signals")
    if len(given) < _SHORTEST:
        raise ConfigurationError(
            f"{_VARIABLE}: it has {len(given)} characters; use {_SHORTEST} or more random ones, as `openssl rand -hex 32` prints"
        )
    return given


def signal_token(run_id: str, name: str, key: str, secret: str) -> str:
    """Return the token of an event for a run."""
    # As JSON, so that no other run, name and key give the same text.
    text = json.dumps(["signal", run_id, name, key])
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def event_id(token: str) -> str:
    """Return the ID of the event that comes with a token; it does not disclose the token."""
    return f"url-{hashlib.sha256(token.encode()).hexdigest()[:32]}"


def signal_url(run_id: str, name: str, key: Json = "") -> str:
    """Return the address for an event of a run.

    Args:
        run_id: the run.
        name: the name of the event.
        key: its key. Default: the ID of the run, as for a wait without a key.

    Raises:
        ConfigurationError: for a name or a key that no store takes, or without LOOPWRIGHT_PUBLIC_URL.
    """
    event = checked_event(Event(name, run_id if key == "" else text_of(key)))
    base = os.environ.get(PUBLIC_URL, "").rstrip("/")
    if not base.startswith(("http://", "https://")):
        given = f"{base[:80]!r} is no address" if base else "it is not set"
        raise ConfigurationError(
            f"signal_url() needs {PUBLIC_URL}, and {given}; set it to the address at which others reach "
            "`loopwright ui --signals PORT`, such as https://signals.example.com"
        )
    path = "/".join(quote(part, safe="") for part in (run_id, event.name, event.key))
    return (
        f"{base}/signal/{path}?token={signal_token(run_id, event.name, event.key, signal_secret())}"
    )
