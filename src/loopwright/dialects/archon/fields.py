"""The fields of Archon's workflows, as its documentation has them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from ...documents.schema.fields import Identifier, Names
from ...records.codec import Json
from ..translation import Open

__all__ = [
    "IGNORED",
    "KINDS",
    "REFUSED",
    "ApprovalSpec",
    "ArchonLoop",
    "ArchonNode",
    "GroupSpec",
    "WorkflowSpec",
]

KINDS = (
    "command",
    "prompt",
    "bash",
    "script",
    "loop",
    "loop_group",
    "approval",
    "cancel",
    "workflow",
)
_OTHER_KINDS = {
    "include": "copy the nodes of that workflow here, or call it with workflow:",
    "wait": "run it in two parts, or poll in a bash node",
    "route_loop": "write a loop_group whose nodes have when:",
}
_SETTING = "set it in the coding agent's own settings"
# Keys without an effect on what runs here.
IGNORED = {
    "": "", "tags": "", "interactive": "every run can ask, on the terminal and on the page", "mutates_checkout": "",
    "effort": _SETTING, "webSearchMode": _SETTING, "fallbackModel": _SETTING, "betas": _SETTING, "settingSources": _SETTING,
    "plugins": _SETTING, "skills": _SETTING, "agents": _SETTING, "output_type": "", "always_run": "", "deprecated": "",
    "outcome_field": "", "persist_session": "", "systemPrompt": "put its text into the prompt", "version": "",
    "signal_completes": "the signal always ends the loop", "gate_message": "the question shows the output of the iteration",
}  # fmt: skip
# Keys that would change what runs.
REFUSED = {
    **_OTHER_KINDS,
    "hooks": "there are no hooks of single tool calls; check the result with until_bash or a bash node",
    "mcp": "add the servers to the coding agent's own settings",
    "sandbox": "set sandbox: auto on the agents of the converted document",
    "retry": "set on_failure: retry on the step of the converted document",
    "on_reject": "write an interactive loop, whose person answers with feedback until the result is accepted",
    "fan_out": "write each: in the converted document",
    "requires": "Loopwright has no accounts; check it in a bash node",
    "denied_tools": "write allowed_tools, or set permissions in the converted document",
    "steps": "write nodes",
}  # fmt: skip


class _UntilSpec(Open):
    """What all loops have in common."""

    until: str | None = Field(None, min_length=1)
    until_bash: str | None = Field(None, min_length=1)
    max_iterations: int = Field(ge=1, le=1000)
    fresh_context: bool = False
    interactive: bool = False

    @model_validator(mode="after")
    def _has_end(self) -> _UntilSpec:
        if self.until is None and self.until_bash is None:
            what = "needs until, a signal, or until_bash, a check; otherwise only max_iterations ends it"
            raise PydanticCustomError("loop", what, {})
        return self


class ArchonLoop(_UntilSpec):
    """One prompt, until a signal or a check ends the loop."""

    prompt: str | None = None
    command: str | None = None

    @model_validator(mode="after")
    def _one_text(self) -> ArchonLoop:
        if (self.prompt is None) == (self.command is None):
            raise PydanticCustomError("loop", "needs exactly one of prompt and command", {})
        return self


class ApprovalSpec(Open):
    """A question to a person."""

    message: str
    capture_response: bool = False


class ArchonNode(Open):
    """A node: exactly one of the KINDS, and what all nodes have in common."""

    id: Identifier
    command: str | None = None
    prompt: str | None = None
    bash: str | None = None
    script: str | None = None
    runtime: Literal["bun", "uv"] | None = None
    deps: list[str] = Field([])
    loop: ArchonLoop | None = None
    loop_group: GroupSpec | None = None
    approval: ApprovalSpec | None = None
    cancel: str | None = None
    workflow: str | None = None
    input: str | None = None
    depends_on: Names = Field([])
    when: str | None = None
    trigger_rule: Literal[
        "all_success", "one_success", "none_failed_min_one_success", "all_done"
    ] = "all_success"
    context: Literal["fresh", "shared"] | dict[str, Json] | None = None
    provider: str | None = None
    model: str | None = None
    output_format: dict[str, Json] | None = None
    allowed_tools: list[str] | None = None
    idle_timeout: Annotated[float, Field(gt=0)] | None = None  # milliseconds
    timeout: Annotated[float, Field(gt=0)] | None = None  # milliseconds
    on_timeout: Literal["fail", "skip"] = "fail"
    max_usd: Annotated[float, Field(gt=0)] | None = Field(None, alias="maxBudgetUsd")

    @property
    def kind(self) -> str:
        """The kind of the node."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @model_validator(mode="after")
    def _one_kind(self) -> ArchonNode:
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
        # A node of a kind that is not supported is reported at that key.
        if len(kinds) != 1 and not _OTHER_KINDS.keys() & (self.model_extra or {}).keys():
            present = f"has {' and '.join(kinds)}" if kinds else "has none"
            raise PydanticCustomError(
                "action", "needs exactly one of {kinds}, but {present}", {"kinds": ", ".join(KINDS), "present": present}
            )  # fmt: skip
        return self


class GroupSpec(_UntilSpec):
    """Nodes that are repeated together."""

    nodes: list[ArchonNode] = Field(min_length=1)


class WorktreeSpec(Open):
    """Where the workflow works."""

    enabled: bool = True


class WorkflowSpec(Open):
    """A workflow."""

    name: Identifier
    description: str = ""
    provider: str = "claude"
    model: str | None = None
    worktree: WorktreeSpec = Field(default_factory=WorktreeSpec)
    inputs: dict[str, Json] = Field({})
    returns: str | None = None
    nodes: list[ArchonNode] = Field(min_length=1)


ArchonNode.model_rebuild()
