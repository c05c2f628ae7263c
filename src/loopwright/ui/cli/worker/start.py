"""`worker start`: execute submitted runs until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ....cluster import Worker
from ....cluster.trust import TrustedDigests, shared_digests
from ....conditions import Budget
from ....errors import ConfigurationError
from ....journal import open_journal
from ....journal.protocol import shown_url
from ....telemetry import Telemetry
from ... import formatting as texts
from ...consent import trusted_contents
from ...finding import age
from ...journals import DEFAULT
from ..options import Collector, DelivererName, InDoubt, JournalUrl, WhenInDoubt
from ..output import Output
from ..telemetry_options import TelemetryOptions

_BUDGET = re.compile(r"([^=]+)=([0-9]+(?:\.[0-9]+)?)(usd|tokens|calls)")


def worker_start(
    journal: JournalUrl = DEFAULT,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="NAME=SLOTS",
            help="Queue, and the maximum of its concurrent runs; repeatable.  [default: default=50]",
        ),
    ] = None,
    root: Annotated[
        list[str] | None,
        typer.Option(
            "--root",
            metavar="DIR",
            help="Folder of Python modules whose steps module:attribute may run, as it is now; repeatable.",
        ),
    ] = None,
    trust: Annotated[
        list[str] | None,
        typer.Option(
            "--trust",
            metavar="DIGEST",
            help="Run the commands and Python code with this digest of a document or file; repeatable.",
        ),
    ] = None,
    trust_file: Annotated[
        Path | None,
        typer.Option(
            "--trust-file",
            metavar="PATH",
            help="Trust the digests in this file, one per line, or in the files of this folder; read for each run.",
        ),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            "--budget",
            metavar="NAME=AMOUNT",
            help="Maximum cost of the runs of a queue or key over all workers, such as "
            "queue:nightly=20usd; repeatable.",
        ),
    ] = None,
    drain: Annotated[
        float,
        typer.Option(
            "--drain",
            metavar="SECONDS",
            min=0,
            help="Time that runs may continue after SIGTERM.",
        ),
    ] = 30.0,
    in_doubt: WhenInDoubt = InDoubt.SUSPEND,
    retain: Annotated[
        str,
        typer.Option(
            "--retain",
            metavar="AGE",
            help="Delete ended runs after this time, such as 30d.  [default: keep all]",
        ),
    ] = "",
    otel: Collector = None,
    deliverer: DelivererName = "",
) -> int:
    """Execute the runs that are submitted to a journal.

    After SIGTERM or Ctrl-C, the worker starts no new runs. Runs in progress continue for --drain seconds and
    then return to their queues. After a second signal they return at once.

    Exit code: 0 after a signal.

    Examples:
        loopwright worker start --journal postgres:///runs
        loopwright worker start --queue default=20 --queue nightly=5 --retain 30d
        loopwright worker start --root . --budget queue:nightly=20usd
    """
    with Output() as output:
        queues = _queues(queue or [])
        retained = age("--retain", retain) if retain else 0.0
        if retain and not retained:
            raise ConfigurationError(
                f"--retain: {retain} would delete every run at its end; give a longer time, such as 30d"
            )

        # Read for each run, because a person can approve a document while the worker serves.
        def approved() -> list[str]:
            return [*trusted_contents(), *(shared_digests(trust_file) if trust_file else ())]

        trusted = TrustedDigests(trust or [], approved=approved, option="--trust")
        approved()  # a file that cannot be read is an error now
        logging.basicConfig(
            stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(message)s"
        )
        budgets = _budgets(budget or [])

        async def serve(telemetry: Telemetry | None) -> None:
            store = open_journal(journal)
            try:
                worker = Worker(
                    journal=store,
                    queues=queues,
                    root=[Path(folder).resolve() for folder in root or ()],
                    deliverer=deliverer,
                    trust=trusted,
                    budgets=budgets,
                    drain=drain,
                    in_doubt=in_doubt.value,
                    retain=retained,
                    telemetry=telemetry,
                )
                # Before the worker opens, because the tables and the engine may take seconds.
                _on_signals(worker, output)
                async with worker:
                    output.note(f"working on {shown_url(journal)}: {worker.served}")
                    await worker.serve()
                    output.note(f"stopped after {texts.plural(worker.finished, 'run')}")
            finally:
                await store.close()

        with TelemetryOptions(otel).telemetry(output) as telemetry:
            asyncio.run(serve(telemetry))
    return 0


def _queues(options: Sequence[str]) -> dict[str, int] | None:
    queues = {}
    for option in options:
        name, equals, slots = option.partition("=")
        if not name or (equals and not slots.isdigit()):
            raise ConfigurationError(
                f"--queue: {option!r} is not NAME=SLOTS; use one such as default=50"
            )
        queues[name] = int(slots) if equals else 50
    return queues or None


def _budgets(options: Sequence[str]) -> dict[str, Budget]:
    budgets: dict[str, dict[str, float]] = {}
    for option in options:
        matched = _BUDGET.fullmatch(option)
        if matched is None:
            raise ConfigurationError(
                f"--budget: {option!r} is not NAME=AMOUNT; use one such as queue:nightly=20usd, "
                "key:batch=1000000tokens or queue:default=500calls"
            )
        name, figure, unit = matched.groups()
        budgets.setdefault(name, {})[unit] = float(figure) if unit == "usd" else int(float(figure))
    return {name: Budget(**caps) for name, caps in budgets.items()}  # type: ignore[arg-type]


def _on_signals(worker: Worker, output: Output) -> None:
    """Stop the worker at the first signal, and return its runs at the second."""
    loop = asyncio.get_running_loop()
    received = []

    def stop(name: str) -> None:
        received.append(name)
        if len(received) == 1:
            output.note(f"{name}: no new runs; {len(worker.held)} in progress")
        worker.stop(now=len(received) > 1)

    for name in ("SIGTERM", "SIGINT"):
        loop.add_signal_handler(getattr(signal, name), stop, name)
