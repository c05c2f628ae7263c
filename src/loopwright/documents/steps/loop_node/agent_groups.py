"""Groups of agents, whose output contains the outputs of all agents in the order in which they ran."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ....engine.composites import Wrapper
from ....engine.context import Context, Scope
from ....engine.step import CompositeStep, StepLike, digest_of
from ....engine.workflow import Workflow
from ....evaluators.parsing.text import AGENTS, LAST, agents_in
from ....records import Result
from ....records.codec import Json

__all__ = ["AgentGroup", "AgentsAtOnce", "ungrouped"]


class AgentGroup(Workflow):
    """Agents in sequence. The output maps each agent that was not skipped to its output.

    `marked` puts the map under one key, by which outer groups and templates recognise a group. `last` makes
    the output of the last agent the output outside of the workflow.
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
        agents = agents_in({k: output for k, output in scope.outputs.items() if output is not None})
        if not self.marked:
            return replace(result, output=self._last(agents, value, ctx) if self.last else agents)
        last = {LAST: self._last(agents, value, ctx)} if self.last else {}
        return replace(result, output={AGENTS: agents, **last})

    def _last(self, agents: Mapping[str, Json], value: Json, ctx: Context) -> Json:
        """Return the output of the last agent, or of the last one before the group if none ran."""
        before = agents_in(ctx.scope.outputs) if ctx.scope is not None else {}
        outputs = [output for output in (agents or before).values() if output is not None]
        return outputs[-1] if outputs else value


@dataclass(frozen=True)
class AgentsAtOnce(Wrapper):
    """Concurrent branches of agents. The output maps the agents of all branches to their outputs."""

    name: str
    inner: CompositeStep

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("branches", self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the branches."""
        result = await self.inner.run(value, ctx)
        return replace(result, output={AGENTS: agents_in(result.output or {})})


def ungrouped(output: Json) -> Json:
    """Return an output for steps outside of a group: the map of its agents, or its last output."""
    if isinstance(output, Mapping) and AGENTS in output:
        return ungrouped(output[LAST]) if LAST in output else agents_in(output[AGENTS])
    return output
