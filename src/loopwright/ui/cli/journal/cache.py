"""`journal cache`: the replies of model calls that a journal keeps."""

from __future__ import annotations

import asyncio
import math
from typing import Annotated

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


def journal_cache(
    url: Place = "",
    journal: JournalUrl = DEFAULT,
    clear: Annotated[bool, typer.Option("--clear", help="Delete these replies.")] = False,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="TIME",
            help="Only older replies: an age such as 7d, or a date.",
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
    name = shown_url(url)
    async with opened(url) as store:
        cache: CallCache | None = getattr(store, "call_cache", None)
        if cache is None:
            raise ConfigurationError(
                f"cache: {name} keeps no replies. Use sqlite:PATH or postgres://HOST/DATABASE."
            )
        count, size, oldest = await cache.kept(before)
        if clear:
            await cache.clear(before)
    if output.as_json:
        facts = {"replies": count, "bytes": size, "oldest": oldest, "deleted": clear}
        output.write_json({"journal": name, **facts})
        return 0
    replies = f"{count:,} {'reply' if count == 1 else 'replies'}"
    from_when = f", the oldest from {texts.when(oldest)}" if count else ""
    kept = f"{name} keeps {replies}, {size:,} bytes{from_when}"
    output.write(f"deleted {replies} from {name}" if clear else kept)
    return 0
