"""The filters of runs that commands share: their options, the runs that match, and the question before many are changed."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from ...errors import ConfigurationError, nearest
from ...journal import Journal, RunInfo
from ...journal.views import RunPage, Wanted
from .. import formatting as texts
from ..consent import can_be_asked, says_yes
from ..finding import STATUSES, wanted_of
from ..run_summary import origin_of
from . import completion
from .output import Output

_LATEST = 500  # runs whose queues are names for a hint
_MOST_NAMES = 10  # names that a message lists
_SHOWN = 5  # runs that are listed before they are changed
_PAGE = 1000  # runs that are read at a time


def statuses(incomplete: str) -> list[str]:
    """Return the statuses that begin so, for a shell, after those with a comma behind them."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{status}" for status in STATUSES if status.startswith(last)]


@dataclass(frozen=True)
class ListFilter:
    """Options that select runs."""

    queue: Annotated[
        str,
        typer.Option(
            "--queue",
            metavar="NAME",
            help="Queue; only its runs.",
            autocompletion=completion.queues,
        ),
    ] = ""
    status: Annotated[
        str,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Status of the run; only these, or several with commas between: "
            f"{', '.join(STATUSES)}.",
            autocompletion=statuses,
        ),
    ] = ""
    named: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name of the run; only these.")
    ] = ""
    since: Annotated[
        str,
        typer.Option(
            "--since", metavar="TIME", help="Start of the run; only later ones: 2h, 3d, or a date."
        ),
    ] = ""
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            metavar="NAME=VALUE",
            help="Tag of the run; only these, of a NAME alone with any value; repeatable.",
        ),
    ] = None
    search: Annotated[
        str,
        typer.Option(
            "--search",
            metavar="TEXT",
            help="Text in the ID, name, reason, input, outputs or feedback.",
        ),
    ] = ""

    @property
    def words(self) -> dict[str, str]:
        """What is given, besides the tags, by the names of `finding.wanted_of`."""
        words = {
            "queue": self.queue, "status": self.status, "name": self.named, "since": self.since, "search": self.search,
        }  # fmt: skip
        return {name: value for name, value in words.items() if value}

    def wanted(self, **more: str) -> Wanted:
        """Return the runs that are selected, with further words. Raises ConfigurationError."""
        return wanted_of({**self.words, **more}, self.tag or (), option="--")

    @property
    def options(self) -> list[str]:
        """The options that select the same runs."""
        pairs = [*self.words.items(), *(("tag", tag) for tag in self.tag or ())]
        return [word for name, value in pairs for word in (f"--{name}", value)]


_OPTIONS = "--queue, --status, --name, --since, --tag, --search or --source"


@dataclass(frozen=True)
class RunFilter(ListFilter):
    """Options that select the runs which a command changes."""

    of_source: Annotated[
        str,
        typer.Option("--source", metavar="FILE", help="Document or step of the run; only these."),
    ] = ""
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Answer yes: change all runs that match.")
    ] = False

    def is_given(self, run: str) -> bool:
        """Return whether runs are selected by the filter, and not by `run`, which needs no `--yes`.

        Raises:
            ConfigurationError: for neither or both.
        """
        given = self.selects(run)
        if self.yes and not given:
            raise ConfigurationError(f"--yes is for {_OPTIONS}; a RUN needs none.")
        return given

    def selects(self, run: str) -> bool:
        """Return whether runs are selected by the filter, and not by `run`. Raises ConfigurationError for neither or both."""
        given = bool(self.options or self.of_source)
        if given == bool(run):
            tags = " To tag a run, use loopwright tag RUN NAME=VALUE." if run and self.tag else ""
            raise ConfigurationError(f"Name either a RUN, or select runs with {_OPTIONS}.{tags}")
        return given

    async def select(self, store: Journal, statuses: Sequence[str]) -> list[RunInfo]:
        """Return the rows of the runs that match and have one of these statuses, oldest first, without their inputs.

        Raises:
            ConfigurationError: for a status that is not one of these, or an unknown queue.
        """
        wanted = self.wanted()
        for status in wanted.statuses:
            if status not in statuses:
                raise ConfigurationError(
                    f"--status: this is not for {status} runs; use one of {', '.join(statuses)}"
                )
        await matching(store, replace(wanted, limit=1))
        rows: dict[str, RunInfo] = {}  # a run may change its status meanwhile, and be there twice
        for status in wanted.statuses or statuses:
            before = -1
            while before:
                page = replace(wanted, status=status, before=max(before, 0), limit=_PAGE)
                infos, before = await store.listing(page, _infos)
                rows |= infos
        found = sorted(rows.values(), key=lambda row: row.created)
        if not self.of_source:
            return found
        # Rows of a list have no source.
        return [row for row in found if self._is_of_source(await store.find(row.run_id))]

    def _is_of_source(self, info: RunInfo) -> bool:
        """Return whether a run is of the document or step; a file may be given by its name alone."""
        origin = origin_of(info)
        named = self.of_source in (origin, Path(origin).name)
        return named or origin == os.path.realpath(self.of_source)

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


def _infos(page: RunPage) -> tuple[dict[str, RunInfo], int]:
    """Return the rows of a page, and the key before which the next one begins; 0 for the last one."""
    rows = {view.info.run_id: view.info for _, view in page.rows}
    return rows, page.searched or (page.rows[-1][0] if len(rows) == _PAGE else 0)


async def matching(store: Journal, wanted: Wanted) -> list[RunInfo]:
    """Return the rows of a list. Raises ConfigurationError for an unknown queue or worker."""
    rows = await store.runs(
        limit=wanted.limit, name=wanted.name, status=wanted.status, text=wanted.text, queue=wanted.queue,
        worker=wanted.worker, since=wanted.since, tags=wanted.tags, sort=wanted.sort,
    )  # fmt: skip
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
