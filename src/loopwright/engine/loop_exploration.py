"""Exploration: a share of the runs of a loop continues to its limits after the normal end.

The normal end decides status, reason and output. The iterations after it are recorded as `explored`, so that
replay can say what a later stop would have been worth.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import cast

from ..errors import ConfigurationError
from ..records import Reason, Status, Stop
from .loop_declaration import LoopDeclaration
from .step import Step

__all__ = [
    "check_exploration",
    "check_surroundings",
    "explores",
    "may_continue",
    "refuse_to_act",
]

# After these there is nothing left to explore, or nothing that should go on.
_FINAL = frozenset({
    Reason.MAX_ITERATIONS, Reason.PHASE_LIMIT, Reason.CEILING, Reason.TIMEOUT, Reason.DEADLINE,
    Reason.BUDGET, Reason.CANCELLED, Reason.TAMPERED, Reason.ACCEPTED, Reason.STOPPED,
})  # fmt: skip
_ENDINGS = (Status.SATISFIED, Status.EXHAUSTED, Status.IMPOSSIBLE)


def explores(run_id: str, share: float) -> bool:
    """Return whether a run explores: its ID decides, so that a resumed run decides alike.

    Args:
        run_id: the ID of the run.
        share: the share of runs that explore, from 0 to 1.

    >>> sum(explores(f"run-{number}", 0.1) for number in range(1000))
    97
    """
    # Of the digest and not of the text: IDs with a common beginning would decide alike.
    number = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:7], "big")
    return number < share * 256**7


def may_continue(stop: Stop) -> bool:
    """Return whether a loop that ends for this reason can explore."""
    return stop.reason.status in _ENDINGS and stop.reason not in _FINAL


def check_exploration(loop: LoopDeclaration) -> None:
    """Refuse to explore with a loop that asks people.

    Raises:
        ConfigurationError: names the option.
    """
    stall = loop.on_stall
    if loop.approve or loop.undecided.then == "pause" or (stall and stall.then == "ask"):
        raise ConfigurationError(
            f"loop {loop.name}: explore: a loop that asks a person cannot explore, because the answer would have no "
            "effect. Remove approve, or explore.",
            option="explore",
        )


def refuse_to_act(loop: LoopDeclaration, parts: Iterable[Step]) -> None:
    """Refuse to explore with a loop that acts on the world, if no workspace surrounds it.

    Raises:
        ConfigurationError: names the step.
    """
    acting = next((step for part in parts for step in _acting(part)), None)
    if acting is not None:
        raise ConfigurationError(
            f"loop {loop.name}: explore: {acting.name} acts outside the run, and an explored run would repeat that. "
            "Give the loop a workspace, or declare the step with idempotent=True.",
            option="explore",
        )


def check_surroundings(step: Step, *, in_workspace: bool = False) -> None:
    """Refuse the loops in a step that explore and act on the world outside a workspace.

    Only the start of a run knows the workspaces around a loop: it is built before the workflow that has one.

    Raises:
        ConfigurationError: names the first such loop and its step.
    """
    if not step.explores:
        return
    if getattr(step, "workspace", None) is not None:
        in_workspace = True
    elif getattr(step, "over_list", False) and getattr(step, "at_once", 1) > 1:
        in_workspace = False  # items that run at the same time have no files
    if getattr(step, "explore", 0) and not in_workspace:
        refuse_to_act(cast("LoopDeclaration", step), step.parts())
    for part in step.parts():
        check_surroundings(part, in_workspace=in_workspace)


def _acting(step: Step) -> Iterator[Step]:
    """Iterate over the steps that may not run twice: commands, agents, tools, and functions declared so."""
    if getattr(step, "idempotent", True) is False:
        yield step
    # Of a prompt, or of a judge, which keeps them with their limits.
    tools = getattr(step, "tools", ())
    for tool in getattr(tools, "tools", tools):
        if getattr(tool, "idempotent", False) is not True:
            yield tool
    for part in step.parts():
        yield from _acting(part)
