"""The number of jobs of a step that run at a time, which a person may change while they run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping

from ..records.codec import Json
from .context import Context
from .run_state import Run

__all__ = ["AtOnce", "at_once_of", "path_of"]


class AtOnce:
    """The most jobs of a step that run at a time: the declared number, or the one that a person set.

    Args:
        run: the run.
        path: the path of the step, under which a person names it.
        declared: the number that the step declares.
    """

    __slots__ = ("_changed", "_path", "_run", "declared")

    def __init__(self, run: Run, path: str, declared: int) -> None:
        self._run = run
        self._path = path
        self.declared = declared
        self._changed: asyncio.Future[None] | None = None

    def __call__(self) -> int:
        """Return the number in force."""
        tuned = self._run.tuned
        most: int = self.declared if tuned is None else self._tuned(tuned.of(self._path))
        return most

    def at(self, active: float) -> int:
        """Return the number that was in force at an active second of the run."""
        tuned = self._run.tuned
        most: int = self.declared if tuned is None else self._tuned(tuned.of(self._path, active))
        return most

    def _tuned(self, limits: Mapping[str, Json]) -> Json:
        return limits.get("at_once", self.declared)

    def changed(self) -> asyncio.Future[None]:
        """Return a future that is done when the number changes."""
        if self._changed is None or self._changed.done():
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    def tune(self, limits: Mapping[str, Json]) -> None:
        """Wake the step that starts the jobs: a raised number counts before one of them ends."""
        if "at_once" in limits and self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def refresh(self) -> None:
        """Do nothing: a number of jobs does not depend on the budgets above."""


def path_of(ctx: Context, name: str) -> str:
    """Return the path under which a person names a step: it ends with the step's name."""
    return ctx.path if ctx.path.rsplit("/", 1)[-1] == name else ctx.below(name)


@contextlib.contextmanager
def at_once_of(ctx: Context, name: str, declared: int) -> Iterator[AtOnce | int]:
    """Open the number of jobs of a step to changes, while the step runs.

    Args:
        ctx: the context of the step.
        name: its name.
        declared: the number that it declares.

    Returns:
        The number, for `run_all`; a plain number in a run that cannot be tuned.
    """
    run = ctx.run
    if run.silent:
        yield declared
        return
    path = path_of(ctx, name)
    # With a slash at the end, which no path has: a loop inside the step may have the same path.
    key = f"{path}/"
    limit = run.open_loops[key] = AtOnce(run, path, declared)
    try:
        yield limit
    finally:
        run.open_loops.pop(key, None)
