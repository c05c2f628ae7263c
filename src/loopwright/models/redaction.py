"""Secrets are taken out of everything that is written down, by their value.

A name or a vendor's prefix is no sure sign of a secret, its value is. So the filter knows the
values, and finds them as they are, as they look in a URL, inside JSON text, and inside base64 of
something longer.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from ..codec import Json

__all__ = ["MARK", "Redactor"]

MARK = "[redacted]"
SHORTEST = 8  # characters; a shorter value, such as a local server's "test", is ordinary text


class Redactor:
    """A filter that replaces secret values by `[redacted]` in text and JSON.

    Values of fewer than 8 characters are not looked for.

    >>> Redactor(["sk-verysecret"]).clean({"header": "Bearer sk-verysecret"})
    {'header': 'Bearer [redacted]'}
    """

    __slots__ = ("_firsts", "_forms", "_pattern")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms: set[str] = set()
        for secret in secrets:
            if len(secret.strip()) >= SHORTEST:
                forms |= _forms(secret.strip())
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._forms = tuple(longest_first)
        self._firsts = frozenset(form[0] for form in forms)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def __repr__(self) -> str:
        return "Redactor()"  # what it knows is what must not be shown

    def clean(self, value: Json) -> Json:
        """Return JSON, or text, without the secrets; keys of objects are cleaned too."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self._pattern.sub(MARK, value)
        if isinstance(value, dict):
            return {self.clean(key): self.clean(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean(item) for item in value]
        return value

    def text(self, text: str) -> str:
        """Return text without the secrets."""
        return text if self._pattern is None else self._pattern.sub(MARK, text)

    def streamed(self) -> StreamRedactor:
        """Return a filter for text that comes in pieces."""
        return StreamRedactor(self)

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
