"""The protocol of a loop's outside state, such as the files that its steps edit.

The engine decides when a state is captured and which one is put in place; it does not know what a state is.
`coding.workspace` implements the protocol with files. A snapshot is a JSON object with at least `commit`, its
identity: equal states with equal parents have equal identities, so a repeated capture changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from ..records import Result
from ..records.codec import Json
from ..records.redaction import Redactor

__all__ = ["Edits", "LoopState", "StateRun", "StateSource"]

Edits = Literal["adopt", "report", "discard"]


class StateRun(Protocol):
    """The parts of a run that a state may read."""

    @property
    def run_id(self) -> str: ...

    @property
    def origin(self) -> str:
        """The run that this one was forked from, or ""."""

    @property
    def token(self) -> str: ...

    @property
    def redactor(self) -> Redactor | None: ...

    @property
    def resources(self) -> Mapping[str, Any]: ...


class LoopState(Protocol):
    """The state of one loop, or of one run: captured after each execution, put in place before the next."""

    @property
    def folder(self) -> Path:
        """The folder in which commands of the loop run."""

    @property
    def root(self) -> Path:
        """The folder of all its files; `folder` is inside it."""

    @property
    def source(self) -> Path:
        """The folder that it stands for; a working directory inside it is one inside `folder`."""

    @property
    def shown(self) -> tuple[Path, ...]:
        """Files of the user that its commands read besides those of `root`, such as linked folders."""

    @property
    def covered(self) -> tuple[Path, ...]:
        """Folders of the user of which a sandbox shows its commands nothing else."""

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of commands that run in it."""

    def leave_out(self, patterns: Sequence[str]) -> None:
        """Leave empty files of these names out of all captures from now on, unless the beginning has them."""

    @property
    def stops_at_edits(self) -> bool:
        """Whether an edit from outside is a question to a person; else the loop continues from it."""

    async def open(self, begun: Json = None) -> str:
        """Open it for this process; `begun` is the value of `begin` in a resumed run.

        A forked run has the entries of another one, and so its `begun`. The state is then a new one, made
        from the snapshots of that run: a fork copies entries unchanged, and does nothing else for files.

        Returns:
            A question to answer before anything changes, or "".
        """

    async def begin(self) -> Json:
        """Make it, and return the snapshot of its beginning. May be repeated after a crash."""

    async def capture(self, name: str, parent: str) -> Json:
        """Return a snapshot of the present state under a name, on top of the parent's commit."""

    async def restore(self, commit: str, *, busy: bool, edits: Edits = "adopt") -> Json:
        """Put a snapshot in place. The present state is captured first, so that nothing is lost.

        Args:
            commit: the identity of the snapshot.
            busy: whether steps change the state from now on. It is remembered across processes: a
                difference that appears while it is false is an edit from outside.
            edits: whether an edit from outside stays (`adopt`), stays and is only reported (`report`),
                or is replaced (`discard`).

        Returns:
            The snapshot of an edit from outside, or None.
        """

    async def changes(self, commit: str) -> str:
        """Return the difference of a snapshot from the beginning as text, for readers."""

    async def find(self, name: str) -> str:
        """Return the commit of the snapshot of that name, or ""."""

    async def end(self, result: Result, snapshot: Json) -> Json:
        """Hand over the chosen snapshot of an ended loop, such as by a branch; return what was made."""

    async def aclose(self) -> None:
        """Release it."""


class StateSource(Protocol):
    """The declaration of a state: each run opens its own."""

    @property
    def fingerprint(self) -> str:
        """Changes when another state would be made."""

    @property
    def refine_from(self) -> str:
        """The iteration from which the next one continues: `last`, `best` or `accepted`."""

    @property
    def on_cancel(self) -> str:
        """The state of a cancelled loop: `best`, or `leave` as it is."""

    def state(self, run: StateRun, path: str) -> LoopState:
        """Return the state of the loop or workflow at a path of a run."""
