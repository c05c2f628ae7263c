"""Values to JSON and back: the one place where what a step produced becomes what is kept.

Rules:

1. What goes on is what was recorded. A step's value is *normalised* before anyone else sees it, so
   a live run and a replayed one hand on the same value: dataclasses and pydantic models become
   objects, tuples become lists.
2. JSON only. No pickle, no tags that name classes, no fallback serialiser.
3. Text is cleaned at this single point: a lone surrogate becomes U+FFFD, NUL is dropped, because
   stores refuse them.
4. Numbers are finite.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import ConfigurationError, StepError
from .sanitize import cleaned

__all__ = [
    "ATOMS",
    "Json",
    "canonical",
    "copied",
    "decode",
    "digest",
    "encode",
    "normalise",
    "text_of",
]

Json = Any  # JSON values: None, bool, int, float, str, list[Json], dict[str, Json]

MAX_DEPTH = 100
ATOMS = frozenset({str, int, float, bool, type(None)})  # types of values that nobody can change
_SHORT = 40
_WHOLE = 10**15
_BITS = 14_000  # of a whole number: about 4,200 digits, Python writes no more than 4,300


def normalise(value: Any, *, what: str = "value") -> Json:
    """Return `value` as plain JSON, a copy that later changes of the original do not reach.

    Raises:
        StepError: of kind `not_json`, naming the place and type of what JSON cannot hold.
    """
    kind = type(value)
    if kind is str:
        return _clean(value)
    if kind is int:
        return value if value.bit_length() <= _BITS else _refuse(value, what)
    if kind is bool or value is None:
        return value
    if kind is float:
        return value if math.isfinite(value) else _refuse(value, what)
    if getattr(value, "frozen_json", False):  # an immutable record of ours: already clean
        return value.sealed()
    return _container(value, what, 0)


def _container(value: Any, path: str, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise StepError(
            f"{path}: nested deeper than {MAX_DEPTH} levels; flatten it or store it in a file",
            kind="not_json",
            retryable=False,
        )
    kind = type(value)
    if kind in ATOMS:
        return normalise(value, what=path)
    if isinstance(value, (list, tuple)) and not hasattr(value, "to_json"):
        return [_container(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {
            _key(key, path): _container(item, f"{path}.{key}", depth + 1)
            for key, item in value.items()
        }
    return _other(value, path, depth)


def _other(value: Any, path: str, depth: int) -> Json:
    if hasattr(value, "to_json"):
        return _container(value.to_json(), path, depth + 1)
    if hasattr(value, "model_dump"):  # pydantic
        return _container(value.model_dump(mode="json"), path, depth + 1)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return _container(fields, path, depth + 1)
    if isinstance(value, bool | int | float | str):  # subclasses: enums, numpy-like scalars
        return normalise(_plain(value), what=path)
    return _refuse(value, path)


def _plain(value: Any) -> Json:
    for base in (bool, int, float, str):
        if isinstance(value, base):
            return base.__str__(value) if base is str else base(value)
    raise AssertionError(value)


def _refuse(value: Any, path: str) -> Json:
    shown = repr(value) if isinstance(value, float) else type(value).__name__
    if isinstance(value, int):
        shown = f"a whole number of {value.bit_length()} bits"
    raise StepError(
        f"{path}: {shown} is not a JSON value; return text, finite numbers, booleans, lists, "
        "objects with text keys, dataclasses or pydantic models",
        kind="not_json",
        retryable=False,
    )


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise StepError(
            f"{path}: the key {key!r} is not text; JSON objects have text keys",
            kind="not_json",
            retryable=False,
        )
    return _clean(str.__str__(key))


def _clean(text: str) -> str:
    if text.isascii():
        return text.replace("\0", "") if "\0" in text else text
    if "\0" in text:
        text = text.replace("\0", "")
    try:
        text.encode()
    except UnicodeEncodeError:
        # A surrogate pair that arrived as two halves is one character; what is left over is damage.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def error_text(error: BaseException, redact: Callable[[str], str] | None = None) -> str:
    """Return what an error says as text that may be stored; "" if it cannot be printed.

    `redact` takes known secrets out. It comes first: the other rules could leave a part of one.
    """
    try:
        said = _clean(str(error))
        return cleaned(said if redact is None else redact(said))
    except BaseException:  # its own __str__ failed, in whatever way
        return ""


def error_line(error: BaseException, redact: Callable[[str], str] | None = None) -> str:
    """Return the type of an error and what it says, for a message.

    >>> error_line(ValueError("no"))
    'ValueError: no'
    """
    name, words = type(error).__name__, error_text(error, redact)
    return f"{name}: {words}" if words else name


def copied(value: Json) -> Json:
    """Return a copy of a JSON value that can be changed without changing the value."""
    kind = type(value)
    if kind is dict:
        return {key: copied(item) for key, item in value.items()}
    if kind is list:
        return [copied(item) for item in value]
    return value


def _default(value: Any) -> Json:
    if hasattr(value, "to_json"):
        return value.to_json()
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_encoder = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_default
).encode


def encode(value: Json) -> str:
    """Return compact JSON text of a normalised value."""
    return _encoder(value)


def decode(text: str | bytes) -> Json:
    """Return the value of JSON text; the inverse of `encode`."""
    return json.loads(text)


def canonical(value: Json, *, volatile: Iterable[str] = ()) -> str:
    """Return JSON text that is equal for equal meaning: sorted keys, Unicode NFC, `volatile` keys
    left out.

    Total: what is not JSON is taken by its type and text, so that a guard never fails on an odd
    output.
    """
    dropped = frozenset(volatile)
    plain = _strip(value, dropped, 0)
    text = json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _strip(value: Json, dropped: frozenset[str], depth: int) -> Json:
    if depth > MAX_DEPTH:
        return str(type(value))
    if isinstance(value, Mapping):
        kept = [(k, _strip(v, dropped, depth + 1)) for k, v in value.items() if k not in dropped]
        found = {unicodedata.normalize("NFC", str(k)): v for k, v in kept}
        return found if len(found) == len(kept) else _numbered(kept)
    if isinstance(value, list | tuple):
        return [_strip(item, dropped, depth + 1) for item in value]
    if hasattr(value, "to_json"):
        return _strip(value.to_json(), dropped, depth + 1)
    if isinstance(value, int) and value.bit_length() > _BITS:
        return hex(value)
    return value


def _numbered(members: list[tuple[Any, Json]]) -> dict[str, Json]:
    """Return the members of an object of which some have names that differ in their Unicode form only.

    None of them gets lost, and their order does not matter: equal names are numbered by their values.
    """
    groups: dict[str, list[Json]] = {}
    for key, value in members:
        groups.setdefault(unicodedata.normalize("NFC", str(key)), []).append(value)
    return {
        f"{name}\0{number}" if number else name: value
        for name, values in groups.items()
        for number, value in enumerate(sorted(values, key=_written))
    }


def _written(value: Json) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def digest(value: Json) -> str:
    """Return a short, stable name of a value: its own JSON text while short, else 32 hex digits of
    SHA-256.

    Short values stay readable in a mismatch message, and cost nothing to name.
    """
    kind = type(value)
    if kind is int and -_WHOLE < value < _WHOLE:
        return repr(value)
    if kind in ATOMS and kind is not str and kind is not int:
        return repr(value)
    if kind is str and len(value) <= _SHORT:
        return repr(value)
    text = canonical(value)
    if len(text) <= _SHORT:
        return text
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def text_of(value: Json) -> str:
    """Return a value as a reader sees it: text as it is, everything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=_default)


def whole(name: str, value: Any, *, least: int) -> int:
    """Return `value` as a whole number of at least `least`.

    Raises:
        ConfigurationError: naming the field and what was expected.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(f"{name}: {value!r} is not a whole number")
    _sized(name, value)
    if value < least:
        raise ConfigurationError(f"{name}: {value!r} is too small; give at least {least}")
    return value


def number(
    name: str, value: Any, *, least: float = -math.inf, most: float = math.inf, above: bool = False
) -> float:
    """Return `value` as a finite number in [least, most], or above `least` if `above`.

    Raises:
        ConfigurationError: naming the field and what was expected.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(f"{name}: {value!r} is not a number")
    if isinstance(value, int):
        _sized(name, value)
    if not math.isfinite(value):
        raise ConfigurationError(f"{name}: {value!r} is not finite")
    if value < least or value > most or (above and value == least):
        low = f"above {least:g}" if above else f"at least {least:g}"
        high = "" if most == math.inf else f" and at most {most:g}"
        raise ConfigurationError(f"{name}: {value!r} is out of range; give a number {low}{high}")
    return float(value)


def _sized(name: str, value: int) -> None:
    if value.bit_length() > 1000:  # neither a float nor a message can hold it
        raise ConfigurationError(f"{name}: a number of {value.bit_length()} bits is out of range")
