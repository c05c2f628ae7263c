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


# Bash breaks words at `=` and completes what stands behind it; the value of an input follows without a space.
_BEHIND_EQUALS = """\
    if [[ ${COMP_WORDS[COMP_CWORD]} == = || ${COMP_WORDS[COMP_CWORD-1]} == = ]]; then
        COMPREPLY=( "${COMPREPLY[@]#*=}" )
    fi
    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    return 0"""


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
    if shell is Shell.BASH:
        script = script.replace("    return 0", _BEHIND_EQUALS)
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


def inputs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the inputs of the document that the command line names, or after the `=` the choices of one."""
    from ..sources import SourceSettings, load_source  # loads documents

    # An option without its value ends the parser before it names the arguments.
    file = ctx.params.get("file") or next(iter(ctx.params.get("files") or ctx.args), "")
    try:
        source = load_source(str(file), SourceSettings(), execute=False)
    except Exception:  # as in `_read`
        return []
    specs = {} if source.inputs is None else source.inputs.specs
    name, equals, _ = incomplete.partition("=")
    if not equals:
        return [
            (f"{one}=", spec.description) for one, spec in specs.items() if one.startswith(name)
        ]
    found = [f"{name}={text}" for text in specs[name].texts()] if name in specs else []
    return [(word, "") for word in found if word.startswith(incomplete)]


def joined(words: str, index: int) -> tuple[str, int]:
    """Return a line of words and the index of the last one, with `name=value` as one word again.

    Bash breaks words at `=`.

    >>> joined("loopwright run a.yaml --set tone = d", 6)
    ('loopwright run a.yaml --set tone=d', 4)
    """
    between = "\n" if "\n" in words else " "
    parts: list[str] = []
    after = False  # whether the last part waits for its value
    for word in words.split(between)[: index + 1]:
        if parts and (word == "=" or after):
            parts[-1] += word
        else:
            parts.append(word)
        after = word == "="
    return between.join(parts), len(parts) - 1


def _sorted(words: Iterable[str], incomplete: str) -> list[str]:
    return sorted(word for word in words if word.startswith(incomplete))


def _read(ctx: typer.Context, work: Callable[[Journal], Awaitable[T]]) -> T | None:
    url = ctx.params.get("journal") or os.environ.get("LOOPWRIGHT_JOURNAL") or DEFAULT
    try:
        return reading(str(url), work)
    except Exception:  # a message would stand in the line that the person types
        return None
