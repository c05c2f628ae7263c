"""`journal`: the tables of a journal, copies of its runs, and the removal of old ones."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Set as AbstractSet
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Protocol, runtime_checkable

import typer

from ..._extras import EXTRAS, missing
from ..._home import HOME, TRUST, Home
from ...cluster.delivery import open_deliverer
from ...cluster.shared_runs import open_runs
from ...coding.workspace.store import refuse_tracked
from ...errors import ConfigurationError, JournalDamaged
from ...journal import Journal
from ...journal.open import Copied, copy_runs, oldest_first
from ...journal.protocol import DAMAGED, FileStore, shown_url
from ...memory import Memory
from ...records.codec import Json
from .. import formatting as texts
from ..consent import can_be_asked, says_yes
from ..journals import DEFAULT, opened
from .options import AsJson, JournalUrl, moment
from .output import Output


class JournalAction(StrEnum):
    """The actions of the command."""

    INIT = "init"
    CHECK = "check"
    MOVE = "move"
    PRUNE = "prune"
    ADOPT = "adopt"


@runtime_checkable
class _Stored(Protocol):
    """A journal in a database."""

    @property
    def memory(self) -> Memory: ...

    @property
    def files(self) -> FileStore: ...

    async def prepare(self) -> int:
        """Create or migrate the tables; return their version."""

    async def notes(self) -> list[str]:
        """Return what an operator should know about the database."""


@runtime_checkable
class _Prunable(Protocol):
    """A journal whose old runs can be deleted."""

    async def prune(self, before: float) -> int:
        """Delete the runs that ended before a time; return their number."""

    async def prune_files(self) -> int:
        """Delete the old files that no run uses; return their number."""


@runtime_checkable
class _Shared(Protocol):
    """A journal whose workers share tables."""

    async def problems(self) -> list[str]:
        """Return what is wrong in these tables."""


def journal(
    action: Annotated[
        JournalAction,
        typer.Argument(
            metavar="ACTION",
            help="init (create or update the tables), check (read every entry), move (copy the runs "
            "and memories to URL), prune (delete old runs), or adopt (make a folder .loopwright known that came "
            "from elsewhere).",
        ),
    ],
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="Journal; for move, the journal that receives the runs; for adopt, the folder.",
        ),
    ] = "",
    journal: JournalUrl = DEFAULT,
    ended_before: Annotated[
        str,
        typer.Option(
            "--ended-before", metavar="TIME", help="For prune: an age such as 30d, or a date."
        ),
    ] = "",
    yes: Annotated[
        bool, typer.Option("--yes", help="For adopt: make the folder known without a question.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Create, check, copy or clean a journal, or adopt its folder."""
    with Output(as_json=as_json) as output:
        if action is JournalAction.MOVE:
            if not url:
                raise ConfigurationError(
                    "move: no URL. Write: loopwright journal move postgres://HOST/DATABASE"
                )
            return asyncio.run(_move(journal, url, output))
        if action is JournalAction.ADOPT:
            return _adopt(Home(Path(url or HOME)), output, yes=yes)
        place = url or journal
        if action is JournalAction.INIT:
            return asyncio.run(_init(place, output))
        if action is JournalAction.CHECK:
            return asyncio.run(_check(place, output))
        if not ended_before:
            raise ConfigurationError(
                "prune: no time. Write: loopwright journal prune --ended-before 30d"
            )
        return asyncio.run(_prune(place, moment("--ended-before", ended_before), output))


async def _init(url: str, output: Output) -> int:
    async with opened(url, create=True) as store:
        version = await _stored(store, url).prepare()
        # The tables of the default engine, too.
        if isinstance(store, _Shared):
            if missing("pgqueuer"):
                output.note(
                    "the tables of the default engine were not created, because it is not installed; before workers "
                    f"start, repeat this command after: pip install {EXTRAS['pgqueuer'].requirements}"
                )
            else:
                engine = open_deliverer("", url)
                await engine.prepare()
                await engine.close()
        if output.as_json:
            output.write_json({"journal": shown_url(url), "format": version})
        else:
            output.write(f"{shown_url(url)} is ready (format {version})")
    return 0


async def _check(url: str, output: Output) -> int:
    problems: list[str] = []
    runs = 0
    async with opened(url) as store:
        notes = await _stored(store, url).notes()
        async for info in oldest_first(store):
            runs += 1
            try:
                if info.status == DAMAGED:
                    problems.append(info.detail)
                    continue
                await store.entries(info.run_id)
                await store.inbox(info.run_id)
            except JournalDamaged as error:
                # The other runs are read all the same: the report names every damaged one.
                problems.append(str(error))
        if isinstance(store, _Shared):
            problems += await store.problems()
    if output.as_json:
        data: dict[str, Json] = {"journal": shown_url(url), "runs": runs}
        output.write_json({**data, "problems": problems, "notes": notes})
    else:
        for problem in problems:
            output.write((problem, "red"))
        for note in notes:
            output.note(note)
        output.write(
            f"{texts.plural(runs, 'run')} checked, {texts.plural(len(problems), 'problem')}"
        )
    return 1 if problems else 0


async def _move(source_url: str, target_url: str, output: Output) -> int:
    outcomes: list[Copied] = []
    async with opened(source_url) as source, opened(target_url, create=True) as target:
        reads, writes = _stored(source, source_url), _stored(target, target_url)
        await writes.prepare()
        async for outcome in copy_runs(source, target):
            outcomes.append(outcome)
            if outcome.problem and not output.as_json:
                output.note(f"{outcome.run_id} was not copied: {outcome.problem}")
        there = await writes.memory.spaces()
        # Entries that are appended to an existing space would be there twice.
        spaces = [name for name in await reads.memory.spaces() if name not in there]
        for name in spaces:
            await writes.memory.append(*await reads.memory.entries(name))
        for digest in reads.files.digests():
            writes.files.put(reads.files.get(digest))
        await _copy_shared(
            source, target, {outcome.run_id for outcome in outcomes if not outcome.problem}
        )
    copied = sum(not outcome.problem for outcome in outcomes)
    if output.as_json:
        left = {outcome.run_id: outcome.problem for outcome in outcomes if outcome.problem}
        output.write_json({"copied": copied, "left": left, "spaces": len(spaces)})
    else:
        output.write(
            f"copied {texts.plural(copied, 'run')} and {texts.plural(len(spaces), 'space')} of memory from "
            f"{shown_url(source_url)} to {shown_url(target_url)}; nothing was deleted"
        )
    return 0


async def _copy_shared(source: Journal, target: Journal, copied: AbstractSet[str]) -> None:
    """Copy where the workspaces of runs are, and what the runs have spent of budgets, if both have workers."""
    try:
        reads, writes = open_runs(source), open_runs(target)
    except ConfigurationError:  # a journal of one machine
        return
    try:
        for host, run_ids in (await reads.pinned()).items():
            for run_id in copied & set(run_ids):
                await writes.pin(run_id, host)
        # An amount that the target has already is not added again.
        await writes.spend([report for report in await reads.spending() if report[1] in copied])
    finally:
        await reads.close()
        await writes.close()


async def _prune(url: str, before: float, output: Output) -> int:
    async with opened(url) as store:
        if not isinstance(store, _Prunable):
            raise ConfigurationError(
                f"prune: {shown_url(url)} is not a shared journal. To shorten a journal in a file, start "
                "a new file."
            )
        count = await store.prune(before)
        files = await store.prune_files()
    if output.as_json:
        output.write_json({"journal": shown_url(url), "deleted": count, "files": files})
    else:
        unused = f" and {texts.plural(files, 'unused file')}" if files else ""
        output.write(f"deleted {texts.plural(count, 'run')}{unused} from {shown_url(url)}")
    return 0


def _adopt(home: Home, output: Output, *, yes: bool) -> int:
    """Make a folder known, after a person has seen what is in it."""
    refuse_tracked(home.folder)
    if not home.folder.is_dir():
        raise ConfigurationError(f"adopt: there is no folder {home.folder}")
    if not home.recognised:
        contents = [_described(home.folder / name) for name in home.names()]
        if not yes and os.environ.get(TRUST) != "all":
            output.note(f"{home.folder} contains:")
            for line in contents:
                output.note(f"  {texts.one_line(line)}")
            if not can_be_asked(output):
                raise ConfigurationError(
                    f"adopt: {home.folder} needs your answer; without a terminal, look at these contents and repeat with --yes, "
                    f"or set {TRUST}=all on a machine for this alone"
                )
            output.note(
                "Its runs, their answers and their files are used from then on as if you had made them. "
                "Make it known? [y/N]"
            )
            if not says_yes(output):
                raise ConfigurationError(f"{home.folder} was not adopted; nothing in it is used")
        home.identify()
        output.note(
            "it has a new identifier: other users, and other folders of XDG_STATE_HOME, that knew it must adopt it again"
        )
    if output.as_json:
        output.write_json({"adopted": str(home.folder)})
    else:
        output.write(f"{home.folder} is known as a folder of yours")
    return 0


def _described(place: Path) -> str:
    """Return what a folder has at a name, as one line."""
    if place.is_symlink():
        return f"{place.name} -> {place.readlink()}"
    if not place.is_dir():
        return f"{place.name}  {place.lstat().st_size} bytes"
    inside = [one for one in place.rglob("*") if not one.is_dir() or one.is_symlink()]
    links = sum(one.is_symlink() for one in inside)
    more = f", {links} of them links" if links else ""
    return f"{place.name}/  {texts.plural(len(inside), 'file')}{more}"


def _stored(store: Journal, url: str) -> _Stored:
    if not isinstance(store, _Stored):
        raise ConfigurationError(
            f"journal: {shown_url(url)!r} has no tables. Use sqlite:PATH or postgres://HOST/DATABASE."
        )
    return store
