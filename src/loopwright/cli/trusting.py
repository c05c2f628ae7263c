"""What runs on this machine is agreed to once: asked about on a terminal, `--yes` elsewhere.

Rules:

1. Nothing of a document is imported or run before it is agreed to: it is read first, loaded then.
2. Agreement is kept by content under `$XDG_STATE_HOME/loopwright/trusted` (by default
   `~/.local/state`), so what was changed is asked about again.
3. `LOOPWRIGHT_TRUST=all` agrees to everything, for machines that run nothing else; it keeps nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigurationError
from . import texts
from .output import Output
from .sources import Source

if TYPE_CHECKING:
    from ..documents.trust import Agreements, Deeds

__all__ = ["agreed", "is_agreed"]

TRUST = "LOOPWRIGHT_TRUST"
_YES = ("y", "yes")


def agreed(load: Callable[[bool], Source], output: Output, *, yes: bool) -> Source:
    """Return what `load(execute)` loads, once a person has agreed to what it would run.

    Raises:
        ConfigurationError: if nobody has, and nobody can be asked, or says no.
        DocumentError: with every problem of the document.
    """
    read = load(False)
    deeds = read.deeds()
    if deeds is None or not deeds:
        return load(True) if deeds is not None and read.needs_python else read
    if os.environ.get(TRUST) != "all":
        _settle(read, deeds, output, yes=yes)
    return load(True) if read.needs_python else read


def is_agreed(deeds: Deeds | None) -> bool:
    """Say whether a person has agreed to what would run, or nothing has to be agreed to."""
    if not deeds or os.environ.get(TRUST) == "all":
        return True
    from ..documents.trust import Agreements

    folder = _folder()
    return folder is not None and Agreements(folder).has(deeds)


def _settle(read: Source, deeds: Deeds, output: Output, *, yes: bool) -> None:
    """Return if it is agreed to by now; keep that it is."""
    from ..documents.trust import Agreements

    folder = _folder()
    kept = Agreements(folder) if folder is not None else None
    if kept is not None and kept.has(deeds):
        return
    if not yes:
        _ask(read, deeds, output)
    _keep(kept, deeds, output)


def _keep(kept: Agreements | None, deeds: Deeds, output: Output) -> None:
    why = "there is no home folder"
    if kept is not None:
        try:
            kept.add(deeds)
            return
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
    output.note(f"note: that you agreed cannot be kept, it will be asked again: {why}")


def _folder() -> Path | None:
    state = os.environ.get("XDG_STATE_HOME", "")
    if state and Path(state).is_absolute():
        return Path(state) / "loopwright" / "trusted"
    try:
        return Path.home() / ".local" / "state" / "loopwright" / "trusted"
    except RuntimeError:
        return None


def _ask(read: Source, deeds: Deeds, output: Output) -> None:
    counted = [
        texts.plural(len(found), word)
        for found, word in ((deeds.commands, "command"), (deeds.python, "Python function"))
        if found
    ]
    what = f"{read.name} runs {' and '.join(counted)} on this machine"
    if not (output.terminal and sys.stdin is not None and sys.stdin.isatty()):
        raise ConfigurationError(
            f"{what}, which nobody has agreed to yet; loopwright check tells which, --yes agrees"
        )
    output.say((f"{what}:", "bold"))
    plan = read.plan()
    for key in ("commands", "python", "hosts", "environment"):
        for value in plan[key]:
            output.say((f"  {key}: ", "dim"), texts.one_line(str(value)))
    output.say("Run it? You are asked again only when a file of it changes. [y/N]")
    output.flush()
    try:
        answer = sys.stdin.readline().strip().lower()
    except (OSError, ValueError):
        answer = ""
    if answer not in _YES:
        raise ConfigurationError(f"{read.name}: not agreed to, nothing was run")
