"""`limits`: the limits of a run that are in force, and changes of them while it runs."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from ...engine.change_limits import Tuned, change_limits
from ...errors import ConfigurationError
from ...journal import Journal
from ...records.redaction import of_environment
from ..formatting import limit_text, plural
from ..journals import DEFAULT, find_run, reading
from ..read_limits import limit_value
from .options import AsJson, JournalUrl, RunName
from .output import Output

_LOOP_WIDTH, _KEY_WIDTH = 18, 18  # columns of a name and of a limit
_RUNNING = ("running",)


def limits(
    name: RunName,
    loop: Annotated[
        str | None,
        typer.Option(
            "--loop",
            metavar="NAME",
            help="Name or path of the loop.  [default: the owner of the limit in force, outermost first]",
        ),
    ] = None,
    max_iterations: Annotated[
        str | None,
        typer.Option("--max-iterations", metavar="N|clear", help="Limit on iterations."),
    ] = None,
    max_usd: Annotated[
        str | None,
        typer.Option("--max-usd", metavar="USD|clear", help="Limit on the cost, in USD."),
    ] = None,
    max_calls: Annotated[
        str | None, typer.Option("--max-calls", metavar="N|clear", help="Limit on model calls.")
    ] = None,
    max_total_tokens: Annotated[
        str | None,
        typer.Option(
            "--max-total-tokens", metavar="N|clear", help="Limit on input and output tokens."
        ),
    ] = None,
    max_effects: Annotated[
        str | None,
        typer.Option(
            "--max-effects",
            metavar="N|clear",
            help="Limit on effects: functions, commands, tool calls and model calls.",
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout",
            metavar="DURATION|clear",
            help="Limit on time: active time of the loop, such as 90, 5m or 1h30m.",
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline",
            metavar="T|clear",
            help="Date and time, such as 2030-01-31T18:00:00+00:00.",
        ),
    ] = None,
    at_once: Annotated[
        str | None,
        typer.Option(
            "--at-once",
            metavar="N",
            help="Maximum at a time: items of a list, or steps of parallel or of a workflow.",
        ),
    ] = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            "--candidates", metavar="N", help="Candidates of each iteration, from the next one on."
        ),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Reason, for the record.")
    ] = "",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Change nothing: print the changes without requesting them."
        ),
    ] = False,
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Show the limits of a run, or change them while it runs.

    A live run takes new limits within a second and uses them in its next decision. Other runs take them
    when they are resumed. Below the used amount, the next decision ends the loop. Only a limit of time
    cuts a call in flight.

    Examples:
        loopwright limits last
        loopwright limits last --max-iterations 5 --reason "the scores still rise"
        loopwright limits last --timeout 1h --dry-run
    """
    texts: dict[str, str | None] = {
        "max_iterations": max_iterations, "max_usd": max_usd, "max_calls": max_calls,
        "max_total_tokens": max_total_tokens, "max_effects": max_effects, "timeout": timeout,
        "deadline": deadline, "at_once": at_once, "candidates": candidates,
    }  # fmt: skip
    new: dict[str, Any] = {
        key: limit_value(key, text) for key, text in texts.items() if text is not None
    }
    # The journal records the reason, and no record may hold a key.
    of_environment(os.environ).refuse("reason", reason)
    if loop is not None and not loop.strip():
        raise ConfigurationError(f"--loop: {loop!r} is empty; give a name, or leave it out")

    async def work(store: Journal) -> Tuned:
        info = await find_run(store, name)
        return await change_limits(
            info.run_id, journal=store, loop=loop or "", reason=reason, dry_run=dry_run, **new
        )

    with Output(as_json=as_json) as output:
        result = reading(journal, work)
        if as_json:
            output.write_json(result.to_json())
        else:
            _write(result, output)
    return 0


def _write(result: Tuned, output: Output) -> None:
    output.write(
        (f"{'loop':{_LOOP_WIDTH}} {'limit':{_KEY_WIDTH}} {'in force':>12}", "dim"),
        (f" {'used':>10} {'left':>10}", "dim"),
    )
    for limit in result.limits:
        shown, used, left = (
            limit_text(limit.key, value) for value in (limit.limit, limit.used, limit.left)
        )
        who = f"  set by {limit.tuned}" if limit.tuned else ""
        row = f"{limit.loop or 'run':{_LOOP_WIDTH}} {limit.key:{_KEY_WIDTH}} {shown:>12} {used:>10} {left:>10}"
        output.write(f"{row}{who}".rstrip())
    if not result.limits:
        output.write("this run has no limits")
    for change in result.changes:
        old = limit_text(change.key, change.old) or "none"
        new = limit_text(change.key, change.new) or "none"
        output.write((f"{change.loop or 'run'}: {change.key} {old} to {new}", "bold"))
        place = (change.loop.rsplit("/", 1)[-1], change.key)
        spent = next((one.used for one in result.limits if (one.loop, one.key) == place), None)
        if isinstance(change.new, int | float) and spent is not None and change.new <= spent:
            output.write(("  below what is used: the next decision ends it", "yellow"))
    if result.changes:
        count = plural(len(result.changes), "change")
        when = "within a second" if result.status in _RUNNING else "when it is resumed"
        done = f"{result.run_id} takes {count} {when}" if result.requested else f"dry run: {count}"
        output.write(done)
