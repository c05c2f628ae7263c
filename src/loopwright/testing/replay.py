"""Tests of whole runs: a dry run, in which rules replace what steps do, and an assertion on replay.

In a dry run the rules give the results of models, commands, Python functions and tools. The assertion is that a step
can be replayed from its journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..engine.run import run, run_sync
from ..engine.step import StepLike
from ..journal import MemoryJournal
from ..models.registry import Models
from ..models.scripted import ScriptedModel, dry_run_resources
from ..records import Result
from ..records.codec import Json

__all__ = [
    "assert_replays",
    "dry_run",
    "dry_run_sync",
]


async def dry_run(
    step: StepLike, value: Json = None, *, replies: str | Sequence[Json], **options: Any
) -> Result:
    """Run a step without effects: rules give the results of models, functions, commands and tools.

    Loops, conditions, templates and budgets work as in a real run. The journal and the memory are in
    this process and end with it.

    Args:
        step: the step or function.
        value: its input, any JSON value. Default: None.
        replies: the rules, as YAML text, JSON text or a list. `{step: GLOB, replies: […]}` answers model
            calls, as for `ScriptedModel`. `{step: GLOB, output: …}` is the output of a function, a
            command, a tool or a question to a person. `{step: GLOB, exit: N}` is the exit code of a
            command, with `output` as what it prints. `{step: GLOB, error: WORD}` is an error of that
            kind. The first rule that matches the path of an effect counts.
        **options: the other options of `run`, such as `budget` and `resources`, except `journal` and
            `run_id`.

    Returns:
        The result. It failed with an error that names the effect if no rule matches one.

    Raises:
        DocumentError: with every problem of the rules and its place.

    Example:
        >>> from loopwright import Loop, Passed
        >>> from loopwright.evaluators import check
        >>> from loopwright.tools import shell
        >>> loop = Loop(shell("make fix"), check(command=["make", "test"]), until=Passed())
        >>> rules = [
        ...     {"step": "*/execute", "output": "fixed"},
        ...     {"step": "*/1/evaluate", "exit": 1},
        ...     {"step": "*/evaluate", "exit": 0},
        ... ]
        >>> result = asyncio.run(dry_run(loop, replies=rules))
        >>> result.status.value, result.iterations
        ('satisfied', 2)
    """
    model = ScriptedModel(replies)
    models: dict[str, Json] = {"models": Models(model), "model": "scripted:replies"}
    resources_of_caller: Mapping[str, Json] = options.pop("resources", None) or {}
    resources = {**resources_of_caller, **models, **dry_run_resources(model)}
    return await run(step, value, journal=MemoryJournal(), resources=resources, **options)


def dry_run_sync(
    step: StepLike, value: Json = None, *, replies: str | Sequence[Json], **options: Any
) -> Result:
    """Do the same from synchronous code.

    Args:
        step: the step or function.
        value: its input, any JSON value. Default: None.
        replies: the rules; see `dry_run`.
        **options: the other options of `run`; see `dry_run`.

    Returns:
        The result; see `dry_run`.

    Raises:
        DocumentError: with every problem of the rules and its place.

    Example:
        >>> dry_run_sync(lambda text: open(text).read(), "a.txt", replies=[{"output": "text"}]).output
        'text'
    """
    return asyncio.run(dry_run(step, value, replies=replies, **options))


_RUN = "replayed"


def assert_replays(step: StepLike, value: Json = None, **options: Any) -> Result:
    """Run a step, replay it as after a crash just before its end, and assert that the replay is equal.

    A step fails if it is not deterministic outside of its effects, for example because it chooses its next
    effect by the clock or a random number. The step must not run inside an event loop.

    Args:
        step: The step, or a function.
        value: Its input. Default: None.
        **options: The options of `run`, such as `resources`, except `journal` and `run_id`.

    Returns:
        The result of the first run.

    Raises:
        AssertionError: If the replay has another result, or runs an effect.

    Example:
        >>> assert_replays(lambda text: text + "!", "hello").output
        'hello!'
    """
    journal = MemoryJournal()
    first = run_sync(step, value, journal=journal, run_id=_RUN, **options)
    crashed, recorded = asyncio.run(_without_end(journal))
    second = run_sync(step, value, journal=crashed, run_id=_RUN, **options)
    entries = asyncio.run(crashed.entries(_RUN, after=recorded))
    # A replay starts nothing: every effect that it starts is missing in the journal.
    repeated = [entry.path for entry in entries if entry.kind == "started"]
    if repeated:
        raise AssertionError(f"the replay ran effects that are not recorded: {', '.join(repeated)}")
    if _comparable(second) != _comparable(first):
        raise AssertionError(f"the replay has another result:\n{second}\ninstead of\n{first}")
    return first


async def _without_end(journal: MemoryJournal) -> tuple[MemoryJournal, int]:
    """Return a journal as it is after a crash just before the end, and its number of entries."""
    crashed = MemoryJournal()
    info = await journal.find(_RUN)
    log = await crashed.open(replace(info, status="interrupted"))
    entries = [entry for entry in await journal.entries(_RUN) if entry.kind != "ended"]
    for entry in entries:
        log.append(entry)
    # The journal then accepts a new owner, as after the death of the process.
    crashed.crash()
    return crashed, len(entries)


def _comparable(result: Result) -> Json:
    # The duration of a replay is that of this process.
    return {key: value for key, value in result.to_json().items() if key != "seconds"}
