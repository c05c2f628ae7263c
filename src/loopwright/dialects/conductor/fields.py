"""The fields of Conductor's workflows, as its documentation has them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ...documents.schema.fields import Identifier, Seconds
from ...records.codec import Json
from ..translation import Open

__all__ = [
    "IGNORED",
    "REFUSED",
    "ConductorAgent",
    "ConductorDocument",
    "ForEachSpec",
    "OptionSpec",
    "ParallelSpec",
    "RouteSpec",
]

_NAMED = "a prompt has what its template names"
_EFFORT = "calls use the default of the model"
# Keys without an effect on what runs here.
IGNORED = {
    "description": "", "metadata": "", "version": "", "cost": "", "context": _NAMED, "context_mode": _NAMED,
    "input": _NAMED, "multiline": "", "options": "", "checkpoint": "every step is recorded", "max_session_seconds": "",
    "default_reasoning_effort": _EFFORT, "reasoning": _EFFORT, "default_context_tier": _EFFORT, "context_tier": _EFFORT,
    "output_mode": "", "dialog": "a person is asked by a human_gate",
    "hooks": "use listeners of the run", "budget_mode": "", "type": "",
    "max_agent_iterations": "rounds of tool calls have their usual limit",
    "session_key": "each prompt begins a conversation; name the earlier output in it", "required": "",
}  # fmt: skip
# Keys that would change what runs.
REFUSED = {
    "mcp_servers": "add servers: to the converted document, and tools: to its steps",
    "retry": "set on_failure: retry on the step of the converted document",
    "working_dir": "set cwd: on the step of the converted document",
    "validator": "write a second agent, whose route leads back to this one",
    "instructions": "put the text into system_prompt", "skills": "put the text into system_prompt",
    "plugins": "Loopwright has none", "sandbox": "set sandbox: on the steps of the converted document",
    "key_by": "the outputs are a list in the order of the items",
    "dedupe": "remove repeated items in the agent that makes the list",
}  # fmt: skip


class RouteSpec(Open):
    """Where the workflow goes after an agent."""

    to: str
    when: str | None = None


class OptionSpec(Open):
    """One option of a question to a person."""

    label: str = ""
    value: str = ""
    name: str = ""
    route: str | None = None
    prompt_for: str | None = None

    @property
    def word(self) -> str:
        """The value of the choice."""
        return self.value or self.label or self.name


class ConductorAgent(Open):
    """An agent: a prompt, a command or a question to a person."""

    name: Identifier
    type: str = "agent"
    model: str | None = None
    provider: Json = None
    system_prompt: str | None = None
    prompt: str | None = None
    output: dict[str, dict[str, Json]] | None = None
    routes: list[RouteSpec] = Field([])
    options: list[OptionSpec] = Field([])
    command: str | None = None
    args: list[str] = Field([])
    env: dict[str, str] = Field({})
    stdin: str | None = None
    timeout: Seconds | None = None


class ItemAgentSpec(ConductorAgent):
    """The agent of a list, which may lack a name."""

    name: Identifier = "item"


class ParallelSpec(Open):
    """Agents that run at the same time."""

    name: Identifier
    agents: list[str] = Field(min_length=1)
    failure_mode: Literal["fail_fast", "continue_on_error", "all_or_nothing"] = "fail_fast"
    routes: list[RouteSpec] = Field([])


class ForEachSpec(Open):
    """The same agent for each item of a list."""

    name: Identifier
    source: str
    as_: str = Field(alias="as")
    agent: ItemAgentSpec
    max_concurrent: int = Field(10, ge=1, le=100)
    failure_mode: Literal["fail_fast", "continue_on_error", "all_or_nothing"] = "fail_fast"
    routes: list[RouteSpec] = Field([])


class ConductorInput(Open):
    """An input of the workflow."""

    type: Literal["string", "number", "boolean", "array", "object"] = "string"
    required: bool = True
    default: Json = None
    description: str | None = None


class LimitsSpec(Open):
    """Limits of the workflow."""

    max_iterations: int = Field(10, ge=1, le=500)
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    budget_usd: Annotated[float, Field(gt=0)] | None = None
    budget_mode: Literal["audit", "enforce"] = "audit"


class RuntimeSpec(Open):
    """The settings of model calls."""

    provider: Json = "copilot"
    default_model: str | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    max_tokens: int | None = Field(None, ge=1)
    timeout: Seconds | None = None


class WorkflowDefinition(Open):
    """The head of a document."""

    name: Identifier
    entry_point: str
    description: str = ""
    input: dict[str, ConductorInput] = Field({})
    runtime: RuntimeSpec = Field(default_factory=RuntimeSpec)
    limits: LimitsSpec = Field(default_factory=LimitsSpec)


class ConductorDocument(Open):
    """A document."""

    workflow: WorkflowDefinition
    agents: list[ConductorAgent] = Field([])
    parallel: list[ParallelSpec] = Field([])
    for_each: list[ForEachSpec] = Field([])
    output: dict[str, str] = Field({})
