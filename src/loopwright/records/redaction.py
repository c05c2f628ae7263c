"""Secrets are removed from everything that is recorded or shown, and exceptions become text without values.

Neither a name nor the prefix of a vendor identifies a secret reliably; its value does. The filter
contains the values, and finds them in plain text, in URLs, in JSON text, and in base64 of longer data,
on one line or several. `secrets_in` reads the values from an environment at the entry points of a program (the
command line, the page, the loading of a document). The engine receives the filter and reads no environment.

Exceptions of users' functions, as text for the journal:

1. Frames inside this package are left out, unless `whole` includes them. Local variables are never
   recorded.
2. Messages and lines of source are cleaned; see `records.codec`.
3. Causes and contexts precede the exception that they caused, as Python prints them.
4. `redact` removes known secrets before any text is cut, because it does not recognise half a key.
5. The text has at most FRAMES frames, the innermost, and the last LONGEST characters.
"""

from __future__ import annotations

import base64
import json
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from ..errors import ConfigurationError
from .codec import Json, cleaned

__all__ = [
    "MARK",
    "RedactedText",
    "Redactor",
    "StreamRedactor",
    "of_environment",
    "secrets_in",
    "without_tokens",
]

MARK = "[redacted]"
SHORTEST = 8  # characters; a shorter value, such as "test" for a local server, is ordinary text
_NAMES = re.compile(
    r"(?:^|_)(?:API_?)?(?:KEY|TOKEN|SECRET|PASS|PASSWD|PASSPHRASE|CREDENTIALS?|PAT)(?:_BASE)?(?:_?[0-9]+)?$"
    r"|(?:PASSWORD|PASSWD|APIKEY|TOKEN|SECRET|OTLP_HEADERS)(?:_?[0-9]+)?$"
)
# Wrapped base64: a line and further lines, with line ends as characters or as JSON escapes. The
# quantifiers are possessive, so that a long line takes one pass.
_WRAPPED = re.compile(
    r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{16,}+(?:(?:\r?\n|(?:\\r)?\\n)[A-Za-z0-9+/_-]++={0,2})++"
)
# The sign of a cut in a text, with the white space around it.
_CUT = re.compile(
    r"\s{0,2}(?:\[(?:\.\.\.|\u2026) [0-9,]+ (?:bytes|(?:more )?characters) (?:omitted|left out)"
    r"(?: (?:\.\.\.|\u2026))?\]|\u2026|\.{3,}+)\s{0,2}"
)
_SIGNAL_TOKEN = re.compile(r"(/signal/[^\s?]{1,900}\?token=)[0-9a-f]+")
_PART = 6  # characters of a secret beside a cut that count as a part of it
_LINE = 32  # the shortest line of wrapped base64, in characters
_SHORT = 200  # characters up to which one pattern is faster than a search for each form
# Variables that every command receives (see tools.process); they are no secrets even if listed.
_ORDINARY = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
)


def secrets_in(environ: Mapping[str, str], named: Iterable[str] = ()) -> dict[str, str]:
    """Return the secret values of an environment by the names of their variables.

    A variable is secret if `named` lists it (as `api_key_env` and `pass_env` do), or if its name has the
    form of a secret's, such as OPENAI_API_KEY.

    >>> secrets_in({"OPENAI_API_KEY": "sk-4f9a8b7c", "EDITOR": "vi"})
    {'OPENAI_API_KEY': 'sk-4f9a8b7c'}
    """
    secret = {name for name in named if name not in _ORDINARY}
    return {
        name: value
        for name, value in environ.items()
        if value and (name in secret or _NAMES.search(name.upper()))
    }


class Redactor:
    """A filter that replaces secret values by `[redacted]` in text and JSON.

    Args:
        secrets: the values, or the values by the names of their variables. Values of fewer than 8
            characters are ignored.

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
        # The longest first: a secret that contains another is replaced as a unit.
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._forms = tuple(longest_first)
        self._firsts = frozenset(form[0] for form in forms)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None
        self._parts = frozenset(
            form[at : at + _PART] for form in forms for at in range(len(form) - _PART + 1)
        )
        # A secret of digits may occur as a JSON number. Python converts at most 4,300 digits.
        digits = (value for _, value in self._secrets if value.isascii() and value.isdigit())
        self._numbers = frozenset(int(value) for value in digits if len(value) < 4000)

    def __repr__(self) -> str:
        return "Redactor()"  # without its secrets, because a repr ends up in messages

    def __bool__(self) -> bool:
        return self._pattern is not None

    def clean(self, value: Json) -> Json:
        """Return JSON, or text, without the secrets; keys of objects are cleaned too.

        A value without secrets is returned unchanged, not copied. A record (with `to_json`) stays one.
        """
        if self._pattern is None:
            return value
        kind = type(value)
        if kind is str:
            return self._cleaned(value)
        if kind is dict:
            members = {self._cleaned(key): self.clean(item) for key, item in value.items()}
            same = list(members) == list(value) and not _changed(members.values(), value.values())
            return value if same else members
        if kind is list or kind is tuple:
            items = [self.clean(item) for item in value]
            return items if _changed(items, value) else value
        if kind is int and value in self._numbers:
            return MARK
        if hasattr(value, "to_json"):
            data = value.to_json()
            cleaned = self.clean(data)
            return value if cleaned is data else type(value).from_json(cleaned)
        if isinstance(value, str | Mapping):  # a subclass, which JSON writes like its base
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
        """Refuse a value that would be recorded if it contains a secret.

        Raises:
            ConfigurationError: naming the variable, and how to pass a key.
        """
        if not (names := self.names_in(value)):
            return
        raise ConfigurationError(
            f"{what}: it contains the value of {names[0]}, and keys are not recorded; pass it by its "
            f"name: pass_env: [{names[0]}] for a command, a tool or a server, api_key_env for a model"
        )

    def filtered(self, receive: Callable[[str], None]) -> RedactedText:
        """Return a receiver of text in pieces that passes them to `receive` without secrets."""
        return RedactedText(receive, self.streamed())

    def streamed(self) -> StreamRedactor:
        """Return a filter for text in pieces."""
        return StreamRedactor(self)

    def _cleaned(self, text: str) -> str:
        assert self._pattern is not None
        if self._holds(text):
            text = self._pattern.sub(MARK, text)
        if "..." in text or "\u2026" in text:
            text = self._without_parts(text)
        # Wrapped base64 is searched only if the text without line ends contains a secret.
        if len(text) > _LINE:
            joined = _joined(text)
            if len(joined) < len(text) and self._holds(joined):
                return _WRAPPED.sub(self._unwrapped, text)
        return text

    def _without_parts(self, text: str) -> str:
        """Return text without the parts of secrets directly before and after a sign of a cut."""
        # Loopwright cleans a text before it cuts it; other programs do not.
        parts: list[str] = []
        begin = 0
        for cut in _CUT.finditer(text):
            before = text[begin : cut.start()]
            parts += [self._without_end(self._without_start(before) if begin else before), cut[0]]
            begin = cut.end()
        if not begin:
            return text
        joined = "".join([*parts, self._without_start(text[begin:])])
        return text if joined == text else joined

    def _without_end(self, text: str) -> str:
        """Return text with MARK in place of the beginning of a secret at its end."""
        if text[-_PART:] not in self._parts:
            return text
        end = self.open_end(text)
        return text if len(text) - end < _PART else f"{text[:end]}{MARK}"

    def _without_start(self, text: str) -> str:
        """Return text with MARK in place of the end of a secret at its beginning."""
        head, longest = text[:_PART], 0
        if head not in self._parts:
            return text
        for form in self._forms:
            at = form.find(head, 1)
            while at > 0:
                rest = form[at:]
                if len(rest) > longest and text.startswith(rest):
                    longest = len(rest)
                at = form.find(head, at + 1)
        return f"{MARK}{text[longest:]}" if longest else text

    def _holds(self, text: str) -> bool:
        """Return whether a text contains a secret in any form."""
        # A pattern of many alternatives is much slower on long texts than one search for each.
        if len(text) < _SHORT:
            assert self._pattern is not None
            return self._pattern.search(text) is not None
        return any(form in text for form in self._forms)

    def _unwrapped(self, match: re.Match[str]) -> str:
        """Return lines of base64 unchanged, or on one line without the secret that they contain."""
        joined = _joined(match[0])
        assert self._pattern is not None
        return match[0] if self._pattern.search(joined) is None else self._pattern.sub(MARK, joined)

    def open_end(self, text: str) -> int:
        """Return the position of a secret that may be cut off by the end of `text`, or its length."""
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
    """Return text without line ends, as characters or as JSON escapes."""
    for end in ("\r\n", "\n", "\\r\\n", "\\n"):
        text = text.replace(end, "")
    return text


def _changed(cleaned: Iterable[Json], values: Iterable[Json]) -> bool:
    # Identity suffices: a value without secrets is returned itself.
    return any(new is not old for new, old in zip(cleaned, values, strict=False))


class RedactedText:
    """A receiver of text in pieces, which passes them on without secrets; call `end` after the last."""

    __slots__ = ("_filter", "_receive")

    def __init__(self, receive: Callable[[str], None], pieces: StreamRedactor) -> None:
        self._receive = receive
        self._filter = pieces

    def __call__(self, piece: str) -> None:
        if text := self._filter.feed(piece):
            self._receive(text)

    def end(self) -> None:
        """Pass on the rest of the text."""
        if text := self._filter.flush():
            self._receive(text)


class StreamRedactor:
    """A filter for text in pieces: it withholds an end that may be the beginning of a secret."""

    __slots__ = ("_held", "_redactor")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return the text that may be shown now."""
        text = self._redactor.text(self._held + piece)
        end = self._redactor.open_end(text)
        self._held = text[end:]
        return text[:end]

    def flush(self) -> str:
        """Return the withheld text, after the last piece."""
        text, self._held = self._redactor.text(self._held), ""
        return text


def _forms(secret: str) -> set[str]:
    """Return the forms in which a value may occur in text."""
    quoted = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    lowered = {re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), text) for text in quoted}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    escaped |= {form.replace("/", "\\/") for form in escaped}  # some encoders escape slashes
    twice = {json.dumps(form)[1:-1] for form in escaped}  # JSON text inside JSON text
    encoded = {form for offset in range(3) for form in _base64(secret.encode(), offset)}
    return {secret, repr(secret)[1:-1], *quoted, *lowered, *escaped, *twice, *encoded}


def _base64(secret: bytes, offset: int) -> tuple[str, str]:
    """Return the base64 of bytes after `offset` others: the characters that do not depend on these."""
    text = base64.b64encode(b"\0" * offset + secret).decode()
    # Characters before `first` contain bits of the preceding bytes, those from `last` on bits of the
    # following ones, or padding.
    first = (offset * 8 + 5) // 6
    last = (offset + len(secret)) * 8 // 6
    stable = text[first:last]
    return stable, stable.replace("+", "-").replace("/", "_")


def without_tokens(text: str) -> str:
    """Return text without the tokens of addresses at which events are sent; see `journal.signal_urls`.

    >>> without_tokens("POST https://x.example/signal/r1/done/k?token=0123456789abcdef")
    'POST https://x.example/signal/r1/done/k?token=[redacted]'
    """
    return _SIGNAL_TOKEN.sub(rf"\1{MARK}", text)


def of_environment(environ: Mapping[str, str]) -> Redactor:
    """Return the filter for the secrets of an environment."""
    return Redactor(secrets_in(environ))


FRAMES = 20
LONGEST = 8192
_MESSAGE = 2000  # characters of one exception's message
_CHAIN = 20  # exceptions of one chain; a program may chain without end


def _below(folder: str | Path) -> str:
    """Return the prefix of the paths of all files below a folder."""
    return str(Path(folder) / "_")[:-1]


PACKAGE = _below(Path(__file__).parents[1])  # the prefix of this package's files
_INSTALLED = tuple(
    {
        _below(place)
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        if (place := sysconfig.get_path(name))
    }
)
_CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
_DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
_FRAME = re.compile(
    r'^ *(?:\| )*File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE
)


class Frame(NamedTuple):
    """A place in a file: the line and the function."""

    file: str
    line: int
    function: str


def _unchanged(text: str) -> str:
    return text


def described(
    error: BaseException,
    *,
    whole: bool = False,
    own: bool = True,
    redact: Callable[[str], str] | None = None,
) -> tuple[str, str]:
    """Return the qualified name of an exception and its traceback as text.

    Args:
        error: the exception.
        whole: include the frames inside this package.
        own: the user's code raised it; if False, an exception without a frame of the user's returns two
            empty texts.
        redact: removes secrets from messages and lines of source.
    """
    try:
        # An error that a step of this package raises is explained by its message.
        explained = not own and not whole
        if explained and not any(
            _is_users(frame.f_code.co_filename)
            for link in _linked(error)
            for frame, _ in traceback.walk_tb(link.__traceback__)
        ):
            return "", ""
        kind = type(error)
        name = kind.__qualname__
        if kind.__module__ not in ("builtins", "__main__"):
            name = f"{kind.__module__}.{name}"
        return name, _text(error, redact or _unchanged, whole=whole)
    except Exception:  # an exception whose own attributes raise
        return type(error).__name__, ""


def last_frame(text: str) -> Frame | None:
    """Return the innermost frame of the user's code in a traceback, or of a library if there is none."""
    frames = [Frame(m["file"], int(m["line"]), m["function"]) for m in _FRAME.finditer(text)]
    users = [frame for frame in frames if _is_users(frame.file)]
    return (users or frames)[-1] if frames else None


def _is_users(file: str) -> bool:
    return not file.startswith((PACKAGE, "<", *_INSTALLED))


def _linked(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an exception and its causes and contexts, each once."""
    visited: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in visited and len(visited) < _CHAIN:
        visited.add(id(link))
        yield link
        explicit = link.__cause__ is not None or link.__suppress_context__
        link = link.__cause__ if explicit else link.__context__


def _text(error: BaseException, redact: Callable[[str], str], *, whole: bool) -> str:
    parts: list[str] = []
    left = FRAMES
    # The innermost cause first: FRAMES are spent on the exception that was raised last.
    links = list(_linked(error))
    for number, link in enumerate(links):
        frames = _frames(link, redact, whole=whole)[-left:] if left else []
        left -= len(frames)
        shown = _message(link, redact, whole=whole)
        if frames:
            shown = "Traceback (most recent call last):\n" + "".join(frames) + shown
        if number:
            shown += _CAUSED if links[number - 1].__cause__ is link else _DURING
        parts.append(shown)
    # Again over the joined text: a secret may span the lines of two parts.
    text = redact("".join(reversed(parts)))
    if len(text) <= LONGEST:
        return text
    return "...\n" + text[-LONGEST + 4 :].partition("\n")[2]


def _frames(error: BaseException, redact: Callable[[str], str], *, whole: bool) -> list[str]:
    """Return the innermost frames of one exception as Python prints them."""
    walked = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if whole or not frame.f_code.co_filename.startswith(PACKAGE)
    ]
    shown = traceback.StackSummary.extract(iter(walked[-FRAMES:])).format()
    return [_cleaned_frame(redact(frame)) for frame in shown]


def _cleaned_frame(shown: str) -> str:
    """Return a frame with a cleaned line of source; the file and the line number stay."""
    place, newline, source = shown.partition("\n")
    lines = [cleaned(line) for line in source.splitlines() if line.strip(" ^~")]
    return place + newline + "".join(f"{line}\n" for line in lines)


def _message(error: BaseException, redact: Callable[[str], str], *, whole: bool) -> str:
    """Return the lines with an exception's type and message, and those of a group's members below."""
    lines = traceback.format_exception_only(type(error), error)
    # Cut before it is cleaned: the patterns need not search a message of megabytes.
    text = cleaned(redact("".join(lines))[: 2 * _MESSAGE])
    if len(text) > _MESSAGE:
        text = text[:_MESSAGE] + "...\n"
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions[:_CHAIN]:
            inner = "".join(_frames(member, redact, whole=whole))
            inner += _message(member, redact, whole=whole)
            text += "".join(f"  | {line}\n" for line in inner.splitlines())
    return text
