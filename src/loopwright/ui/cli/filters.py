"""The filters of runs that commands share: their options, the runs that match, and the question before many are changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from ...errors import ConfigurationError, nearest
from ...journal import Journal, RunInfo
from ...journal.views import RunPage, Wanted
from ...records import Status
from .. import formatting as texts
from ..consent import can_be_asked, says_yes
from . import completion
from .output import Output

STATUSES = ("queued", "running", "interrupted", *(status.value for status in Status))
_LATEST = 500  # runs whose queues are names for a hint
_MOST_NAMES = 10  # names that a message lists
_SHOWN = 5  # runs that are listed before they are changed
_PAGE = 1000  # runs that are read at a time


def statuses(incomplete: str) -> list[str]:
    """Return the statuses that begin so, for a shell."""
    return [status for status in STATUSES if status.startswith(incomplete)]


@dataclass(frozen=True)
class RunFilter:
    """Options that select the runs which a command changes."""

    queue: Annotated[
        str,
        typer.Option(
            "--queue",
            metavar="NAME",
            help="Queue; all of its runs are cancelled.",
            autocompletion=completion.queues,
        ),
    ] = ""
    status: Annotated[
        str,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Status of the run; all of these are cancelled.",
            autocompletion=statuses,
        ),
    ] = ""
    named: Annotated[
        str,
        typer.Option("--name", metavar="NAME", help="Name of the run; all of these are cancelled."),
    ] = ""
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Answer yes: cancel all runs that match.")
    ] = False

    def is_given(self, run: str) -> bool:
        """Return whether runs are selected by the filter, and not by `run`.

        Raises:
            ConfigurationError: for neither or both.
        """
        given = bool(self.queue or self.status or self.named)
        if given == bool(run):
            raise ConfigurationError(
                "Name either a RUN, or select runs with --queue, --status or --name."
            )
        if self.yes and not given:
            raise ConfigurationError("--yes is for --queue, --status and --name; a RUN needs none.")
        return given

    async def select(self, store: Journal, statuses: Sequence[str]) -> list[RunInfo]:
        """Return the rows of the runs that match and have one of these statuses, oldest first, without their inputs.

        Raises:
            ConfigurationError: for a status that is not one of these, or an unknown queue.
        """
        check_status(self.status, STATUSES)
        if self.status and self.status not in statuses:
            raise ConfigurationError(
                f"--status: {self.status} runs do not change; use one of {', '.join(statuses)}"
            )
        wanted = Wanted(self.named, self.status, queue=self.queue, limit=1)
        await matching(store, wanted, self.status)
        rows: dict[str, RunInfo] = {}  # a run may change its status meanwhile, and be there twice
        for status in [self.status] if self.status else statuses:
            before = 0
            while page := await store.listing(
                Wanted(self.named, status, before=before, limit=_PAGE, queue=self.queue), _infos
            ):
                rows |= {info.run_id: info for _, info in page}
                before = page[-1][0]
        return sorted(rows.values(), key=lambda row: row.created)

    def confirm(self, rows: Sequence[RunInfo], verb: str, output: Output, also: str = "") -> None:
        """Show how many runs would change, the first of them and what `also` happens, and ask.

        Raises:
            ConfigurationError: if the person says no, or cannot be asked and `--yes` is absent.
        """
        count = texts.plural(len(rows), "run")
        output.note(f"{verb} {count}:")
        for row in rows[:_SHOWN]:
            output.note(f"  {row.run_id}  {row.status}  {texts.one_line(row.name)}")
        if len(rows) > _SHOWN:
            output.note(f"  and {len(rows) - _SHOWN} more")
        if also:
            output.note(also)
        if self.yes:
            return
        if not can_be_asked(output):
            raise ConfigurationError(
                f"{verb} {count}: this needs your answer. Without a terminal, look at these runs and repeat with --yes"
            )
        output.note("Do it? [y/N]")
        if not says_yes(output):
            raise ConfigurationError("no run was changed")


def _infos(page: RunPage) -> list[tuple[int, RunInfo]]:
    return [(key, view.info) for key, view in page.rows]


def check_status(status: str, statuses: Sequence[str]) -> None:
    """Raise ConfigurationError for an unknown status."""
    if status and status not in statuses:
        hint = nearest(status, statuses) or f"; use one of {', '.join(statuses)}"
        raise ConfigurationError(f"--status: {status!r} is not a status{hint}")


async def matching(store: Journal, wanted: Wanted, status: str) -> list[RunInfo]:
    """Return the rows of a list. Raises ConfigurationError for an unknown queue or worker."""
    rows = await store.runs(
        limit=wanted.limit,
        name=wanted.name,
        status=status,
        queue=wanted.queue,
        worker=wanted.worker,
    )
    queue, worker = wanted.queue, wanted.worker
    if not rows and (queue or worker):
        queues, workers = await _queues_and_workers(store)
        # A list can be empty because of another filter, such as a status.
        if queue and queue not in queues and not await store.runs(limit=1, queue=queue):
            raise _unknown_name("queue", queue, queues)
        if worker and worker not in workers and not await store.runs(limit=1, worker=worker):
            raise _unknown_name("worker", worker, workers)
    return rows


async def _queues_and_workers(store: Journal) -> tuple[set[str], set[str]]:
    """Return the names of queues and of workers, among them those without runs."""
    # The package of workers takes a third of a second to load, which other lists do not need.
    from ...cluster.shared_runs import open_runs

    # The latest runs only: queues have no index, and a journal may have millions of runs.
    queues = {row.queue for row in await store.runs(limit=_LATEST)} - {""}
    workers = {row.owner for row in await store.runs(limit=_LATEST, status="running")}
    try:
        shared = open_runs(store)
    except ConfigurationError:  # a journal of one machine has no list of workers
        return queues, workers
    try:
        await shared.prepare()
        for one in await shared.workers():
            workers.add(one.owner)
            queues |= {served.rpartition("=")[0] for served in one.queues.split()}
        return queues | {one.name for one in await shared.queues()}, workers
    finally:
        await shared.close()


def _unknown_name(kind: str, name: str, names: Collection[str]) -> ConfigurationError:
    valid = f"; use one of {', '.join(sorted(names)[:_MOST_NAMES])}" if names else ""
    hint = nearest(name, names) or valid or f"; it has no {kind}s"
    return ConfigurationError(f"--{kind}: {name!r} is not a {kind} of this journal{hint}")
