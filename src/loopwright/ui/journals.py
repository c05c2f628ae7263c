"""Which journal a command works on, and which run of it."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from ..errors import JournalUnavailable, RunNotFound, nearest
from ..journal import Journal, RunInfo
from ..journal.open import open_journal

__all__ = ["DEFAULT", "MOST_ROWS", "again", "find_run", "opened", "reading", "shown_url"]

DEFAULT = "sqlite:.loopwright/runs.db"
MOST_ROWS = 1_000_000  # that a list can be asked for
NAME = "loopwright"  # of this program
LATEST = "last"  # the run that began last, by its name on the command line
_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*@")

T = TypeVar("T")


@asynccontextmanager
async def opened(url: str, *, create: bool = False) -> AsyncIterator[Journal]:
    """Open a journal by its URL and close it behind; only `create` makes one that is not there.

    Raises:
        RunNotFound: if there is none.
        JournalUnavailable: if its folder cannot be made.
    """
    path = _path(url)
    if path is not None and not create and not path.exists() and not _log_of(path).exists():
        raise RunNotFound(f"there is no journal at {path} yet; loopwright run makes it")
    if create and url == DEFAULT:
        _make_folder(Path(DEFAULT.partition(":")[2]).parent)
    store = open_journal(url)
    try:
        yield store
    except RunNotFound as error:
        hint = f"; list them with: {again('runs', '', url)}" if error.hint else ""
        raise RunNotFound(error.what, hint) from error
    finally:
        await store.close()


def _path(url: str) -> Path | None:
    scheme, _, rest = url.partition(":")
    return (
        Path(rest.partition("?")[0]) if scheme == "sqlite" and not rest.startswith("//") else None
    )


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _make_folder(folder: Path) -> None:
    """Make the default journal's folder, for its owner alone and unseen by version control."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", "utf-8")
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise JournalUnavailable(
            f"{folder} cannot be made: {why}; name another place with --journal"
        ) from error


def reading(url: str, work: Callable[[Journal], Awaitable[T]]) -> T:
    """Open a journal that is there, do `work` with it, and return what that returns."""

    async def whole() -> T:
        async with opened(url) as store:
            return await work(store)

    return asyncio.run(whole())


async def find_run(store: Journal, name: str) -> RunInfo:
    """Return the row of a run by its id, a unique beginning of it, or `last`.

    Raises:
        RunNotFound: naming the nearest id.
    """
    if name == LATEST:
        rows = await store.runs(limit=1)
        if not rows:
            raise RunNotFound("there is no run in this journal yet")
        return rows[0]
    try:
        return await store.find(name)
    except RunNotFound as error:
        hint = nearest(name, [row.run_id for row in await store.runs(limit=500)])
        if not hint or not error.hint:  # a prefix of several ids has no hint
            raise
        raise RunNotFound(f"there is no run {name!r} in this journal{hint}") from error


def shown_url(url: str) -> str:
    """Return a journal's URL without its password."""
    return _PASSWORD.sub(r"\1:***@", url)


def again(command: str, run_id: str, url: str, *options: str) -> str:
    """Return the command line that does something with a run of this journal, or with all without one."""
    words = [_program(), command, *([run_id] if run_id else []), *options]
    if url != DEFAULT:
        words += ["--journal", shown_url(url)]
    return shlex.join(words)


def _program() -> str:
    """Return how the person called this program, where its name alone would not find it.

    A clone has it in `.venv/bin`, which is on nobody's path until the environment is activated.
    """
    called = Path(sys.argv[0] if sys.argv else NAME)
    if called.name != NAME or not called.is_file():
        return NAME
    found = shutil.which(NAME)
    return NAME if found is not None and called.samefile(found) else sys.argv[0]
