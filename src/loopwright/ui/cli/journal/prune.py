"""`journal prune`: delete the runs of a shared journal that ended long ago."""

from __future__ import annotations

import asyncio
from typing import Annotated, Protocol, runtime_checkable

import typer

from ....errors import ConfigurationError
from ....journal.protocol import shown_url
from ... import formatting as texts
from ...finding import moment
from ...journals import DEFAULT, opened
from ..options import AsJson, JournalUrl
from ..output import Output
from . import Place


@runtime_checkable
class _Prunable(Protocol):
    """A journal whose old runs can be deleted."""

    async def prune(self, before: float) -> int:
        """Delete the runs that ended before a time; return their number."""

    async def prune_files(self) -> int:
        """Delete the old files that no run uses; return their number."""


def journal_prune(
    url: Place = "",
    journal: JournalUrl = DEFAULT,
    ended_before: Annotated[
        str,
        typer.Option("--ended-before", metavar="TIME", help="An age such as 30d, or a date."),
    ] = "",
    as_json: AsJson = False,
) -> int:
    """Delete the runs of a shared journal that ended before a time.

    Examples:
        loopwright journal prune --ended-before 30d
        loopwright journal prune postgres://HOST/DATABASE --ended-before 2026-01-31
    """
    with Output(as_json=as_json) as output:
        if not ended_before:
            raise ConfigurationError(
                "prune: no time. Write: loopwright journal prune --ended-before 30d"
            )
        before = moment("--ended-before", ended_before)
        return asyncio.run(_prune(url or journal, before, output))


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
