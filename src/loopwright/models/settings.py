"""The settings of a model call in a prompt, a judge or an agent."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Literal, TypedDict, cast

from ..errors import ConfigurationError, listed, nearest
from ..records import codec
from ..records.codec import Json

__all__ = [
    "CUTOFFS", "EFFORTS", "SAMPLING", "ModelSettings", "checked_cutoff", "checked_headers",
    "checked_sampling", "checked_settings",
    "header_digests",
]  # fmt: skip

CUTOFFS = ("fail", "retry", "accept")
EFFORTS = ("none", "minimal", "low", "medium", "high")
SAMPLING = (
    "top_p", "seed", "stop", "reasoning_effort", "frequency_penalty", "presence_penalty",
    "extra_body",
)  # fmt: skip
# Headers are recorded as digests and shown to people, so a key must not be one of them.
_SECRET = ("authorization", "proxy-authorization", "cookie", "set-cookie")
_KEYS = ("api-key", "apikey", "api_key", "token", "secret", "password", "credential")
# Another value of these would break the connection or send it elsewhere (request smuggling).
_OURS = ("host", "content-length", "content-type", "transfer-encoding", "connection")


class ModelSettings(TypedDict, total=False):
    """The settings of a model call; a setting that the endpoint does not support is left out with a warning.

    `temperature`: 0 to 2. `max_tokens`: limit of the reply. `top_p`: 0 to 1. `seed`: an integer. `stop`: one
    or several texts that end the reply. `reasoning_effort`: none to high. `frequency_penalty` and
    `presence_penalty`: -2 to 2. `timeout`: seconds for one call. `on_cutoff`: the reaction to a reply that
    reaches `max_tokens`: `fail` (default with `max_tokens`), `retry` (default without: once more with a
    larger limit) or `accept` (text only: the truncated text is the output). `extra_body`: more fields of the
    request. `extra_headers`: more headers, without keys. `base_url`: the address of another server.
    `api_key_env`: the environment variable with its key.

    Example:
        >>> settings: ModelSettings = {"temperature": 0.2, "max_tokens": 200}
        >>> settings["max_tokens"]
        200
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
    extra_body: Mapping[str, Json] | None
    extra_headers: Mapping[str, str] | None
    base_url: str
    api_key_env: str


def checked_settings(settings: Mapping[str, Json]) -> ModelSettings:
    """Return the settings that are not None.

    Raises:
        ConfigurationError: for an unknown setting, with the nearest name, or a value out of range.
    """
    for name in settings:
        if name not in ModelSettings.__annotations__:
            hint = nearest(name, ModelSettings.__annotations__)
            raise ConfigurationError(f"{name}: is not a setting of a model call{hint}")
    checked = {name: value for name, value in settings.items() if value is not None}
    if "temperature" in checked:
        codec.number("temperature", checked["temperature"], minimum=0, maximum=2)
    if "max_tokens" in checked:
        codec.integer("max_tokens", checked["max_tokens"], minimum=1)
    if "timeout" in checked:
        checked["timeout"] = codec.number("timeout", checked["timeout"], minimum=0, above=True)
    for name in ("base_url", "api_key_env"):
        if not isinstance(checked.get(name, ""), str):
            raise ConfigurationError(f"{name}: {checked[name]!r:.80} is not text")
    checked |= checked_sampling({name: checked[name] for name in SAMPLING if name in checked})
    checked_headers(checked.get("extra_headers", {}))
    checked_cutoff(checked.get("on_cutoff", ""), schema=False)
    return cast("ModelSettings", checked)


def checked_sampling(settings: Mapping[str, Json]) -> dict[str, Json]:
    """Return the settings that are not None.

    Raises:
        ConfigurationError: for an unknown setting, with the nearest name, or a value out of range.
    """
    checked: dict[str, Json] = {}
    for name, value in settings.items():
        if name not in SAMPLING:
            hint = nearest(name, SAMPLING) or listed(name, SAMPLING, lead="use one of")
            raise ConfigurationError(f"{name}: is not a setting of a model call{hint}")
        if value is not None:
            checked[name] = _CHECKS[name](name, value)
    return checked


def _share(name: str, value: Json) -> float:
    return codec.number(name, value, minimum=0, maximum=1)


def _seed(name: str, value: Json) -> int:
    # True is an int for Python and not a seed.
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(f"{name}: {value!r} is not an integer")
    return value


def _stop(name: str, value: Json) -> Json:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not texts:
        raise ConfigurationError(f"{name}: {value!r:.80} is not a text or a list of texts")
    for text in texts:
        if not isinstance(text, str) or not text:
            raise ConfigurationError(
                f"{name}: {text!r:.80} is not a text with at least one character"
            )
    return value if isinstance(value, str) else list(texts)


def _effort(name: str, value: Json) -> str:
    if value not in EFFORTS:
        hint = nearest(str(value), EFFORTS) or f"; use one of {', '.join(EFFORTS)}"
        raise ConfigurationError(f"{name}: {value!r:.40} is unknown{hint}")
    return str(value)


def _penalty(name: str, value: Json) -> float:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not ok or not -2 <= value <= 2:
        raise ConfigurationError(f"{name}: {value!r:.40} is not a number from -2 to 2")
    return float(value)


def _body(name: str, value: Json) -> Json:
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
    """Check and return `on_cutoff`; "" is the default.

    Raises:
        ConfigurationError: for another word, or for `accept` with a schema.
    """
    if value and value not in CUTOFFS:
        hint = nearest(str(value), CUTOFFS) or f"; use one of {', '.join(CUTOFFS)}"
        raise ConfigurationError(f"on_cutoff: {value!r:.40} is unknown{hint}")
    if value == "accept" and schema:
        raise ConfigurationError(
            "on_cutoff: accept is for text; a truncated JSON value cannot be read: use fail or retry"
        )
    return value


def header_digests(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the recorded form of headers: their names and digests of their values."""
    return {
        name.lower(): hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        for name, value in headers.items()
    }


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Check and return the additional headers of a request.

    Raises:
        ConfigurationError: for a header with a key, a header that the client sets, or one that is not text.
    """
    if not isinstance(headers, Mapping):
        raise ConfigurationError(f"extra_headers: {headers!r:.80} is not an object")
    for name, value in headers.items():
        plain = str(name).lower()
        if not isinstance(name, str) or not name or not isinstance(value, str):
            raise ConfigurationError(f"extra_headers: {name!r:.40}: name and value must be text")
        if plain in _SECRET or any(part in plain for part in _KEYS):
            raise ConfigurationError(
                f"extra_headers: {name} contains a key; name its environment variable in api_key_env"
            )
        # A line break would end the header and begin another one.
        if plain in _OURS or any(c in name + value for c in "\r\n\0") or not name.isascii():
            raise ConfigurationError(f"extra_headers: {name!r:.40} cannot be set; leave it out")
    return dict(headers)
