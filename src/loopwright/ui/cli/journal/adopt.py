"""`journal adopt`: make a folder `.loopwright` known that came from elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ...._home import HOME, TRUST, Home
from ....coding.workspace.store import refuse_tracked
from ....errors import ConfigurationError
from ... import formatting as texts
from ...consent import can_be_asked, says_yes
from ..options import AsJson
from ..output import Output


def journal_adopt(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder.")] = HOME,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Answer yes: make the folder known.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Make a folder .loopwright known that came from elsewhere, after you have seen what it contains.

    Examples:
        loopwright journal adopt
        loopwright journal adopt backup/.loopwright --yes
    """
    with Output(as_json=as_json) as output:
        return _adopt(Home(Path(folder)), output, yes=yes)


def _adopt(home: Home, output: Output, *, yes: bool) -> int:
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
