"""`completion`, and what a shell completes from the journal: runs, paths of a run, and queues."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from typing import Annotated, TypeVar

import typer

from ...journal import Journal, surviving
from ..journals import DEFAULT, LATEST, NAME, find_run, reading
from .output import Output

T = TypeVar("T")
VARIABLE = "_LOOPWRIGHT_COMPLETE"  # by which a shell asks for words
_LATEST = 100  # runs that are offered, or whose queues are


class Shell(StrEnum):
    """The shells whose completion is tested."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> int:
    """Print what a shell needs to complete commands, options, runs, paths, statuses and queues.

    Examples:
        loopwright completion bash >> ~/.bashrc
        loopwright completion zsh >> ~/.zshrc
        loopwright completion fish > ~/.config/fish/completions/loopwright.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(prog_name=NAME, complete_var=VARIABLE, shell=shell.value)
    with Output() as output:
        output.write_result(script)
    return 0


def runs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the latest runs that begin so, with their status and name."""
    rows = _read(ctx, lambda store: store.runs(limit=_LATEST)) or []
    found = [(row.run_id, f"{row.status} {row.name}") for row in rows]
    latest = [(LATEST, "the latest run")] if found else []
    return [one for one in (*latest, *found) if one[0].startswith(incomplete)]


def queues(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the queues of the latest runs."""
    rows = _read(ctx, lambda store: store.runs(limit=_LATEST)) or []
    return _sorted({row.queue for row in rows} - {""}, incomplete)


def paths(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the recorded paths of the run that the command line names."""

    async def recorded(store: Journal) -> set[str]:
        info = await find_run(store, str(ctx.params.get("name", "")))
        words = [entry.path.split("/") for entry in surviving(await store.entries(info.run_id))]
        # Composite steps and iterations have no entries of their own, but a rewind may begin at one.
        return {"/".join(path[:count]) for path in words for count in range(1, len(path) + 1)} - {
            ""
        }

    return _sorted(_read(ctx, recorded) or (), incomplete)


def _sorted(words: Iterable[str], incomplete: str) -> list[str]:
    return sorted(word for word in words if word.startswith(incomplete))


def _read(ctx: typer.Context, work: Callable[[Journal], Awaitable[T]]) -> T | None:
    url = ctx.params.get("journal") or os.environ.get("LOOPWRIGHT_JOURNAL") or DEFAULT
    try:
        return reading(str(url), work)
    except Exception:  # a message would stand in the line that the person types
        return None
