"""The settings of a model call: what a prompt, a judge or an agent may say of how a model answers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from ..errors import ConfigurationError, listed, nearest
from ..records import codec
from ..records.codec import Json

__all__ = [
    "CUTOFFS", "EFFORTS", "SAMPLING", "ModelSettings", "checked_cutoff", "checked_headers",
    "checked_sampling", "header_digests",
]  # fmt: skip

CUTOFFS = ("fail", "retry", "accept")
EFFORTS = ("none", "minimal", "low", "medium", "high")
SAMPLING = (
    "top_p", "seed", "stop", "reasoning_effort", "frequency_penalty", "presence_penalty",
    "extra_body",
)  # fmt: skip
_SECRET = ("authorization", "proxy-authorization", "cookie", "set-cookie")
_KEYS = ("api-key", "apikey", "api_key", "token", "secret", "password", "credential")
_OURS = ("host", "content-length", "content-type", "transfer-encoding", "connection")


class ModelSettings(TypedDict, total=False):
    """How a model is asked; what an endpoint does not take is left out with a warning.

    `temperature` 0 to 2; `max_tokens` of the reply; `top_p` 0 to 1; `seed` a whole number; `stop` a text
    or several at which it ends; `reasoning_effort`; `frequency_penalty` and `presence_penalty` -2 to
    2; `timeout` of one call in seconds; `on_cutoff` what follows a reply cut off at `max_tokens`:
    `fail` (default where `max_tokens` is given), `retry` (default elsewhere: once more with a larger
    limit) or `accept` (texts only: the cut text is the output); `extra_body` further fields of the
    request; `extra_headers`, without keys; `base_url` of a server of one's own, and `api_key_env`, the
    environment variable with its key.
    """

    temperature: float | None
    max_tokens: int | None
    top_p: float | None
    seed: int | None
    stop: str | list[str] | None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None
    frequency_penalty: float | None
    presence_penalty: float | None
    timeout: float | None
    on_cutoff: Literal["fail", "retry", "accept"] | None
    extra_body: Mapping[str, Any] | None
    extra_headers: Mapping[str, str] | None
    base_url: str
    api_key_env: str


def checked_sampling(given: Mapping[str, Any]) -> dict[str, Json]:
    """Return the settings that go into the request as they are, those that are None left out.

    Raises:
        ConfigurationError: for an unknown one, with the nearest name, or a value out of its range.
    """
    found: dict[str, Json] = {}
    for name, value in given.items():
        if name not in SAMPLING:
            hint = nearest(name, SAMPLING) or listed(name, SAMPLING, lead="there are")
            raise ConfigurationError(f"{name}: is no setting of a model call{hint}")
        if value is not None:
            found[name] = _CHECKS[name](name, value)
    return found


def _share(name: str, value: Any) -> float:
    return codec.number(name, value, least=0, most=1)


def _seed(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(f"{name}: {value!r} is not a whole number")
    return value


def _stop(name: str, value: Any) -> Json:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not texts:
        raise ConfigurationError(f"{name}: {value!r:.80} is not a text or a list of texts")
    for text in texts:
        if not isinstance(text, str) or not text:
            raise ConfigurationError(f"{name}: {text!r:.80} is not a text with characters in it")
    return value if isinstance(value, str) else list(texts)


def _effort(name: str, value: Any) -> str:
    if value not in EFFORTS:
        hint = nearest(str(value), EFFORTS) or f"; use one of {', '.join(EFFORTS)}"
        raise ConfigurationError(f"{name}: {value!r:.40} is unknown{hint}")
    return str(value)


def _penalty(name: str, value: Any) -> float:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not ok or not -2 <= value <= 2:
        raise ConfigurationError(f"{name}: {value!r:.40} is not a number from -2 to 2")
    return float(value)


def _body(name: str, value: Any) -> Json:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ConfigurationError(f"{name}: {value!r:.80} is not an object")
    return codec.normalise(dict(value), what=name)


_CHECKS = {
    "top_p": _share,
    "seed": _seed,
    "stop": _stop,
    "reasoning_effort": _effort,
    "frequency_penalty": _penalty,
    "presence_penalty": _penalty,
    "extra_body": _body,
}


def checked_cutoff(value: str, *, schema: bool) -> str:
    """Return what follows a reply that was cut off; "" for the default.

    Raises:
        ConfigurationError: for another word, or for `accept` where a value was asked for.
    """
    if value and value not in CUTOFFS:
        hint = nearest(str(value), CUTOFFS) or f"; use one of {', '.join(CUTOFFS)}"
        raise ConfigurationError(f"on_cutoff: {value!r:.40} is unknown{hint}")
    if value == "accept" and schema:
        raise ConfigurationError(
            "on_cutoff: accept is for texts; a JSON value that was cut off is not read: use fail or retry"
        )
    return value


def header_digests(headers: Mapping[str, str]) -> dict[str, str]:
    """Return what is kept of headers: their names, and the digests of their values."""
    return {
        name.lower(): hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        for name, value in headers.items()
    }


def checked_headers(given: Mapping[str, str]) -> dict[str, str]:
    """Return headers of a request's own.

    Raises:
        ConfigurationError: for a header that holds a key or belongs to the client, or is no text.
    """
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"extra_headers: {given!r:.80} is not an object")
    for name, value in given.items():
        plain = str(name).lower()
        if not isinstance(name, str) or not name or not isinstance(value, str):
            raise ConfigurationError(f"extra_headers: {name!r:.40}: name and value are texts")
        if plain in _SECRET or any(part in plain for part in _KEYS):
            raise ConfigurationError(
                f"extra_headers: {name} carries a key; name its environment variable in api_key_env"
            )
        if plain in _OURS or any(c in name + value for c in "\r\n\0") or not name.isascii():
            raise ConfigurationError(f"extra_headers: {name!r:.40} cannot be set; leave it out")
    return dict(given)
