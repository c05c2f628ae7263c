"""Secrets are taken out of everything that is written down, by their value.

A name or a vendor's prefix is no sure sign of a secret, its value is. So the filter knows the
values, and finds them as they are, as they look in a URL, inside JSON text, and inside base64 of
something longer, in one line or in several.

The values are read from an environment by `secrets_in`, where a program begins (the command line,
the page, a document that is loaded); the engine gets the filter as a value and reads nothing.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import quote, quote_plus

from ..errors import ConfigurationError
from .codec import Json

__all__ = ["MARK", "RedactedText", "Redactor", "StreamRedactor", "of_environment", "secrets_in"]

MARK = "[redacted]"
SHORTEST = 8  # characters; a shorter value, such as a local server's "test", is ordinary text
_NAMES = re.compile(
    r"(?:^|_)(?:API_?)?(?:KEY|TOKEN|SECRET|PASS|PASSWD|PASSPHRASE|CREDENTIALS?|PAT)(?:_BASE)?(?:_?[0-9]+)?$"
    r"|(?:PASSWORD|PASSWD|APIKEY|TOKEN|SECRET|OTLP_HEADERS)(?:_?[0-9]+)?$"
)
# Base64 as programs wrap it: a line of it, and more lines, with line ends as they are or as JSON
# writes them. Nothing is tried twice (possessive), so that a long line takes one pass.
_WRAPPED = re.compile(
    r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{16,}+(?:(?:\r?\n|(?:\\r)?\\n)[A-Za-z0-9+/_-]++={0,2})++"
)
# What stands where a text was cut, and the white space around it.
_CUT = re.compile(
    r"\s{0,2}(?:\[(?:\.\.\.|\u2026) [0-9,]+ (?:bytes|(?:more )?characters) (?:omitted|left out)"
    r"(?: (?:\.\.\.|\u2026))?\]|\u2026|\.{3,}+)\s{0,2}"
)
_PART = 6  # characters of a secret before or after a cut that are taken for a part of it
_LINE = 32  # characters that a line of wrapped base64 has at least
_SHORT = 200  # characters that are searched at once
# Variables that every command is given (see tools.process): no secrets, whoever names them.
_ORDINARY = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
)


def secrets_in(environ: Mapping[str, str], named: Iterable[str] = ()) -> dict[str, str]:
    """Return the values of an environment that are secrets, by the names of their variables.

    These are the variables that `named` lists (as `api_key_env` or `pass_env` name them), and those
    whose own names say so.

    >>> secrets_in({"OPENAI_API_KEY": "sk-4f9a8b7c", "EDITOR": "vi"})
    {'OPENAI_API_KEY': 'sk-4f9a8b7c'}
    """
    wanted = {name for name in named if name not in _ORDINARY}
    return {
        name: value
        for name, value in environ.items()
        if value and (name in wanted or _NAMES.search(name.upper()))
    }


class Redactor:
    """A filter that replaces secret values by `[redacted]` in text and JSON.

    Args:
        secrets: the values, or the values by the names of their variables.

    Values of fewer than 8 characters are not looked for.

    >>> Redactor(["sk-verysecret"]).clean({"header": "Bearer sk-verysecret"})
    {'header': 'Bearer [redacted]'}
    """

    __slots__ = ("_firsts", "_forms", "_numbers", "_parts", "_pattern", "_secrets")

    def __init__(self, secrets: Iterable[str] | Mapping[str, str] = ()) -> None:
        named = secrets.items() if isinstance(secrets, Mapping) else (("a key", s) for s in secrets)
        self._secrets = tuple(
            (name, value.strip()) for name, value in named if len(value.strip()) >= SHORTEST
        )
        forms: set[str] = set()
        for _, secret in self._secrets:
            forms |= _forms(secret)
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._forms = tuple(longest_first)
        self._firsts = frozenset(form[0] for form in forms)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None
        self._parts = frozenset(
            form[at : at + _PART] for form in forms for at in range(len(form) - _PART + 1)
        )
        digits = (value for _, value in self._secrets if value.isascii() and value.isdigit())
        self._numbers = frozenset(int(value) for value in digits if len(value) < 4000)

    def __repr__(self) -> str:
        return "Redactor()"  # what it knows is what must not be shown

    def __bool__(self) -> bool:
        return self._pattern is not None

    def clean(self, value: Json) -> Json:
        """Return JSON, or text, without the secrets; keys of objects are cleaned too.

        What holds none is returned as it is, not copied. A record (with `to_json`) stays one.
        """
        if self._pattern is None:
            return value
        kind = type(value)
        if kind is str:
            return self._cleaned(value)
        if kind is dict:
            made = {self._cleaned(key): self.clean(item) for key, item in value.items()}
            return (
                made
                if _changed(made.values(), value.values()) or list(made) != list(value)
                else value
            )
        if kind is list or kind is tuple:
            items = [self.clean(item) for item in value]
            return items if _changed(items, value) else value
        if kind is int and value in self._numbers:
            return MARK
        if hasattr(value, "to_json"):
            told = value.to_json()
            cleaned = self.clean(told)
            return value if cleaned is told else type(value).from_json(cleaned)
        if isinstance(value, str | Mapping):  # a subclass, which JSON writes as what it is
            return self.clean(str(value) if isinstance(value, str) else dict(value))
        return value

    def text(self, text: str) -> str:
        """Return text without the secrets."""
        return text if self._pattern is None else self._cleaned(text)

    def names_in(self, value: Json) -> list[str]:
        """Return the names of the variables whose values are in JSON, or in text."""
        if self._pattern is None or self.clean(value) is value:
            return []
        return [
            name for name, secret in self._secrets if Redactor([secret]).clean(value) is not value
        ]

    def refuse(self, what: str, value: Json) -> None:
        """Refuse a value that a person gives to be recorded, if it contains a secret.

        Raises:
            ConfigurationError: naming the variable, and how to hand a key on.
        """
        if not (names := self.names_in(value)):
            return
        raise ConfigurationError(
            f"{what}: it contains the value of {names[0]}, and no key is recorded; hand it on by its "
            f"name: pass_env: [{names[0]}] for a command, a tool or a server, api_key_env for a model"
        )

    def heard(self, hear: Callable[[str], None]) -> RedactedText:
        """Return what hears text in pieces in place of `hear`, which gets them without secrets."""
        return RedactedText(hear, self.streamed())

    def streamed(self) -> StreamRedactor:
        """Return a filter for text that comes in pieces."""
        return StreamRedactor(self)

    def _cleaned(self, text: str) -> str:
        assert self._pattern is not None
        if self._holds(text):
            text = self._pattern.sub(MARK, text)
        if "..." in text or "\u2026" in text:
            text = self._without_parts(text)
        if len(text) > _LINE:
            joined = _joined(text)
            if len(joined) < len(text) and self._holds(joined):
                return _WRAPPED.sub(self._unwrapped, text)
        return text

    def _without_parts(self, text: str) -> str:
        """Return text without the parts of secrets that stand right before and after where it was cut.

        Whoever cuts a text should clean it first; what other programs cut cannot be.
        """
        made: list[str] = []
        begin = 0
        for cut in _CUT.finditer(text):
            before = text[begin : cut.start()]
            made += [self._without_end(self._without_start(before) if begin else before), cut[0]]
            begin = cut.end()
        if not begin:
            return text
        joined = "".join([*made, self._without_start(text[begin:])])
        return text if joined == text else joined

    def _without_end(self, text: str) -> str:
        """Return text with a mark for the beginning of a secret that it ends with."""
        if text[-_PART:] not in self._parts:
            return text
        end = self.open_end(text)
        return text if len(text) - end < _PART else f"{text[:end]}{MARK}"

    def _without_start(self, text: str) -> str:
        """Return text with a mark for the end of a secret that it begins with."""
        head, most = text[:_PART], 0
        if head not in self._parts:
            return text
        for form in self._forms:
            at = form.find(head, 1)
            while at > 0:
                rest = form[at:]
                if len(rest) > most and text.startswith(rest):
                    most = len(rest)
                at = form.find(head, at + 1)
        return f"{MARK}{text[most:]}" if most else text

    def _holds(self, text: str) -> bool:
        """Whether a form is in a text: long words are found much faster one by one than at once."""
        if len(text) < _SHORT:
            assert self._pattern is not None
            return self._pattern.search(text) is not None
        return any(form in text for form in self._forms)

    def _unwrapped(self, found: re.Match[str]) -> str:
        """Return lines of base64 as they are, or without the secret that goes on from line to line."""
        joined = _joined(found[0])
        assert self._pattern is not None
        return found[0] if self._pattern.search(joined) is None else self._pattern.sub(MARK, joined)

    def open_end(self, text: str) -> int:
        """Return where a secret may begin that the end of `text` cuts off, or its length."""
        if not self._forms:
            return len(text)
        for start in range(max(0, len(text) - len(self._forms[0]) + 1), len(text)):
            if text[start] not in self._firsts:
                continue
            tail = text[start:]
            if any(form.startswith(tail) for form in self._forms):
                return start
        return len(text)


def _joined(text: str) -> str:
    """Return lines as one, with line ends as they are or as JSON writes them."""
    for end in ("\r\n", "\n", "\\r\\n", "\\n"):
        text = text.replace(end, "")
    return text


def _changed(made: Iterable[Json], given: Iterable[Json]) -> bool:
    return any(one is not other for one, other in zip(made, given, strict=False))


class RedactedText:
    """Who hears text in pieces, without secrets; `end` says that no more comes."""

    __slots__ = ("_filter", "_hear")

    def __init__(self, hear: Callable[[str], None], pieces: StreamRedactor) -> None:
        self._hear = hear
        self._filter = pieces

    def __call__(self, piece: str) -> None:
        if text := self._filter.feed(piece):
            self._hear(text)

    def end(self) -> None:
        """Hand on what was held back."""
        if text := self._filter.flush():
            self._hear(text)


class StreamRedactor:
    """A filter for text in pieces: it holds back what may be the beginning of a secret."""

    __slots__ = ("_held", "_redactor")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what may be shown now."""
        text = self._redactor.text(self._held + piece)
        end = self._redactor.open_end(text)
        self._held = text[end:]
        return text[:end]

    def flush(self) -> str:
        """Return what was held back, when no more comes."""
        text, self._held = self._redactor.text(self._held), ""
        return text


def _forms(secret: str) -> set[str]:
    """Return every way in which a value may turn up in text."""
    quoted = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    lowered = {re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), text) for text in quoted}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    escaped |= {form.replace("/", "\\/") for form in escaped}  # as some encoders write a slash
    twice = {json.dumps(form)[1:-1] for form in escaped}  # JSON text inside JSON text
    encoded = {form for offset in range(3) for form in _base64(secret.encode(), offset)}
    return {secret, repr(secret)[1:-1], *quoted, *lowered, *escaped, *twice, *encoded}


def _base64(secret: bytes, offset: int) -> tuple[str, str]:
    """Return the base64 of bytes after `offset` others: only what does not depend on these."""
    text = base64.b64encode(b"\0" * offset + secret).decode()
    first = (offset * 8 + 5) // 6  # characters that hold a bit of what stands before
    last = (offset + len(secret)) * 8 // 6  # beyond it are bits of what follows, or padding
    stable = text[first:last]
    return stable, stable.replace("+", "-").replace("/", "_")


def of_environment(environ: Mapping[str, str]) -> Redactor:
    """Return what takes out the secrets that the environment holds, by their values."""
    return Redactor(secrets_in(environ))
