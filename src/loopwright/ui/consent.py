"""Approval of the commands and Python code of a document: asked on a terminal, or by `--yes`.

1. A document is read first. Its code is imported or run only after approval.
2. Approval covers the contents that were shown. Files are read again after the answer, and a change
   is asked about again. The shown contents are then loaded.
3. Approval is stored by content under `$XDG_STATE_HOME/loopwright/trusted` (by default
   `~/.local/state`), so a changed file needs a new approval.
4. `LOOPWRIGHT_TRUST=all` approves everything, for dedicated machines, and stores nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .._home import TRUST, state_folder
from ..errors import ConfigurationError
from . import formatting as texts
from .run_summary import UNTIL_DOCUMENT
from .sources import RunSource, documents_module

if TYPE_CHECKING:
    from .documents import LocalActions, TrustStore

MAX_KEYS = 3  # for each place in a sentence; `check` and the question name all
_YES = ("y", "yes")


class Load(Protocol):
    """Loads a document, to read it or to run it, from its files or from `contents`."""

    def __call__(
        self, *, execute: bool, contents: Mapping[Path, bytes] | None = None
    ) -> RunSource: ...


class Person(Protocol):
    """The person at the terminal, if there is one."""

    @property
    def terminal(self) -> bool: ...

    def note(self, text: str) -> None: ...

    def write(self, *parts: str | tuple[str, str]) -> None: ...

    def flush(self) -> None: ...


def approved(load: Load, person: Person, *, yes: bool) -> RunSource:
    """Return the result of `load` after a person has approved the code in it.

    Raises:
        ConfigurationError: without an approval, if no terminal is there or the answer is no.
        DocumentError: with all problems of the document.
    """
    read = load(execute=False)
    actions = read.local_actions()
    if actions is None:
        return read
    # The files are read again after the answer: they may have changed while the person was reading.
    while actions and os.environ.get(TRUST) != "all":
        if is_approved(actions):
            break
        if yes:
            approve(actions, person.note)
            break
        _ask(read, actions, person)
        read, before = load(execute=False), actions
        actions = read.local_actions()
        assert actions is not None
        if actions.digest == before.digest:
            approve(actions, person.note)
            break
        person.note(f"{read.name} has changed in the meantime; you are asked again")
    if not read.needs_python:
        return read
    # Exactly the approved contents are executed, whatever the files contain now.
    loaded = load(execute=True, contents=actions.contents)
    current_actions = loaded.local_actions()
    if current_actions is None or current_actions.digest != actions.digest:
        raise ConfigurationError(f"{read.name} changed after it was approved. Run it again.")
    return loaded


def is_approved(actions: LocalActions | None) -> bool:
    """Return whether the code of a document is approved, or needs no approval."""
    if not actions or os.environ.get(TRUST) == "all":
        return True
    store = _trust_store()
    return store is not None and store.has(actions)


def approve(actions: LocalActions, note: Callable[[str], None]) -> None:
    """Record the approval of these contents; `note` receives the reason if it cannot be stored."""
    store, why = _trust_store(), "there is no home folder"
    if store is not None:
        try:
            store.add(actions)
            return
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
    note(f"note: your approval cannot be stored, and you will be asked again: {why}")


def trust_contents(digest: str, note: Callable[[str], None]) -> None:
    """Trust the files that submitted runs carry, by their digest, for workers of this user."""
    store, why = _trust_store(), "there is no home folder"
    if store is not None:
        try:
            store.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (store.folder / digest).touch(mode=0o600)
            return
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
    note(f"note: the approval cannot be stored: {why}")


def trusted_contents() -> list[str]:
    """Return the digests that this user trusts; `all` if LOOPWRIGHT_TRUST is set to it."""
    if os.environ.get(TRUST) == "all":
        return ["all"]
    store = _trust_store()
    if store is None or not store.folder.is_dir():
        return []
    return [entry.name for entry in store.folder.iterdir()]


def actions_text(actions: LocalActions) -> str:
    """Return the actions that need approval as a phrase: `runs 2 commands on this machine`."""
    counted = [
        texts.plural(len(names), word)
        for names, word in ((actions.commands, "command"), (actions.python, "Python function"))
        if names
    ]
    phrases = [f"runs {' and '.join(counted)} on this machine"] if counted else []
    if actions.files:
        left = len(actions.files) - MAX_KEYS
        more = [f"{left} more"] if left > 0 else []
        phrases.append(f"sends {_listed([*actions.files[:MAX_KEYS], *more])} to a model")
    if actions.keys:
        phrases.append(f"sends {_keys_text(actions.keys)}")
    return texts.one_line(_listed(phrases))


def _keys_text(keys: Sequence[str]) -> str:
    """Return variables by the place that receives them: `A and B to the agent claude`."""
    places: dict[str, list[str]] = {}
    for key in keys:
        variable, _, place = key.partition(" to ")
        places.setdefault(place, []).append(variable)
    parts = []
    for place, variables in places.items():
        left = len(variables) - MAX_KEYS
        more = [texts.plural(left, "more variable")] if left > 0 else []
        parts.append(f"{_listed([*variables[:MAX_KEYS], *more])} to {place}")
    return _listed(parts, last=", and ")


def _listed(parts: Sequence[str], last: str = " and ") -> str:
    """Return parts of a sentence as a list: `a, b and c`."""
    return last.join([", ".join(parts[:-1]), *parts[-1:]] if len(parts) > 1 else parts)


def _trust_store() -> TrustStore | None:
    folder = state_folder()
    store: TrustStore | None = None
    if folder is not None:
        store = documents_module().TrustStore(folder / "trusted")
    return store


def can_be_asked(person: Person) -> bool:
    """Return whether a person is at the terminal: an answer from a pipe would be input of the run."""
    return person.terminal and sys.stdin is not None and sys.stdin.isatty()


def says_yes(person: Person) -> bool:
    """Return whether the next line is a clear yes; anything else is a refusal, also a closed stdin."""
    person.flush()
    try:
        answer = sys.stdin.readline().strip().lower()
    except (OSError, ValueError):
        answer = ""
    return answer in _YES


def _ask(read: RunSource, actions: LocalActions, person: Person) -> None:
    if not can_be_asked(person):
        review = "Review it with loopwright check, then approve it with --yes."
        if Path(str(read.source.get("file"))).name == UNTIL_DOCUMENT:
            # The command has no file to check.
            commands = "".join(
                f"\n  {line}" for command in actions.commands for line in texts.numbered(command)
            )
            review = f"Review its commands, then approve it with --yes:{commands}"
        if "program" in read.source:
            review = f"Review its code in {read.source['root']}, then approve it with --yes."
        raise ConfigurationError(
            f"{read.name} needs your approval: it {actions_text(actions)}. {review}"
        )
    person.write((f"{read.name} {actions_text(actions)}:", "bold"))
    plan = read.plan()
    for key in ("commands", "python", "files", "keys", "agents", "hosts", "environment"):
        for value in plan[key]:
            first, *more = texts.numbered(str(value))
            if not more:
                person.write((f"  {key}: ", "dim"), first)
                continue
            person.write((f"  {key}:", "dim"))
            for line in (first, *more):
                person.write(f"    {line}")
    again = "only if the document, its code or what it may send changes"
    person.write(f"Run it? You are asked again {again}. [y/N]")
    if not says_yes(person):
        raise ConfigurationError(f"{read.name} was not approved; nothing was run")
