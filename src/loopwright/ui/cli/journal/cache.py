"""`journal cache`: the replies of model calls that a journal keeps."""

from __future__ import annotations

import asyncio
import math
from typing import Annotated, Protocol, runtime_checkable

import typer

from ....errors import ConfigurationError
from ....journal.call_cache import CallCache
from ....journal.protocol import shown_url
from ... import formatting as texts
from ...finding import moment
from ...journals import DEFAULT, opened
from ..options import AsJson, JournalUrl
from ..output import Output
from . import Place


@runtime_checkable
class _Keeping(Protocol):
    """A journal that keeps replies."""

    @property
    def call_cache(self) -> CallCache: ...


def journal_cache(
    url: Place = "",
    journal: JournalUrl = DEFAULT,
    clear: Annotated[bool, typer.Option("--clear", help="Delete these replies.")] = False,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than", metavar="TIME", help="Only older replies: an age such as 7d, or a date."
        ),
    ] = "",
    as_json: AsJson = False,
) -> int:
    """Count or delete the replies of models that a journal keeps for equal requests.

    Examples:
        loopwright journal cache
        loopwright journal cache --clear --older-than 7d
    """
    with Output(as_json=as_json) as output:
        before = moment("--older-than", older_than) if older_than else math.inf
        return asyncio.run(_cache(url or journal, before, output, clear=clear))


async def _cache(url: str, before: float, output: Output, *, clear: bool) -> int:
    async with opened(url) as store:
        if not isinstance(store, _Keeping):
            raise ConfigurationError(f"cache: {shown_url(url)} keeps no replies")
        kept = await store.call_cache.kept(before)
        if clear and kept.count:
            await store.call_cache.clear(before)
    if output.as_json:
        facts = {"replies": kept.count, "bytes": kept.size, "oldest": kept.oldest, "deleted": clear}
        output.write_json({"journal": shown_url(url), **facts})
        return 0
    count = f"{kept.count:,} {'reply' if kept.count == 1 else 'replies'}"
    if clear:
        output.write(f"deleted {count} from {shown_url(url)}")
    else:
        oldest = f", the oldest from {texts.when(kept.oldest)}" if kept.count else ""
        output.write(f"{shown_url(url)} keeps {count}, {kept.size:,} bytes{oldest}")
    return 0
