"""`journal check`: read every entry of a journal."""

from __future__ import annotations

import asyncio

from ....errors import JournalDamaged
from ....journal.open import oldest_first
from ....journal.protocol import DAMAGED, shown_url
from ....records.codec import Json
from ... import formatting as texts
from ...journals import DEFAULT, opened
from ..options import AsJson, JournalUrl
from ..output import Output
from . import Place, SharedJournal, stored


def journal_check(
    url: Place = "",
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Read every entry of a journal, and report what is damaged.

    Exit codes: 0 no problem, 1 a problem.

    Examples:
        loopwright journal check
        loopwright journal check sqlite:.loopwright/runs.db --json
    """
    with Output(as_json=as_json) as output:
        return asyncio.run(_check(url or journal, output))


async def _check(url: str, output: Output) -> int:
    problems: list[str] = []
    runs = 0
    async with opened(url) as store:
        notes = await stored(store, url).notes()
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
        if isinstance(store, SharedJournal):
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
