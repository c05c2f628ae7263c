"""A dry run: models, commands, Python functions and tools are replaced by rules."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ..engine.run import run
from ..engine.step import StepLike
from ..journal import MemoryJournal
from ..models.registry import Models
from ..models.scripted import ScriptedModel, dry_run_resources
from ..records import Result
from ..records.codec import Json

__all__ = ["dry_run", "dry_run_sync"]


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
