"""The items of a list in a document: from a value, a text or a file."""

from __future__ import annotations

import os
from pathlib import Path

from ...engine.context import Context
from ...engine.lists import ItemsStep
from ...engine.step import digest_of
from ...errors import StepError
from ...models.reply_text import clean_text, read_json, strip_fence
from ...records import codec
from ...records.codec import Json
from ...templates.variables import TemplatedValue, rendered

__all__ = ["FILE", "Items", "inside", "items_of"]

FILE = "file://"
MAX_BYTES = 5_000_000  # every item is recorded, so a larger file belongs into several runs


class Items(ItemsStep):
    """The items that a template or a file gives; the content of a file is recorded too.

    Relative paths start in `folder`. Only a template that itself begins with `file://` names a file; a rendered value
    never does. The file must be `allowed`, or in it if that is a folder.
    """

    fingerprint: str

    def __init__(
        self, source: TemplatedValue, folder: Path, allowed: Path, most: int | None = None
    ) -> None:
        self.source = source
        self.most = most
        self.folder = folder
        self.allowed = allowed
        text = source.source
        self.from_file = isinstance(text, str) and text.lstrip().startswith(FILE)
        self.fingerprint = digest_of("items", codec.canonical(text))

    async def act(self, value: Json, ctx: Context) -> Json:
        """Return the items."""
        source = rendered(self.source, ctx, value)
        if self.from_file:
            source = self._read(codec.text_of(source).strip().removeprefix(FILE), ctx)
        return self.bounded(items_of(source, ctx.path), ctx)

    def _read(self, name: str, ctx: Context) -> str:
        path = inside(self.folder, name, self.allowed)
        if path is None:
            raise _refused(f"{FILE}{name} is outside {self.allowed}", ctx.path)
        try:
            with path.open("rb") as file:
                # One byte more than allowed, instead of the file's size, which may change before the read.
                raw = file.read(MAX_BYTES + 1)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise _refused(f"{FILE}{name} cannot be read: {why}", ctx.path) from error
        if len(raw) > MAX_BYTES:
            raise _refused(f"{FILE}{name} has more than {MAX_BYTES:,} bytes; split it", ctx.path)
        return clean_text(raw.decode("utf-8-sig", "replace"))


def inside(folder: Path, name: str, root: Path) -> Path | None:
    """Return the file of this name in a folder, or None if it is not the root and not inside it."""
    # The real path, so that a symbolic link does not lead out of the root.
    path = Path(os.path.realpath(folder / name))
    return path if path.is_relative_to(os.path.realpath(root)) else None


def items_of(value: Json, path: str = "") -> list[Json]:
    """Return the items of a value.

    A list is returned unchanged. A text is a JSON array, also in a code fence; otherwise lines of JSON
    objects or arrays; otherwise its lines of text, trimmed and without empty ones.

    Raises:
        StepError: Of kind `items`, for any other value.
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        expected = "expected a list, a JSON array or lines of text"
        if value is None:
            raise _refused(
                f"items: there is no value; {expected}. Does the run have an input?", path
            )
        raise _refused(f"items: {expected}, not {type(value).__name__}", path)
    text = strip_fence(value)
    # Only a text that looks like JSON is parsed: a list of lines is the usual reply of a model.
    if text.startswith("["):
        reading = read_json(text)
        if reading.problem is None and isinstance(reading.value, list):
            return reading.value
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # All lines, because a single line of prose means that the text is not JSON lines.
    if lines and all(line[0] in "{[" for line in lines):
        readings = [read_json(line) for line in lines]
        if all(reading.problem is None for reading in readings):
            return [reading.value for reading in readings]
    return list(lines)


def _refused(message: str, path: str) -> StepError:
    return StepError(message, path=path, kind="items", retryable=False)
