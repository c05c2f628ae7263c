"""Groups of agents: what they give is the outputs of all of them, in the order in which they ran."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ....engine.composites import Wrapper
from ....engine.context import Context
from ....engine.scope import Scope
from ....engine.step import CompositeStep, StepLike, digest_of
from ....engine.workflow import Workflow
from ....evaluators.parsing.replies import AGENTS, LAST, agents_in
from ....records import Result
from ....records.codec import Json

__all__ = ["AgentGroup", "AgentsAtOnce", "ungrouped"]


class AgentGroup(Workflow):
    """Agents one after the other; the output maps each that was not skipped to its own.

    `marked` puts the map under one key, by which groups around it and templates know it for a group;
    `last` makes the output of the agent that ran last the one that counts outside of its workflow.
    """

    def __init__(
        self, name: str, steps: Mapping[str, StepLike], *, marked: bool, last: bool, **options: Any
    ) -> None:
        super().__init__(name, steps, **options)
        self.marked = marked
        self.last = last

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("agents", super().fingerprint)

    async def inside(self, scope: Scope, value: Json, ctx: Context) -> Result:
        """Run the agents with their variables in `scope`."""
        result = await super().inside(scope, value, ctx)
        found = agents_in({k: output for k, output in scope.outputs.items() if output is not None})
        if not self.marked:
            return replace(result, output=self._last(found, value, ctx) if self.last else found)
        output: Json = {AGENTS: found}
        if self.last:
            output[LAST] = self._last(found, value, ctx)
        return replace(result, output=output)

    def _last(self, found: Mapping[str, Json], value: Json, ctx: Context) -> Json:
        """Return the output of the agent that ran last; where none ran, what came before stands."""
        before = agents_in(ctx.scope.outputs) if ctx.scope is not None else {}
        said = [each for each in (found or before).values() if each is not None]
        return said[-1] if said else value


@dataclass(frozen=True)
class AgentsAtOnce(Wrapper):
    """Branches of agents at once; the output maps the agents of all of them to their own."""

    name: str
    inner: CompositeStep

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("branches", self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the branches."""
        result = await self.inner.run(value, ctx)
        return replace(result, output={AGENTS: agents_in(result.output)})


def ungrouped(output: Json) -> Json:
    """Return an output for those outside: of a group, the plain map of its agents, or its last one's."""
    if isinstance(output, Mapping) and AGENTS in output:
        return ungrouped(output[LAST]) if LAST in output else agents_in(output[AGENTS])
    return output
