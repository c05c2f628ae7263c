"""The items that a step goes over: a list, or its text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .. import codec
from ..codec import Json
from ..context import Context
from ..errors import StepError
from ..evaluators.text import clean_text, read_json, strip_fence
from ..step import digest_of
from ..variables import Filled, rendered

__all__ = ["FILE", "Items", "inside", "items_of"]

FILE = "file://"
MAX_BYTES = 5_000_000


class Items:
    """A leaf whose output is the list of items; what a file held is on record with it.

    `folder` is where relative paths begin and `root` what they do not leave. Only a template that
    itself begins with `file://` names a file: a value never chooses one.
    """

    name = "items"
    effect = True
    required = False
    reserve = None
    idempotent = True
    wants_context = True

    def __init__(self, source: Filled, folder: Path, root: Path) -> None:
        self.source = source
        self.folder = folder
        self.root = root
        written = source.source
        self.from_file = isinstance(written, str) and written.lstrip().startswith(FILE)
        self.fingerprint = digest_of("items", codec.canonical(written))

    async def act(self, value: Json, ctx: Context) -> Json:
        """Return the items."""
        found = rendered(self.source, ctx, value)
        if self.from_file:
            found = self._read(codec.text_of(found).strip().removeprefix(FILE), ctx)
        return items_of(found, ctx.path)

    def _read(self, name: str, ctx: Context) -> str:
        path = inside(self.folder, name, self.root)
        if path is None:
            raise _refused(f"{FILE}{name} leads out of the project folder", ctx.path)
        try:
            with path.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise _refused(f"{FILE}{name} cannot be read: {why}", ctx.path) from error
        if len(raw) > MAX_BYTES:
            raise _refused(f"{FILE}{name} has more than {MAX_BYTES:,} bytes; split it", ctx.path)
        return clean_text(raw.decode("utf-8-sig", "replace"))


def inside(folder: Path, name: str, root: Path) -> Path | None:
    """Return the file that a name means from a folder, if it lies inside the root."""
    found = Path(os.path.realpath(folder / name))
    return found if found.is_relative_to(os.path.realpath(root)) else None


def items_of(value: Any, path: str = "") -> list[Json]:
    """Return the items that a value holds.

    A list is itself. A text is a JSON array, in a code fence or not; else lines of JSON objects or
    arrays; else its lines of text, trimmed, without the empty ones.

    Raises:
        StepError: of kind `items`, for any other value.
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        shown = type(value).__name__
        raise _refused(f"items: a {shown} is no list; give a list, a JSON array or lines", path)
    text = strip_fence(value)
    if text.startswith("["):
        whole = read_json(text)
        if whole.problem is None and isinstance(whole.value, list):
            return whole.value
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and all(line[0] in "{[" for line in lines):
        read = [read_json(line) for line in lines]
        if all(reading.problem is None for reading in read):
            return [reading.value for reading in read]
    return list(lines)


def _refused(message: str, path: str) -> StepError:
    return StepError(message, path=path, kind="items", retryable=False)
