"""The native document: fields and words whose meaning is that of another dialect, and memories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from ...records.codec import Json
from .fields import (
    ANSWER_TIMEOUT,
    CALL_TIMEOUT,
    MAX_TOKENS,
    MODEL_URL,
    TEMPERATURE,
    Names,
    Part,
    Seconds,
    SettingsFields,
    Url,
)

__all__ = [
    "ConsensusSpec",
    "LessonsSpec",
    "LoopMemorySpec",
    "MemorySpec",
    "NodeSpec",
    "PresetSpec",
    "StrategySpec",
    "Templates",
    "Termination",
    "VoterSpec",
    "has_type",
]


Templates = Annotated[
    Literal["native", "loop_node"],
    Field(
        description="`loop_node`: undefined names in templates are empty, and templates have the names and functions "
        "of that dialect, such as previous_outputs and get_past_loops()."
    ),
]
Termination = Annotated[
    dict[str, Json] | None,
    Field(
        description="`until` in the format of loop controllers: `{type: confidence, threshold: 0.85}`."
    ),
]


def has_type(condition: Json) -> bool:
    """Return whether a condition has the format of `termination`."""
    return isinstance(condition, Mapping) and "type" in condition


class VoterSpec(SettingsFields):
    """One of the models that must agree."""

    model: str | None = Field(None, description="`provider:model`.")
    temperature: float | None = Field(
        None, ge=0, le=2, allow_inf_nan=False, description=TEMPERATURE
    )
    max_tokens: int | None = Field(None, ge=1, description=MAX_TOKENS)
    model_url: Url | None = Field(None, description=MODEL_URL)
    api_key_env: str | None = Field(
        None, description="The environment variable with the key for `model_url`."
    )
    call_timeout: Seconds | None = Field(None, description=CALL_TIMEOUT)
    answer_timeout: Seconds | None = Field(None, description=ANSWER_TIMEOUT)


class ConsensusSpec(Part):
    """One prompt to several models; its output is the answer on which enough of them agree."""

    prompt: str = Field(description="A template.")
    system: str | None = Field(None, description="System prompt, a template.")
    voters: list[VoterSpec] = Field(
        min_length=2, description="Two or more models, each with its settings."
    )
    require: Literal["unanimous", "2/3", "majority"] = Field(
        "majority", description="How many voters must agree."
    )
    allow_failures: bool = Field(
        True, description="Whether voters without an answer are not counted."
    )


class PresetSpec(Part):
    """Criteria with weights that sum to 1, by level and context."""

    level: Literal["strict", "moderate", "lenient"] = Field(
        "moderate", description="How strict the criteria are."
    )
    context: Literal["loop_convergence", "quality", "graphscout", "validation"] = Field(
        "loop_convergence", description="Set of criteria."
    )
    weights: dict[str, float] = Field(
        {}, description="Weights by `dimension.criterion` that replace those of the preset."
    )


class StrategySpec(Part):
    """One way to read a score from the outputs of agents."""

    patterns: list[str] = Field([], description="Patterns whose first group is the number.")
    key: str = Field("", description="A field of the JSON output of an agent.")
    agents: list[str] = Field([], description="The agents to read, in this order. Default: all.")

    @model_validator(mode="after")
    def _something(self) -> StrategySpec:
        if not self.patterns and not self.key:
            raise PydanticCustomError("strategy", "needs patterns or key", {})
        return self


class LessonsSpec(Part):
    """The lessons of each iteration that a loop node keeps for the next."""

    patterns: dict[Literal["insights", "improvements", "mistakes"], list[str]] = Field(
        {},
        description="Regular expressions by category; the first group is the lesson.",
    )
    entry: dict[str, Json] | None = Field(
        None, description="The templates of an entry of `past_loops`, by name."
    )
    longest: int = Field(300, ge=1, description="The maximum of characters of a category.")
    most: int = Field(20, ge=1, le=1000, description="The maximum of entries of past iterations.")
    persist: str = Field(
        "",
        description="The name under which entries are kept between runs. Default: they are not kept.",
    )


class NodeSpec(Part):
    """A loop that is scored by the replies of its agents. The output of `execute` has the outputs of all agents."""

    threshold: float = Field(
        0.8, ge=0, le=1, allow_inf_nan=False, description="The score that satisfies it."
    )
    scale: list[float] = Field(
        [0.0, 1.0],
        min_length=2,
        max_length=2,
        description="The scale of scores without a scale.",
    )
    strategies: list[StrategySpec] | None = Field(
        None, min_length=1, description="Ways to read the score, in order."
    )
    first: Names = Field([], description="Agents whose scores come before those of others.")
    preset: PresetSpec | None = Field(None, description="The weighted criteria of a validator.")
    fallback_score: float | None = Field(
        None, ge=0, le=1, description="The score of an iteration without one."
    )
    timeout_score: float | None = Field(
        None, ge=0, le=1, description="The score of a loop that times out before its first score."
    )
    agreement: bool = Field(
        False,
        description="Whether the agreement of agents, the words they share, is the score of an iteration without one.",
    )
    score_missing: Literal["count", "re_ask"] = Field(
        "count",
        description="An iteration without a score is undecided at once, or after the agent that should have scored "
        "was asked once more. Two such iterations in a row end the loop as failed.",
    )
    prefer: Literal["last", "first"] = Field(
        "last",
        description="Which of several scores counts: the last one in the text of the last agent that may score, or "
        "the first one in the text of the first agent.",
    )
    lessons: LessonsSpec = Field(
        default_factory=LessonsSpec, description="Lessons that are kept for later iterations."
    )

    @property
    def calls(self) -> int:
        """The maximum of model calls of an iteration, besides those of `execute`."""
        return int(self.score_missing == "re_ask")


class MemorySpec(Part):
    """Texts and facts that outlive the run, in the memory of its journal."""

    operation: Literal["read", "write", "remember", "recall"] = Field(
        description="`write` stores a text, `read` returns texts; `remember` stores a fact, or reinforces an "
        "existing one, `recall` returns facts."
    )
    namespace: str = Field(
        "default", min_length=1, max_length=150, description="Space of the memory."
    )
    text: str = Field(
        "{{ value }}", description="The text to store, or the words to search for; a template."
    )
    limit: int = Field(5, ge=1, le=100, description="The maximum of results.")
    metadata: dict[str, Json] = Field({}, description="Metadata of the text, with templates.")
    category: str = Field("", description="The category of facts.")

    @model_validator(mode="after")
    def _fits(self) -> MemorySpec:
        facts = self.operation in ("remember", "recall")
        for name, expected in (("category", facts), ("metadata", not facts)):
            if name in self.model_fields_set and not expected:
                raise PydanticCustomError(
                    "memory", "{name} does not belong to {operation}",
                    {"name": name, "operation": self.operation},
                )  # fmt: skip
        return self


class LoopMemorySpec(Part):
    """The results of earlier runs that a loop receives, and stores for later ones."""

    space: str = Field(
        "",
        max_length=150,
        description="The memory space. Default: the names of the document and of the loop. Loops with the same space "
        "share their lessons.",
    )
    most: int = Field(5, ge=0, le=100, description="The number of latest runs.")
    facts: int = Field(
        5, ge=0, le=100, description="The number of facts with the highest confidence."
    )
