"""Values to JSON and back, and texts of errors: the one place that turns what a step returns into a record.

1. The next step receives the recorded value. The output of a step is *normalised* before any other
   code reads it, so that a live run and a replay pass on the same value: dataclasses and pydantic
   models become objects, tuples become lists.
2. JSON only. No pickle, no tags that name classes, no fallback serialiser.
3. Text is cleaned here and nowhere else: a lone surrogate becomes U+FFFD and NUL is dropped, because
   stores refuse them.
4. Numbers are finite.
5. Error texts have no addresses, keys and passwords. Every recorded error passes `cleaned`: the failure of an
   effect, the error of an iteration, the detail of a result. The errors in an agent's execution pass `sanitised`,
   which adds the rules of that format.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import ConfigurationError, StepError

LONGEST = 500  # characters of an error in an execution

_NAMES = r"password|passwd|passphrase|pwd|secret|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key"
_VALUE = r"(?:\"[^\"\n]{0,400}\"|'[^'\n]{0,400}'|[^\s,;&\"'<>(){}\[\]]+)"
# With a colon `token` is a common word of error messages, so only `=` and JSON mark its value.
# Texts, which `re` compiles and keeps at their first use: most runs have no error to clean.
_ASSIGNED = (
    rf"(?i)(?P<name>(?:{_NAMES})[\"']?[ \t]{{0,2}}(?:=|:(?!//))[ \t]{{0,2}}"
    rf"|token(?:=|[\"'][ \t]{{0,2}}:[ \t]{{0,2}}))(?P<value>{_VALUE})"
)
_HEADER = (
    r"(?i)(?P<name>authorization[\"']?[ \t]{0,2}[:=][ \t]{0,2}[\"']?(?:bearer|basic|token)[ \t]{1,2})"
    r"(?P<value>[^\s,;\"']+)"
)
# The user part starts at the beginning of a word; otherwise the search restarts at each character.
_LOGIN = r"(?<![A-Za-z0-9._%+~-])[A-Za-z0-9._%+~-]{1,128}:[^\s:@/\"'<>]{1,256}@(?=[A-Za-z0-9\[])"
_URL_LOGIN = r"(?<=://)[^\s/\"'<>]{1,512}@(?=[A-Za-z0-9\[])"
_EMAIL = r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
_IPV4 = r"(?<![0-9.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9]|\.[0-9])"
_IPV6 = r"(?<![0-9A-Za-z:.])[0-9A-Fa-f:.]{2,}(?:%\w+)?"
_KEY = r"[A-Za-z0-9]+(?:[-_.+/=][A-Za-z0-9]+)*"
_RUN = r"[A-Za-z0-9]{20,}"
# The prefix of a provider marks a key that has letters only.
_PREFIXED = (
    r"\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|xox[abps]|glpat|hf|gsk)"
    r"(?:[-_][A-Za-z0-9]{1,12}){0,3}[-_][A-Za-z0-9]{16,}(?:[-_][A-Za-z0-9]+)*"
)
_MIN_KEY = 20  # characters; shorter words are names and numbers


def cleaned(text: str) -> str:
    """Return an error text with `[EMAIL]`, `[IP]`, `[TOKEN]` and `[SECRET]` in place of private values.

    Loopback addresses stay, and long words without a digit that do not begin as a key of a provider.

    >>> cleaned("login failed: postgres://ann:hunter2@db.example.org password=x for ann@example.org")
    'login failed: postgres://[SECRET]@db.example.org password=[SECRET] for [EMAIL]'
    """
    text = re.sub(_HEADER, r"\g<name>[SECRET]", text)
    text = re.sub(_ASSIGNED, _masked, text)
    # Logins before addresses: user:password@host contains the form of an e-mail address.
    if "@" in text:
        text = re.sub(_URL_LOGIN, "[SECRET]@", text)
        text = re.sub(_LOGIN, "[SECRET]@", text)
        text = re.sub(_EMAIL, "[EMAIL]", text)
    text = re.sub(_IPV4, _foreign, text)
    text = re.sub(_IPV6, _foreign, text)
    text = re.sub(_PREFIXED, "[TOKEN]", text)
    text = re.sub(_KEY, _redacted_key, text)
    return re.sub(_RUN, _mixed, text)


def sanitised(text: str, *, longest: int = LONGEST) -> str:
    """Return an error text by the rules of an agent's execution.

    It is `cleaned`, has no address and no sequence of 20 letters and digits, and has at most `longest`
    characters.

    >>> sanitised("ann@example.org from 10.0.0.1 sent sk-proj-4f9a8b7c6d5e4f3a2b1c")
    '[EMAIL] from [IP] sent [TOKEN]'
    """
    text = re.sub(_IPV4, "[IP]", cleaned(text))
    text = re.sub(_IPV6, _address, text)
    return re.sub(_RUN, "[TOKEN]", text)[:longest]


def _masked(match: re.Match[str]) -> str:
    value = match["value"]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{match['name']}{quote}[SECRET]{quote}"


def _foreign(match: re.Match[str]) -> str:
    """Return `[IP]` for an address of another machine."""
    from ipaddress import ip_address  # only for a text with an address

    text = match[0]
    end = "." * text.endswith(".")
    try:
        one = ip_address(text.rstrip(".").partition("%")[0])
    except ValueError:  # 999.1.1.1 has the form of an address, a word with colons has not
        return "[IP]" if re.fullmatch(_IPV4, text) else text
    return text if one.is_loopback or one.is_unspecified else "[IP]" + end


def _address(match: re.Match[str]) -> str:
    from ipaddress import IPv6Address

    try:
        IPv6Address(match[0].rstrip(".").partition("%")[0])
    except ValueError:
        return match[0]
    return "[IP]" + "." * match[0].endswith(".")


def _redacted_key(match: re.Match[str]) -> str:
    """Return `[TOKEN]` for a long word with separators that mixes letters and digits, as keys do.

    Paths and hyphenated words have few such parts.
    """
    word = match[0]
    if len(word) < _MIN_KEY:
        return word
    parts = re.split(r"[-_.+/=]", word)
    if len(parts) < 2:
        return word
    # The names of a path often end with a version: python3.11, lib64.
    is_path = "/" in word or match.string[: match.start()].endswith("/")
    named = r"[A-Za-z]?[a-z]+[0-9]{1,2}" if is_path else r"(?!)"
    mixed = [
        part
        for part in parts
        if re.search(r"[0-9]", part)
        and re.search(r"[A-Za-z]", part)
        and not re.fullmatch(named, part)
    ]
    digits = sum(len(part) for part in mixed)
    return "[TOKEN]" if digits >= 8 and max(len(part) for part in mixed) >= 4 else word


def _mixed(match: re.Match[str]) -> str:
    word = match[0]
    letters = sum(character.isalpha() for character in word)
    # Keys mix letters and digits; a word or a number of this length does not.
    return "[TOKEN]" if 2 <= letters <= len(word) - 2 else word


Json = Any  # JSON values: None, bool, int, float, str, list[Json], dict[str, Json]

MAX_DEPTH = 100
ATOMS = frozenset({str, int, float, bool, type(None)})  # types of immutable values
_SHORT = 40  # characters of a value that is its own digest
_MAX_PLAIN = 10**15  # an integer below it is the same in every JSON library
_BITS = 14_000  # of an integer: about 4,200 digits; Python converts at most 4,300


def normalise(value: Json, what: str = "value") -> Json:
    """Return `value` as plain JSON, independent of later changes to the original.

    Args:
        value: the output of a step.
        what: its name in messages.

    Raises:
        StepError: of kind `not_json`, with the place and type of a value that JSON cannot hold.
    """
    kind = type(value)
    if kind is str:
        return _clean(value)
    if kind is int:
        return value if value.bit_length() <= _BITS else _refuse(value, what)
    if value is None or kind is bool:
        return value
    if kind is float:
        return value if math.isfinite(value) else _refuse(value, what)
    if kind is not dict and getattr(value, "frozen_json", False):  # an immutable record: clean
        return value.sealed()
    return _container(value, what, 0)


def _container(value: Json, path: str, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise StepError(
            f"{path}: nested deeper than {MAX_DEPTH} levels; flatten it or store it in a file",
            kind="not_json",
            retryable=False,
        )
    kind = type(value)
    if kind in ATOMS:
        return normalise(value, what=path)
    if kind is dict:
        return {
            # The path of an item is a text for messages, so only an item that may need one has it.
            _key(key, path): item
            if type(item) is bool or (type(item) is str and item.isascii() and "\0" not in item)
            else _container(item, f"{path}.{key}", depth + 1)
            for key, item in value.items()
        }
    # A named tuple may define another JSON form.
    if isinstance(value, (list, tuple)) and not hasattr(value, "to_json"):
        return [_container(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {
            _key(key, path): _container(item, f"{path}.{key}", depth + 1)
            for key, item in value.items()
        }
    return _other(value, path, depth)


def _other(value: Json, path: str, depth: int) -> Json:
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


def _plain(value: bool | float | str) -> Json:
    # In this order, because True is an int too.
    for base in (bool, int, float):
        if isinstance(value, base):
            return base(value)
    return str.__str__(value)


def _refuse(value: object, path: str) -> Json:
    if isinstance(value, float):
        raise StepError(
            f"{path}: {value!r} is not a finite number; return a number, or None without a value",
            kind="not_json",
            retryable=False,
        )
    shown = type(value).__name__
    if isinstance(value, int):
        shown = f"an integer of {value.bit_length()} bits"
    raise StepError(
        f"{path}: {shown} is not a JSON value; return text, finite numbers, booleans, lists, "
        "objects with text keys, dataclasses or pydantic models",
        kind="not_json",
        retryable=False,
    )


def _key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise StepError(
            f"{path}: the key {key!r} is not text; JSON objects have text keys",
            kind="not_json",
            retryable=False,
        )
    return _clean(str.__str__(key))


def _clean(text: str) -> str:
    if text.isascii():  # most texts; checking costs less than encoding
        return text.replace("\0", "") if "\0" in text else text
    if "\0" in text:
        text = text.replace("\0", "")
    try:
        text.encode()
    except UnicodeEncodeError:
        # Two surrogates that form a pair are one character; a single one is damage.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def error_text(error: BaseException, redact: Callable[[str], str] | None = None) -> str:
    """Return the message of an error as text that may be stored; "" if it cannot be printed.

    `redact` removes known secrets. It runs first, because the other rules could leave a part of one.
    """
    try:
        message = _clean(str(error))
        return cleaned(message if redact is None else redact(message))
    except BaseException:  # an error whose text cannot be read must not hide the failure
        return ""


def error_line(error: BaseException, redact: Callable[[str], str] | None = None) -> str:
    """Return the type and message of an error.

    >>> error_line(ValueError("no"))
    'ValueError: no'
    """
    name, message = type(error).__name__, error_text(error, redact)
    return f"{name}: {message}" if message else name


def copied(value: Json) -> Json:
    """Return an independent copy of a JSON value."""
    kind = type(value)
    if kind is dict:
        return {key: copied(item) for key, item in value.items()}
    if kind is list:
        return [copied(item) for item in value]
    return value


def _default(value: Json) -> Json:
    if hasattr(value, "to_json"):
        return value.to_json()
    raise TypeError(f"{type(value).__name__} is not a JSON value")


# Returns compact JSON text of a normalised value. The method itself, because a function around it would
# cost one call for each recorded value (decision 72).
encode: Callable[[Json], str] = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_default
).encode


def decode(text: str | bytes) -> Json:
    """Return the value of JSON text; the inverse of `encode`."""
    return json.loads(text)


def strict_json(text: str) -> Json:
    """Return the value of a JSON text, without NaN and duplicate keys. Raises ValueError or RecursionError."""
    return _strict.decode(text)


def _refuse_constant(constant: str) -> Json:
    raise ValueError(f"{constant} is not a number of JSON")


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("duplicate key")
    return value


# Made once, because `json.loads` makes one for each text.
_strict = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique)


def canonical(value: Json, *, volatile: Iterable[str] = ()) -> str:
    """Return JSON text that is equal for equal meaning: sorted keys, Unicode NFC, no `volatile` keys.

    It accepts any value: a value that is not JSON is represented by its type and text, so that a
    condition never fails on an unusual output.
    """
    plain = _strip(value, frozenset(volatile), 0)
    text = json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _strip(value: Json, dropped: frozenset[str], depth: int) -> Json:
    if depth > MAX_DEPTH:
        return str(type(value))
    if isinstance(value, Mapping):
        kept = [(k, _strip(v, dropped, depth + 1)) for k, v in value.items() if k not in dropped]
        # One key in two Unicode forms would otherwise hide a member.
        members = {unicodedata.normalize("NFC", str(k)): v for k, v in kept}
        return members if len(members) == len(kept) else _numbered(kept)
    if isinstance(value, list | tuple):
        return [_strip(item, dropped, depth + 1) for item in value]
    if hasattr(value, "to_json"):
        return _strip(value.to_json(), dropped, depth + 1)
    if isinstance(value, int) and value.bit_length() > _BITS:
        return hex(value)
    return value


def _numbered(members: list[tuple[object, Json]]) -> dict[str, Json]:
    """Return the members of an object with names that differ only in their Unicode form.

    Equal names are numbered in the order of their values, so that every member counts.
    """
    groups: dict[str, list[Json]] = {}
    for key, value in members:
        groups.setdefault(unicodedata.normalize("NFC", str(key)), []).append(value)
    return {
        f"{name}\0{number}" if number else name: value
        for name, values in groups.items()
        for number, value in enumerate(sorted(values, key=_sort_key))
    }


def _sort_key(value: Json) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def digest(value: Json) -> str:
    """Return a short, stable name of a value: its JSON text if short, else 32 hex digits of SHA-256.

    Short values stay readable in messages.
    """
    kind = type(value)
    if kind is int and -_MAX_PLAIN < value < _MAX_PLAIN:
        return repr(value)
    if kind in ATOMS and kind is not str and kind is not int:
        return repr(value)
    if kind is str and len(value) <= _SHORT:
        return repr(value)
    # The digest of a typed value is that of its JSON, so that adding an annotation changes no fingerprint.
    if hasattr(value, "decoded") and isinstance(value, str | int | float):
        return digest(_plain(value))
    text = canonical(value)
    if len(text) <= _SHORT:
        return text
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def text_of(value: Json) -> str:
    """Return a value as text: a string unchanged, None as "", any other value as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=_default)


def flow_text(value: Json) -> str:
    """Return a JSON value in the flow style of YAML, for messages about documents and commands.

    >>> flow_text([{"timeout": "soon"}, True, None])
    "[{timeout: 'soon'}, true, null]"
    """
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {flow_text(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(flow_text, value))}]"
    return repr(value) if isinstance(value, str) else json.dumps(value, default=_default)


def in_flow(message: str, values: Iterable[Json]) -> str:
    """Return a message that quotes values as Python does, with the values in the flow style of YAML.

    >>> in_flow("limit: True is not an integer", [True])
    'limit: true is not an integer'
    """
    for value in values:
        if value is None or isinstance(value, bool | list | tuple | Mapping):
            message = message.replace(repr(value), flow_text(value))
    return message


def integer(name: str, value: object, *, minimum: int, maximum: int | None = None) -> int:
    """Return `value` as an integer of at least `minimum` and at most `maximum`.

    Raises:
        ConfigurationError: for any other value; names the field and the range.
    """
    # True is an int in Python, but never a valid limit.
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(f"{name}: {value!r} is not an integer")
    _check_size(name, value)
    if value < minimum:
        raise ConfigurationError(f"{name}: {value!r} is too small; give at least {minimum}")
    if maximum is not None and value > maximum:
        raise ConfigurationError(
            f"{name}: {value} is above the ceiling of {maximum}; use at most {maximum}"
        )
    return value


def check_integers(prefix: str, record: object, names: Iterable[str], *, minimum: int = 0) -> None:
    """Check that fields of a record are integers of at least `minimum`.

    Raises:
        ConfigurationError: for the first field with another value; names it after the prefix.
    """
    for name in names:
        integer(f"{prefix}{name}", getattr(record, name), minimum=minimum)


def number(
    name: str,
    value: object,
    *,
    minimum: float = -math.inf,
    maximum: float = math.inf,
    above: bool = False,
) -> float:
    """Return `value` as a finite number in [minimum, maximum], or above `minimum` if `above`.

    Raises:
        ConfigurationError: for any other value; names the field and the range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(f"{name}: {value!r} is not a number")
    if isinstance(value, int):
        _check_size(name, value)
    if not math.isfinite(value):
        raise ConfigurationError(f"{name}: {value!r} is not finite")
    if value < minimum or value > maximum or (above and value == minimum):
        low = f"above {minimum:g}" if above else f"at least {minimum:g}"
        high = "" if maximum == math.inf else f" and at most {maximum:g}"
        raise ConfigurationError(f"{name}: {value!r} is out of range; give a number {low}{high}")
    return float(value)


def _check_size(name: str, value: int) -> None:
    if value.bit_length() > 1000:  # too long for a float or a message
        raise ConfigurationError(f"{name}: a number of {value.bit_length()} bits is out of range")
