"""`journal init`: create or update the tables of a journal."""

from __future__ import annotations

import asyncio

from ...._extras import EXTRAS, missing
from ....cluster.delivery import open_deliverer
from ....journal.protocol import shown_url
from ...journals import DEFAULT, opened
from ..options import AsJson, JournalUrl
from ..output import Output
from . import Place, SharedJournal, stored


def journal_init(
    url: Place = "",
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Create the tables of a journal, or update them.

    Examples:
        loopwright journal init
        loopwright journal init postgres://HOST/DATABASE
    """
    with Output(as_json=as_json) as output:
        return asyncio.run(_init(url or journal, output))


async def _init(url: str, output: Output) -> int:
    async with opened(url, create=True) as store:
        version = await stored(store, url).prepare()
        # The tables of the default engine, too.
        if isinstance(store, SharedJournal):
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
