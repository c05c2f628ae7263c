"""The fields of `workflow/v2.0` as in its own project, and the advice for other keys.

Text fields keep their text in the document: `version: 1.0` is "1.0" and `FLAG: yes` is "yes". Additional
fields are `output` of a document, and `needs`, `judge`, `required` and `accept` of a loop.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ....records.codec import Json
from ...schema.fields import Accepted, Identifier, Names, Part, Pause, Seconds

__all__ = [
    "KINDS",
    "ConsensusV2",
    "ExecutionSettings",
    "LoopV2",
    "ModelCallV2",
    "StepV2",
    "WorkflowV2",
    "hint",
]

OnFailure = Literal["halt", "continue", "retry", "fail"]
Logging = Literal["error", "warn", "info", "normal", "step", "steps", "debug", "verbose", "noisy"]
KINDS = ("run", "template", "loop", "consensus", "embeddings", "rag")


class TargetV2(Part):
    """A model at a provider."""

    provider: str
    model: str


class ModelCallV2(Part):
    """The settings of model calls that documents, steps, voters and judges have in common."""

    provider: str | None = None
    model: str | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    max_tokens: int | None = Field(None, ge=1)
    timeout: Seconds | None = None


class InheritedV2(ModelCallV2):
    """Settings that a step can override."""

    providers: list[TargetV2] | None = Field(None, min_length=1)
    servers: list[str] = Field([])
    skills: list[str] = Field([])
    max_iterations: int | None = Field(None, ge=1)
    logging: Logging | None = None
    no_color: bool | None = None


class ExecutionSettings(InheritedV2):
    """The settings that all steps inherit."""

    parallel: bool = False
    max_workers: int | None = Field(None, ge=1, le=100)
    on_error: Literal["cancel_all", "complete_running", "continue", "halt"] | None = None


class TemplateV2(Part):
    """A call of another workflow."""

    name: str
    with_: dict[str, Json] | None = Field(None, alias="with")


class ConsensusV2(Part):
    """One prompt to several models, which must agree."""

    prompt: str
    executions: list[ModelCallV2] = Field(min_length=2)
    require: Literal["unanimous", "2/3", "majority"]
    allow_partial: bool | None = None
    timeout: Seconds | None = None


class LoopV2(Part):
    """A loop: until a condition holds (mode refine), or over a list (mode iterate)."""

    name: Identifier | None = None
    workflow: str
    mode: Literal["refine", "iterate"] = "refine"
    items: Json = None
    with_: dict[str, Json] | None = Field(None, alias="with")
    max_iterations: int | None = Field(None, ge=1, validate_default=True)
    until: str | None = None
    on_failure: OnFailure | None = None
    max_retries: int | None = Field(None, ge=0, le=100)
    retry_delay: Pause | None = None
    min_success_rate: float | None = Field(None, ge=0, le=1)
    timeout_per_item: Seconds | None = None
    total_timeout: Seconds | None = None
    accumulate: str | None = None
    parallel: bool = False
    max_workers: int | None = Field(None, ge=1, le=100)
    needs: Names = Field([])
    judge: ModelCallV2 | None = None
    required: bool = False
    accept: Accepted = Field([])

    @field_validator("max_iterations")
    @classmethod
    def _bounded(cls, value: int | None, info: ValidationInfo) -> int | None:
        """Require a limit for a loop that ends with a condition. A loop over a list ends with the list."""
        if value is None and info.data.get("mode") == "refine":
            raise PydanticCustomError(
                "loop", "needs 'max_iterations': the maximum number of iterations", {}
            )
        return value


class StepV2(InheritedV2):
    """A step: exactly one of run, template, loop, consensus, embeddings, rag; a loop may have a run beside it."""

    name: Identifier
    run: str | None = None
    template: TemplateV2 | None = None
    loop: LoopV2 | None = None
    consensus: ConsensusV2 | None = None
    embeddings: dict[str, Json] | None = None
    rag: dict[str, Json] | None = None
    needs: Names = Field([])
    if_: str | None = Field(None, alias="if")
    input: Json = None
    execution_order: int | None = None
    on_failure: OnFailure | None = None
    max_retries: int | None = Field(None, ge=0, le=100)

    @property
    def kind(self) -> str:
        """The kind of the step."""
        value = [name for name in KINDS if getattr(self, name) is not None]
        return "loop" if set(value) == {"run", "loop"} else value[0]

    @model_validator(mode="after")
    def _one_kind(self) -> StepV2:
        value = [name for name in KINDS if getattr(self, name) is not None]
        if len(value) != 1 and set(value) != {"run", "loop"}:
            result = f"has {' and '.join(value)}" if value else "has none"
            raise PydanticCustomError(
                "action", "needs exactly one of {kinds}, but {present}",
                {"kinds": ", ".join(KINDS), "present": result},
            )  # fmt: skip
        return self


class WorkflowV2(Part):
    """A document of `workflow/v2.0`."""

    schema_: str = Field(alias="$schema")
    name: Identifier
    version: str = ""
    description: str = ""
    execution: ExecutionSettings = Field(default_factory=ExecutionSettings)
    env: dict[str, str] = Field({})
    steps: list[StepV2] | None = None
    loops: list[LoopV2] | None = None
    output: str | None = None


_EVERYWHERE = {
    "pass_env": "every name of env is available in every step as {{env.NAME}}",
    "output_var": "the output of a step is available as {{NAME}}",
    "outputs": "the output of a step is available as {{NAME}}",
    "inputs": "a workflow has one input, {{input}}; its caller passes more values through `with`",
}
_OF_STEPS = {
    "execution": "set provider, model, temperature and so on directly on the step",
    "output": "the output of a step is available as {{NAME}}",
    "for_each": "write loop: {mode: iterate, items: …, workflow: …, max_iterations: …}",
    "item_name": "an item is {{item}} in the workflow of a loop, {{loop.current}} in its `with`",
    "on_error": "write on_failure: halt, continue or retry",
    "condition": "write if: {{NAME}} == \"VALUE\"",
    "depends_on": "write needs: [NAME, …]",
    "prompt": "write run: TEXT",
    "workflow": "write template: {name: NAME, with: {…}}",
}  # fmt: skip
_OF_LOOPS = {
    "max_iteration": "did you mean 'max_iterations'?",
    "workfow": "did you mean 'workflow'?",
    "output": "the output of a loop is available under its name, as {{NAME}}",
    "input": "write with: {input: …}",
    "condition": "write until: a sentence that a model can judge",
}
_OF_PROVIDERS = dict.fromkeys(
    ("temperature", "max_tokens", "timeout"), "set it beside providers, for all of them"
)
_OF_DOCUMENTS = {"input": "the input of a workflow comes from its caller, as {{input}}"}


def hint(path: tuple[str | int, ...]) -> str:
    """Return the advice for an unknown key, or ""."""
    key = str(path[-1])
    names = [part for part in path[:-1] if isinstance(part, str)]
    where = names[-1] if names else ""
    tables = {
        "": _OF_DOCUMENTS, "steps": _OF_STEPS, "loops": _OF_LOOPS, "loop": _OF_LOOPS,
        "providers": _OF_PROVIDERS,
    }  # fmt: skip
    return tables.get(where, {}).get(key) or _EVERYWHERE.get(key, "")
