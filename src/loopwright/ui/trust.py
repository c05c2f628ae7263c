"""What runs on this machine is agreed to once: asked about on a terminal, `--yes` elsewhere.

Rules:

1. Nothing of a document is imported or run before it is agreed to: it is read first, loaded then.
2. What is agreed to is what was shown. Files are read again after the answer: if anything changed while
   the question stood, it is asked again. What is loaded then is made of the contents that were shown.
3. Agreement is kept by content under `$XDG_STATE_HOME/loopwright/trusted` (by default
   `~/.local/state`), so what was changed is asked about again.
4. `LOOPWRIGHT_TRUST=all` agrees to everything, for machines that run nothing else; it keeps nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import ConfigurationError
from . import formatting as texts
from .sources import RunSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..documents.check.trust import LocalActions, TrustStore

__all__ = ["Load", "Person", "agreed", "does", "is_agreed"]

TRUST = "LOOPWRIGHT_TRUST"
MOST_KEYS = 3  # that a sentence names; `check` and the question name all
_YES = ("y", "yes")


class Load(Protocol):
    """What loads a document: looked at only, or to be run; from its files, or from contents."""

    def __call__(
        self, *, execute: bool, contents: Mapping[Path, bytes] | None = None
    ) -> RunSource: ...


class Person(Protocol):
    """Who can be asked: told something (`note`), shown lines (`say`), there at all (`terminal`)."""

    @property
    def terminal(self) -> bool: ...

    def note(self, text: str) -> None: ...

    def say(self, *parts: str | tuple[str, str]) -> None: ...

    def flush(self) -> None: ...


def agreed(load: Load, person: Person, *, yes: bool) -> RunSource:
    """Return what `load` loads, once a person has agreed to what it would run.

    Raises:
        ConfigurationError: if nobody has, and nobody can be asked, or says no.
        DocumentError: with every problem of the document.
    """
    read = load(execute=False)
    deeds = read.deeds()
    if deeds is None:
        return read
    while deeds and os.environ.get(TRUST) != "all":
        if _settled(read, deeds, person, yes=yes):
            break
        read, before = load(execute=False), deeds
        deeds = read.deeds()
        assert deeds is not None
        if deeds.digest == before.digest:
            _keep(deeds, person)
            break
        person.note(f"{read.name}: it changed while you were asked, so you are asked again")
    if not read.needs_python:
        return read
    made = load(execute=True, contents=deeds.contents)
    now = made.deeds()
    if now is None or now.digest != deeds.digest:
        raise ConfigurationError(f"{read.name}: it changed after it was agreed to; run it again")
    return made


def is_agreed(deeds: LocalActions | None) -> bool:
    """Say whether a person has agreed to what would run, or nothing has to be agreed to."""
    if not deeds or os.environ.get(TRUST) == "all":
        return True
    kept = _agreements()
    return kept is not None and kept.has(deeds)


def does(deeds: LocalActions) -> str:
    """Return in words what would have to be agreed to."""
    counted = [
        texts.plural(len(found), word)
        for found, word in ((deeds.commands, "command"), (deeds.python, "Python function"))
        if found
    ]
    said = [f"runs {' and '.join(counted)} on this machine"] if counted else []
    if deeds.keys:
        shown = ", ".join(deeds.keys[:MOST_KEYS])
        left = len(deeds.keys) - MOST_KEYS
        said.append(f"sends {shown}{f' and {left} more' if left > 0 else ''}")
    return " and ".join(said)


def _settled(read: RunSource, deeds: LocalActions, person: Person, *, yes: bool) -> bool:
    """Return whether these contents are agreed to; if a person was asked, they are to be read again."""
    kept = _agreements()
    if kept is not None and kept.has(deeds):
        return True
    if yes:
        _keep(deeds, person)
        return True
    _ask(read, deeds, person)
    return False


def _agreements() -> TrustStore | None:
    from ..documents.check.trust import TrustStore  # a run of Python steps loads no documents

    folder = _folder()
    return TrustStore(folder) if folder is not None else None


def _keep(deeds: LocalActions, person: Person) -> None:
    kept, why = _agreements(), "there is no home folder"
    if kept is not None:
        try:
            kept.add(deeds)
            return
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
    person.note(f"note: that you agreed cannot be kept, it will be asked again: {why}")


def _folder() -> Path | None:
    state = os.environ.get("XDG_STATE_HOME", "")
    if state and Path(state).is_absolute():
        return Path(state) / "loopwright" / "trusted"
    try:
        return Path.home() / ".local" / "state" / "loopwright" / "trusted"
    except RuntimeError:
        return None


def _ask(read: RunSource, deeds: LocalActions, person: Person) -> None:
    what = f"{read.name} {does(deeds)}"
    if not (person.terminal and sys.stdin is not None and sys.stdin.isatty()):
        raise ConfigurationError(
            f"{what}, which nobody has agreed to yet; loopwright check tells which, --yes agrees"
        )
    person.say((f"{what}:", "bold"))
    plan = read.plan()
    for key in ("commands", "python", "keys", "hosts", "environment"):
        for value in plan[key]:
            person.say((f"  {key}: ", "dim"), texts.one_line(str(value)))
    person.say("Run it? You are asked again only when a file of it changes. [y/N]")
    person.flush()
    try:
        answer = sys.stdin.readline().strip().lower()
    except (OSError, ValueError):
        answer = ""
    if answer not in _YES:
        raise ConfigurationError(f"{read.name}: not agreed to, nothing was run")
