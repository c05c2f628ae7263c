"""The outside state of a loop, such as files that its steps edit, and the snapshots that the engine takes of it.

The engine decides when a state is captured and which one is put in place; it does not know what a state is.
`coding.workspace` implements the protocol with files. A snapshot is a JSON object with at least `commit`, its
identity: equal states with equal parents have equal identities, so a repeated capture changes nothing.

1. The state is put in place before adapt and captured before evaluate.
2. The journal decides. A snapshot without an entry means nothing, and is made again.
3. A finished step is never repeated, so its state is captured before its end is recorded: a resumed
   iteration continues from the snapshot of the last step that finished in it.
4. An evaluator judges the captured state, and what it changes is put back.
5. A failed and an interrupted iteration are captured too, also after a deadline or a cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from ..errors import StepError
from ..journal import Entry
from ..records import History, Iteration, Reason, Result
from ..records.codec import Json
from .run_state import Run

if TYPE_CHECKING:
    from pathlib import Path

    from ..records.redaction import Redactor

__all__ = [
    "Edits",
    "LoopState",
    "Snapshots",
    "StateRun",
    "StateSource",
]

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

    async def branch(self, name: str, commit: str) -> LoopState:
        """Return a state beside this one, which is changed at the same time: its snapshots are of this one too.

        Args:
            name: its name among those beside this one.
            commit: the snapshot that it is made from; "" makes nothing, for a replay that only reads its places.
        """

    def remove(self) -> None:
        """Remove a state that `branch` returned, with its files."""

    async def changes(self, commit: str, since: str = "") -> str:
        """Return the difference of a snapshot from another one, by default from the beginning, as text for readers."""

    async def find(self, name: str) -> str:
        """Return the commit of the snapshot of that name, or ""."""

    async def end(self, result: Result, snapshot: Json) -> Json:
        """Hand over the chosen snapshot of an ended loop, such as by a branch; return what was made."""

    async def aclose(self) -> None:
        """Release it."""


class StateSource(Protocol):
    """The declaration of a state: each run opens its own."""

    def fingerprint_with(self, refine_from: str) -> str:
        """Return a digest that changes when another state would be made.

        Args:
            refine_from: the rule for the parent, which it had in earlier versions; `last` in others.
        """

    @property
    def copies(self) -> bool:
        """Whether several states can be changed at a time."""

    @property
    def on_cancel(self) -> str:
        """The state of a cancelled loop: `best`, or `leave` as it is."""

    def state(self, run: StateRun, path: str) -> LoopState:
        """Return the state of the loop or workflow at a path of a run."""


T = TypeVar("T")
# A note: limits on the number of effects do not count it.
FINGERPRINT = "note.workspace:1"


class Snapshots:
    """The snapshots of one loop or workflow.

    `owns` is false for a loop inside one that has the state: they share it. `base` is the snapshot of the
    beginning, `current` that of the iteration once it is captured, and `parent` the record from which
    the iteration continues.
    """

    __slots__ = (
        "_commit",
        "_opened",
        "base",
        "current",
        "lane",
        "merged",
        "owns",
        "parent",
        "path",
        "run",
        "source",
        "state",
    )

    def __init__(
        self, run: Run, path: str, source: StateSource, shared: LoopState | None = None
    ) -> None:
        self.run, self.path, self.source = run, path, source
        self.owns = shared is None
        self.state = source.state(run, path) if shared is None else shared
        self.base: dict[str, Json] = {}
        self.current: dict[str, Json] | None = None
        self.parent: Iteration | None = None
        self.merged: Json = None
        # Of what is kept for its checks: two that run at the same time must not share it.
        self.lane = path
        self._commit = ""
        self._opened = False

    @property
    def folder(self) -> Path:
        """The folder in which commands run."""
        return self.state.folder

    @property
    def root(self) -> Path:
        """The folder of all files, which commands may change."""
        return self.state.root

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of commands."""
        return self.state.variables

    def inside(self, cwd: str | Path | None) -> Path:
        """Return the working directory of a command: the one in the folder that stands for it."""
        if cwd is None:
            return self.folder
        try:
            # Of a subfolder of a repository, the state has the files of the repository.
            from pathlib import Path

            return self.root / Path(cwd).resolve().relative_to(self.state.source)
        except ValueError:
            return self.folder / cwd  # an absolute one elsewhere stays

    async def begin(self) -> None:
        """Make or open the state, and record how it began."""
        path = f"{self.path}/workspace"
        if self.owns:
            self.run.owned[path] = self.state
            replay = self.run.replay
            begun = None if replay is None else replay.finished.get(path)
            question = await self._complete(self.state.open(begun and begun.value))
            if question:
                self.run.ask(path, {"folder": str(self.folder)}, question)
            self.base = await self._effect(path, self.state.begin)
        else:
            self.base = await self._effect(path, lambda: self.state.capture(path, ""))
        self._commit = self.base["commit"]
        self._opened = True

    async def put_back(self) -> None:
        """Put the files of the beginning in place, without the changes of an evaluator."""
        await self._complete(self.state.restore(self._commit, busy=not self.owns, edits="discard"))

    async def place(self, parent: Iteration | None, number: int) -> None:
        """Put the files of the parent in place; of a resumed iteration, those of its last finished step."""
        prefix = f"{self.path}/{number}"
        self.current, self.parent = None, parent
        files = None if parent is None else parent.files
        self._commit = (files or self.base)["commit"]
        await self._restore(await self._last(prefix) or self._commit, f"{prefix}/outside_edit")

    async def branch(self, number: int, name: str, lane: int, *, ended: bool) -> Snapshots:
        """Return the snapshots of one candidate of iteration `number`, which has a state of its own.

        It has the files of the parent, or of the last step that finished in it; one that has `ended` needs none.
        No other candidate that runs has the same `lane`.
        """
        place = f"{self.path}/{number}"
        commit = "" if ended else await self._last(f"{place}/{name}") or self._commit
        made = self.state.branch(f"{number}-{name}", commit)
        inner = Snapshots(self.run, place, self.source, await self._complete(made))
        inner.base, inner.parent, inner._commit = self.base, self.parent, self._commit
        inner._opened, inner.lane = True, f"{self.lane} {lane}"
        return inner

    async def remove(self) -> None:
        """Remove the state of a candidate."""
        await self._complete(asyncio.to_thread(self.state.remove))

    async def resume(self) -> None:
        """Put the state of a workflow in place: that of the last step that finished, or the beginning."""
        await self._restore(
            await self._last(self.path) or self._commit, f"{self.path}/outside_edit"
        )

    async def capture(self, number: int | str) -> None:
        """Capture what an iteration or a candidate made."""
        path = f"{self.path}/{number}"
        self.current = await self._effect(
            f"{path}/capture", lambda: self.state.capture(path, self._commit)
        )

    async def changes(self, *, own: bool = False) -> str:
        """Return the difference of the captured state from the beginning, or its `own` from the parent, as text."""
        commit = (self.current or self.base)["commit"]
        return await self._complete(self.state.changes(commit, self._commit if own else ""))

    def replace(self, snapshot: Mapping[str, Json]) -> None:
        """Replace the snapshot of the iteration by one that its evaluation made, such as without its tampering."""
        self.current = dict(snapshot)

    async def show(self, snapshot: Mapping[str, Json] | None) -> None:
        """Put a snapshot in place to be measured, of another iteration too; None is the beginning."""
        self.current = None if snapshot is None else dict(snapshot)
        commit = (self.current or self.base)["commit"]
        await self._complete(self.state.restore(commit, busy=True, edits="discard"))

    async def checkpoint(self, path: str) -> None:
        """Capture the state after the step at a path, before its end is recorded."""
        # An evaluator's changes are put back, and without a record nothing is resumed.
        if self.current is None and self._opened and self.run.keeps:
            await self._complete(self.state.capture(f"{path}/after", self._commit))

    async def close(self, number: int) -> dict[str, Json]:
        """Return the snapshot of iteration `number`, and put back what its evaluator changed."""
        if self.current is None:
            await self.capture(number)
        assert self.current is not None
        await self._complete(self.state.restore(self.current["commit"], busy=not self.owns))
        return self.current

    async def suspend(self) -> None:
        """Keep the state as it is while the run waits; a person may edit it meanwhile."""
        if self._opened and self.owns:
            kept = await self._complete(self.state.capture(f"{self.path}/suspended", self._commit))
            await self._complete(self.state.restore(kept["commit"], busy=False))

    async def interrupt(self, history: History) -> None:
        """Put the best files in place for a process that ends; the present ones are kept under a name."""
        if self._opened and self.source.on_cancel == "best":
            files = None if history.best is None else history.best.files
            commit = (files or self.base)["commit"]
            await self._complete(self.state.restore(commit, busy=not self.owns, edits="discard"))

    async def end(self, history: History, result: Result, keep: str) -> Json:
        """Put the files of the loop's output in place and hand them over; return where they are."""
        chosen = self.chosen(history, result, keep)
        snapshot = dict((None if chosen is None else chosen.files) or self.base)
        number = 0 if chosen is None else chosen.number
        await self._complete(self.state.restore(snapshot["commit"], busy=not self.owns))
        # The last state of the loop for a workflow that is resumed after it.
        await self._effect(f"{self.path}/placed", lambda: _value({**snapshot, "iteration": number}))
        if not self.owns:
            return None
        return await self._hand_over(result, snapshot, number)

    async def finish(self, result: Result) -> Json:
        """Capture the state at the end of a workflow and hand it over; return where it is."""
        path = f"{self.path}/placed"
        snapshot = await self._effect(path, lambda: self.state.capture(path, self.base["commit"]))
        await self._complete(self.state.restore(snapshot["commit"], busy=False))
        # The message of the result names the iteration whose files it has, which is one of a loop.
        return await self._hand_over(replace(result, loops=self.run.loops), snapshot, 0)

    async def _hand_over(self, result: Result, snapshot: dict[str, Json], number: int) -> Json:
        merged = await self._effect(
            f"{self.path}/merged", lambda: self.state.end(result, {**snapshot, "iteration": number})
        )
        if names := merged.get("secrets"):
            text = f"files of the result have a key that they did not have at the start: {', '.join(names[:5])}"
            self.run.warn(text, code="secrets_in_files")
        if merged and (names := snapshot.get("left_out")):
            text = f"files are not in the result, because they are above max_file or cannot be read: {', '.join(names[:5])}"
            self.run.warn(text, code="files_left_out")
        if names := merged.get("filtered"):
            text = f"a filter of your repository did not run on these files of the branch: {', '.join(names[:5])}"
            self.run.warn(text, code="filter_not_run")
        where = {"folder": str(self.folder), "base": self.base["commit"], "iteration": number}
        return {**where, **{key: snapshot[key] for key in ("commit", "tree")}, **(merged or {})}

    def chosen(self, history: History, result: Result, keep: str) -> Iteration | None:
        """Return the iteration whose state remains after the loop, or None for the beginning."""
        if result.satisfied and result.reason is not Reason.IMPROVED:
            return history.last
        if result.reason is Reason.CANCELLED and self.source.on_cancel == "leave":
            return history.last
        return history.latest_eligible if keep == "last" else history.best

    async def _last(self, prefix: str) -> str:
        """Return the commit after the last finished step under a path, or "" if there is none."""
        replay = self.run.replay
        if replay is None or replay.began(prefix) is None:
            return ""
        under = [
            e
            for path, e in replay.finished.items()
            # Candidates have files of their own.
            if path.startswith(f"{prefix}/") and not path.startswith(f"{prefix}/candidate-")
        ]
        for entry in sorted(under, key=lambda entry: entry.seq, reverse=True):
            if entry.fingerprint == FINGERPRINT:
                if "commit" in (entry.value or {}):
                    return str(entry.value["commit"])
            elif commit := await self.state.find(f"{entry.path}/after"):
                return commit
        return ""

    async def _restore(self, commit: str, path: str) -> None:
        """Put a commit in place before steps run; an edit from outside is recorded at a path."""
        replay, stops = self.run.replay, self.state.stops_at_edits
        answer = None if replay is None else replay.answers.get(path)
        mode: Edits = (
            "discard" if answer == "restore" else "adopt" if answer or not stops else "report"
        )
        edit = await self._complete(self.state.restore(commit, busy=True, edits=mode))
        if edit is None:
            return
        if mode == "report":
            names = ", ".join(edit["paths"][:5])
            detail = (
                f"files in {self.folder} were changed outside this run: {names}; "
                'answer "continue" to go on from them, or "restore" to put the files of the run back'
            )
            self.run.ask(path, {"folder": str(self.folder), "paths": edit["paths"]}, detail)
        await self._effect(path, lambda: _value(edit))
        self._commit = edit["commit"]
        where = path.rpartition("/")[0]
        self.run.warn(f"the files were changed outside the run before {where}", code="outside_edit")

    async def _effect(self, path: str, act: Callable[[], Awaitable[Json]]) -> Any:
        """Do something once and record its value.

        Not through `Context.call`: a snapshot is also taken after a deadline or a cancellation.
        """
        run, replay = self.run, self.run.replay
        if replay is not None and (recorded := replay.finished.get(path)) is not None:
            return recorded.value
        if run.silent:
            return await self._complete(act())
        started = Entry("started", path, run.now(), fingerprint=FINGERPRINT)
        run.append(started)
        await self._complete(run.settled())
        value = await self._complete(act())
        finished = Entry("finished", path, started.at, value, FINGERPRINT)
        finished.seconds = run.now() - started.at
        run.append(finished)
        return value

    async def _complete(self, work: Awaitable[T]) -> T:
        """Wait for work on the state to its end: half of it must not overlap with what follows."""
        task = asyncio.ensure_future(_raised(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            # A cancelled run still records its iteration; a cancelled task is resumed later.
            if self.run.cancelled is None:
                raise
            return task.result()


async def _value(value: Json) -> Json:
    return value


async def _raised(work: Awaitable[T]) -> T:
    """Await work on a state; an error of the system becomes one of the step."""
    try:
        return await work
    except OSError as error:
        raise StepError(f"workspace: {error}", kind="workspace", retryable=False) from error
