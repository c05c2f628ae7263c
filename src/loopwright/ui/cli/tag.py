"""`tag`: the tags of a recorded run."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ...journal import Journal
from ...records.redaction import of_environment
from ..finding import tags_of
from ..journals import DEFAULT, find_run, reading
from .options import AsJson, JournalUrl, RunName
from .output import Output


def tag(
    name: RunName,
    tags: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE", help="Tag; NAME= removes it."),
    ],
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Tag a run, to find it again with `--tag`. The run may be running.

    Examples:
        loopwright tag last team=search pr=7
        loopwright tag last pr=
    """
    with Output(as_json=as_json) as output:
        changes = tags_of(tags, removable=True)
        # The journal keeps them, and no record may hold a key.
        of_environment(os.environ).refuse("tag", changes)

        async def change(store: Journal) -> tuple[str, dict[str, str]]:
            info = await find_run(store, name)
            return info.run_id, await store.tag(info.run_id, changes)

        run_id, now = reading(journal, change)
        if as_json:
            output.write_json({"run_id": run_id, "tags": now})
        else:
            shown = " ".join(f"{key}={value}" for key, value in now.items())
            output.write(f"{run_id}: {shown or 'no tags'}")
    return 0
