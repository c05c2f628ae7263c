"""The journal of a command, and the run that it names."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from .._home import HOME
from ..coding.workspace.store import checked_home
from ..errors import JournalUnavailable, RunNotFound, nearest
from ..journal import Journal, RunInfo
from ..journal.open import open_journal
from ..journal.protocol import FileStore, shown_url
from ..journal.questions import runs_of_schedule
from ..records.codec import Json

DEFAULT = "sqlite:.loopwright/runs.db"
MAX_ROWS = 1_000_000  # of a list
NAME = "loopwright"
# -P as for the installed command: without it, modules of the current folder would replace those of Python.
PROGRAM = (sys.executable, "-P", "-m", NAME)
LATEST = "last"  # names the latest run on the command line

T = TypeVar("T")


@asynccontextmanager
async def opened(url: str, *, create: bool = False) -> AsyncIterator[Journal]:
    """Open a journal by its URL, and close it afterwards. `create` creates a missing one.

    Raises:
        RunNotFound: if the journal does not exist.
        JournalUnavailable: if its folder cannot be created.
    """
    scheme, _, rest = url.partition(":")
    in_file = scheme == "sqlite" and not rest.startswith("//")
    path = Path(rest.partition("?")[0]) if in_file else None
    # Opening would create an empty database, and a mistyped path would look like an empty journal.
    if path is not None and not create:
        log = path.with_name(f"{path.name}-wal")
        if not path.exists() and not log.exists():
            raise RunNotFound(f"there is no journal at {path} yet; loopwright run creates it")
    if create and path is not None and path.parent.name == HOME:
        create_folder(path.parent)
    store = open_journal(url)
    try:
        yield store
    except RunNotFound as error:
        hint = f"; list them with: {command_line('runs', '', url)}" if error.hint else ""
        raise RunNotFound(error.what, hint) from error
    finally:
        await store.close()


def create_folder(folder: Path) -> None:
    """Create the default journal's folder.

    Raises:
        JournalUnavailable: if it cannot be created.
        ConfigurationError: if it has contents that this user did not make.
    """
    try:
        checked_home(folder).make()
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise JournalUnavailable(
            f"{folder} cannot be created: {why}. Choose another place with --journal."
        ) from error


def reading(url: str, work: Callable[[Journal], Awaitable[T]]) -> T:
    """Open an existing journal and return the result of `work` on it."""

    async def opened_work() -> T:
        async with opened(url) as store:
            return await work(store)

    return asyncio.run(opened_work())


async def find_run(store: Journal, name: str) -> RunInfo:
    """Return a run by its ID, a unique beginning of the ID, `last`, or the name of a schedule.

    Raises:
        RunNotFound: with the nearest ID.
    """
    if name == LATEST:
        rows = await store.runs(limit=1)
        if not rows:
            raise RunNotFound("this journal has no runs yet")
        return await store.find(rows[0].run_id)
    try:
        return await store.find(name)
    except RunNotFound as error:
        # The runs of a schedule begin alike; its name stands for the one that waits, or else for the latest.
        for status in ("queued", ""):
            if scheduled := await runs_of_schedule(store, name, status=status):
                return scheduled[0]
        # The latest runs only: a mistyped ID is usually a recent one, and a journal may have millions.
        hint = nearest(name, [row.run_id for row in await store.runs(limit=500)])
        if not hint or not error.hint:  # a prefix of several ids has no hint
            raise
        raise RunNotFound(f"there is no run {name!r} in this journal{hint}") from error


def folder_of(store: Journal) -> Path | None:
    """Return the folder of a journal in a file; None for another one."""
    files: FileStore | None = getattr(store, "files", None)
    return None if files is None else files.journal_folder


def command_line(command: str, run_id: str, url: str, *options: str) -> str:
    """Return the command line for a command on a run of this journal, or on all runs."""
    words = [_program(), *command.split(), *([run_id] if run_id else []), *options]
    # Another journal in the environment would be used instead.
    if url != DEFAULT or os.environ.get("LOOPWRIGHT_JOURNAL", url) != url:
        words += ["--journal", shown_url(url)]
    return shlex.join(words)


def files_line(action: str, run_id: str, folder: Path, *words: str) -> str:
    """Return the command line for the files of a run, which are in `folder`."""
    line = [_program(), "files", action, run_id, *words]
    # A copy is HOME/trees/RUN/LOOP.
    if folder.parent.parent.name == "trees" and folder.parents[2] != Path(".loopwright").resolve():
        line += ["--home", str(folder.parents[2])]
    return shlex.join(line)


def resume_command(source: Mapping[str, Json], run_id: str, url: str, *options: str) -> str:
    """Return the command line that resumes a run of a source: of an evaluation, with its document and its options."""
    # A limit is raised by `resume` only.
    if "eval" in source and "file" in source and options[:1] in ((), ("--in-doubt",)):
        file = os.path.relpath(source["file"])
        return command_line("eval", "", url, file, "--resume", run_id, *options)
    return command_line("resume", run_id, url, *options)


def resume_line(info: RunInfo, url: str, *options: str) -> str:
    """Return the command line that resumes a run, or the line of Python if only its program has the step."""
    if has_step(info):
        return resume_command(info.source, info.run_id, url, *options)
    names = [option.removeprefix("--").replace("-", "_") for option in options[::2]]
    values = [value if value[:1].isdigit() else repr(value) for value in options[1::2]]
    raised = "".join(f", {name}={value}" for name, value in zip(names, values, strict=True))
    return _line_of_python(info, url, raised)


def retry_line(info: RunInfo, url: str) -> str:
    """Return the command line that does again what failed, or the line of Python; see `resume_line`."""
    if has_step(info):
        return command_line("retry", info.run_id, url)
    return _line_of_python(info, url, ", retry=True")


def has_step(info: RunInfo) -> bool:
    """Return whether the command line can load the step of a run, or a worker can."""
    return bool(info.queue) or not {"file", "python", "program"}.isdisjoint(info.source)


def _line_of_python(info: RunInfo, url: str, options: str) -> str:
    return f"resume_sync(step, {info.run_id!r}, journal={shown_url(url)!r}{options}) in its Python program"


def _program() -> str:
    """Return the path by which this program was called, if its name alone would not run it.

    A clone has it in `.venv/bin`, which is not on the path before the environment is activated.
    """
    called = Path(sys.argv[0] if sys.argv else NAME)
    # Under `python -m loopwright`, argv[0] is the path of `__main__.py`, which cannot be called.
    if called.name != NAME or not called.is_file():
        return NAME
    installed = shutil.which(NAME)
    return NAME if installed is not None and called.samefile(installed) else sys.argv[0]
