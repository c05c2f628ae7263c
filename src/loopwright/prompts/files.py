"""The files of a prompt: read once, stored beside the journal, recorded by digest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from urllib.parse import urlsplit

from ..engine.context import Context
from ..engine.functions import in_thread
from ..engine.step import Leaf
from ..errors import ConfigurationError
from ..journal.protocol import FileStore
from ..models.files import File, FileReference
from ..records import codec
from ..records.codec import Json
from ..templates.variables import TemplatedValue, fill, rendered

__all__ = ["Files", "PromptFiles", "file_of"]

Files = Sequence[File | str] | Callable[[Json], Iterable[File | str]]


class PromptFiles:
    """The files that a prompt names: files, templates of paths and addresses, or a function of the input.

    Raises:
        ConfigurationError: For another object.
        TemplateError: For an invalid template.
    """

    def __init__(self, files: Files | Sequence[File | TemplatedValue], root: Path | None) -> None:
        self.root = root
        self.function = files if callable(files) else None
        self.items: tuple[File | TemplatedValue, ...] = ()
        if callable(files):
            return
        # A single text would otherwise be a list of its characters.
        if isinstance(files, str | bytes | File):
            raise ConfigurationError(f"files: {files!r:.60} is not a list. Use a list of files.")
        items: list[File | TemplatedValue] = []
        for item in files:
            if isinstance(item, str):
                items.append(fill(item))
            elif isinstance(item, File | TemplatedValue):
                items.append(item)
            else:
                raise ConfigurationError(
                    f"files: {item!r:.60} is not a file. Use a File, or a template of a path."
                )
        self.items = tuple(items)

    def __bool__(self) -> bool:
        return bool(self.items) or self.function is not None

    @property
    def fingerprint(self) -> str:
        """The files as text for the fingerprint of the prompt."""
        if self.function is not None:
            return f"function {getattr(self.function, '__qualname__', '')}"
        return codec.canonical(
            [i.described() if isinstance(i, File) else str(i.source) for i in self.items]
        )

    def files(self, value: Json, ctx: Context) -> list[File]:
        """Return the files for an input."""
        if self.function is not None:
            return [file_of(item) for item in self.function(value)]
        return [i if isinstance(i, File) else file_of(rendered(i, ctx, value)) for i in self.items]

    async def attach(
        self, value: Json, ctx: Context
    ) -> tuple[tuple[FileReference, ...], dict[str, bytes]]:
        """Return the files and their contents by digest. A resumed run uses the stored contents.

        Raises:
            StepError: For a file that cannot be read.
        """
        files = self.files(value, ctx)
        store: FileStore = ctx.run.resources["file_store"]
        reader = _ReadFiles(files, store, self.root or Path.cwd())
        # A recorded effect: the file may change between a crash and the resumed run.
        recorded = await ctx.call("files", reader, [file.described() for file in files])
        references = tuple(FileReference.from_json(one) for one in recorded)
        # Each content once: the same file may be attached twice.
        digests = dict.fromkeys(reference.digest for reference in references if reference.digest)
        contents = {digest: await in_thread(store.get, digest) for digest in digests}
        return references, contents


class _ReadFiles(Leaf):
    """An effect that reads files, stores their contents and returns their references."""

    name = "files"
    # The files are chosen before, so the effect depends on its input only.
    wants_context = False
    fingerprint = "note.files/1"
    counts = False  # a note

    def __init__(self, files: Sequence[File], store: FileStore, root: Path) -> None:
        self.files = files
        self.store = store
        self.root = root

    async def act(self, value: Json, ctx: Context | None) -> Json:
        del value, ctx
        return [(await in_thread(self._read, file)).to_json() for file in self.files]

    def _read(self, file: File) -> FileReference:
        if file.url:
            return FileReference(file.media_type, url=file.url)
        content = file.read(self.root)
        digest, name = self.store.put(content), PurePath(file.path).name
        return FileReference(file.media_type, digest=digest, name=name, size=len(content))


def file_of(item: object) -> File:
    """Return the file of an item of a function or a rendered template."""
    if isinstance(item, File):
        return item
    if not isinstance(item, str) or not item.strip():
        raise ConfigurationError(f"files: {item!r:.60} is not a path or an address")
    # The provider reads the address; Loopwright does not.
    if urlsplit(item).scheme in ("http", "https"):
        return File(url=item)
    return File(item)
