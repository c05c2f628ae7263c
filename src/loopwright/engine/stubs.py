"""Stubs in place of effects, for a dry run: the protocol that the engine uses.

A run has stubs if its resource `stubs` is set. Then Python functions, commands, tools and questions to
people get their results from the stubs, and nothing acts on the machine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from ..records import codec
from ..records.codec import Json
from .step import Leaf

__all__ = ["NO_EXIT", "NO_STUB", "Stub", "Stubs", "acting"]

NO_STUB = "no_stub"  # the kind of an effect without a stub
NO_EXIT = "its stub has an exit code, which only commands have; use output or error"
_Act = Callable[..., Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class Stub:
    """The result in place of an effect: an output, and the exit code of a command (None: not set)."""

    output: Json = None
    exit: int | None = None

    def printed(self) -> str:
        """Return the output as a command prints it."""
        return "" if self.output is None else codec.text_of(self.output)


class Stubs(Protocol):
    """The stubs of a run."""

    def of(self, path: str, what: str) -> Stub:
        """Return the stub of an effect. `what` is its kind, for messages.

        Raises:
            StepError: if no stub matches, or the stub is an error.
        """

    def output(self, path: str, what: str) -> Json:
        """Return the output of an effect that has no exit code.

        Raises:
            StepError: as `of`, and for a stub with an exit code.
        """


def acting(stubs: Stubs | None, step: Leaf, path: str) -> _Act:
    """Return the function that performs a step at a path: its own, or that of its stub."""
    # Steps of this package without an effect outside the run, such as adapters, act in a dry run
    # too.
    if stubs is None or not step.stub:
        return step.act

    async def answer(value: Json, ctx: object) -> Json:
        del value, ctx
        return step.stubbed(stubs.output(path, step.stub))

    return answer
