"""The fields of `workflow/v2.0`, as its own project has them, and what to write instead of others.

Text fields keep the text that was written: `version: 1.0` is "1.0" and `FLAG: yes` is "yes".
Beyond that project's own fields: `output` of a document, and `needs`, `judge`, `required` and
`accept` of a loop.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ...schema.fields import Accepted, Identifier, Names, Part, Pause, Seconds

__all__ = [
    "KINDS",
    "Asked",
    "ConsensusV2",
    "ExecutionSettings",
    "LoopV2",
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


class Asked(Part):
    """How a model is asked: what documents, steps, voters and judges have in common."""

    provider: str | None = None
    model: str | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    max_tokens: int | None = Field(None, ge=1)
    timeout: Seconds | None = None


class Inherited(Asked):
    """What a step may override."""

    providers: list[TargetV2] | None = Field(None, min_length=1)
    servers: list[str] = Field([])
    skills: list[str] = Field([])
    max_iterations: int | None = Field(None, ge=1)
    logging: Logging | None = None
    no_color: bool | None = None


class ExecutionSettings(Inherited):
    """What all steps inherit."""

    parallel: bool = False
    max_workers: int | None = Field(None, ge=1, le=100)
    on_error: Literal["cancel_all", "complete_running", "continue", "halt"] | None = None


class TemplateV2(Part):
    """A call of another workflow."""

    name: str
    with_: dict[str, Any] | None = Field(None, alias="with")


class ConsensusV2(Part):
    """One prompt to several models, which must agree."""

    prompt: str
    executions: list[Asked] = Field(min_length=2)
    require: Literal["unanimous", "2/3", "majority"]
    allow_partial: bool | None = None
    timeout: Seconds | None = None


class LoopV2(Part):
    """A loop: until a condition holds (mode refine), or over a list (mode iterate)."""

    name: Identifier | None = None
    workflow: str
    mode: Literal["refine", "iterate"] = "refine"
    items: Any = None
    with_: dict[str, Any] | None = Field(None, alias="with")
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
    judge: Asked | None = None
    required: bool = False
    accept: Accepted = Field([])

    @field_validator("max_iterations")
    @classmethod
    def _bounded(cls, value: int | None, info: ValidationInfo) -> int | None:
        """A loop over a list ends with the list; one that goes on until a condition holds needs a limit."""
        if value is None and info.data.get("mode") == "refine":
            raise PydanticCustomError(
                "loop", "needs 'max_iterations': how many rounds there may be", {}
            )
        return value


class StepV2(Inherited):
    """A step: exactly one of run, template, loop, consensus, embeddings, rag; a loop may have a run beside it."""

    name: Identifier
    run: str | None = None
    template: TemplateV2 | None = None
    loop: LoopV2 | None = None
    consensus: ConsensusV2 | None = None
    embeddings: dict[str, Any] | None = None
    rag: dict[str, Any] | None = None
    needs: Names = Field([])
    if_: str | None = Field(None, alias="if")
    input: Any = None
    execution_order: int | None = None
    on_failure: OnFailure | None = None
    max_retries: int | None = Field(None, ge=0, le=100)

    @property
    def kind(self) -> str:
        """Which of the kinds it is."""
        given = [name for name in KINDS if getattr(self, name) is not None]
        return "loop" if set(given) == {"run", "loop"} else given[0]

    @model_validator(mode="after")
    def _one_kind(self) -> StepV2:
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1 and set(given) != {"run", "loop"}:
            found = f"has {' and '.join(given)}" if given else "has none"
            raise PydanticCustomError(
                "action", "needs exactly one of {kinds}, and {found}",
                {"kinds": ", ".join(KINDS), "found": found},
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
    "pass_env": "each name of env is there in every step, as {{env.NAME}}",
    "output_var": "what a step gives is there under its name, as {{NAME}}",
    "outputs": "what a step gives is there under its name, as {{NAME}}",
    "inputs": "a workflow has one input, {{input}}; its caller gives more by `with`",
}
_OF_STEPS = {
    "execution": "a step has provider, model, temperature and the like itself",
    "output": "what a step gives is there under its name, as {{NAME}}",
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
    "output": "what a loop gives is there under its name, as {{NAME}}",
    "input": "write with: {input: …}",
    "condition": "write until: a sentence that a model can judge",
}
_OF_PROVIDERS = dict.fromkeys(
    ("temperature", "max_tokens", "timeout"), "give it beside providers, for all of them"
)
_OF_DOCUMENTS = {"input": "the input of a workflow comes from its caller, as {{input}}"}


def hint(path: tuple[str | int, ...]) -> str:
    """Return what to write instead of an unknown key, or ""."""
    key = str(path[-1])
    names = [part for part in path[:-1] if isinstance(part, str)]
    where = names[-1] if names else ""
    tables = {
        "": _OF_DOCUMENTS, "steps": _OF_STEPS, "loops": _OF_LOOPS, "loop": _OF_LOOPS,
        "providers": _OF_PROVIDERS,
    }  # fmt: skip
    return tables.get(where, {}).get(key) or _EVERYWHERE.get(key, "")
