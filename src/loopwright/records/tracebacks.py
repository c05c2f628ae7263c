"""Exceptions of users' functions as text for the journal: frames in their files, no values.

Rules:

1. Frames inside this package are left out, unless `whole` includes them. Local variables are never
   recorded.
2. Messages and lines of source are cleaned; see `sanitize`.
3. Causes and contexts precede the exception that they caused, as Python prints them.
4. `redact` removes known secrets before any text is cut, because it does not recognise half a key.
5. The text has at most FRAMES frames, the innermost, and the last LONGEST characters.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from .sanitize import cleaned

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
        if not own and not whole and not _concerns_user(error):
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


def _concerns_user(error: BaseException) -> bool:
    return any(
        _is_users(frame.f_code.co_filename)
        for link in _linked(error)
        for frame, _ in traceback.walk_tb(link.__traceback__)
    )


def _linked(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an exception and its causes and contexts, each once."""
    visited: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in visited and len(visited) < _CHAIN:
        visited.add(id(link))
        yield link
        link = _origin(link)


def _origin(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__
    return error.__context__


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
            below = links[number - 1]
            shown += _CAUSED if below.__cause__ is link else _DURING
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
