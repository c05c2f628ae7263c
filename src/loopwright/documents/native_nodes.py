"""The parts of native documents that loop nodes and memories are described by."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from .fields import Model, Names

__all__ = ["LessonsSpec", "MemorySpec", "NodeSpec", "PresetSpec", "StrategySpec"]


class PresetSpec(Model):
    """Criteria with weights that sum to 1, by level and context."""

    level: Literal["strict", "moderate", "lenient"] = "moderate"
    context: Literal["loop_convergence", "quality", "graphscout", "validation"] = "loop_convergence"
    weights: dict[str, float] = Field(
        default_factory=dict, description="Other weights, by `dimension.criterion`."
    )


class StrategySpec(Model):
    """One way to find a score in what agents wrote."""

    patterns: list[str] = Field(
        default_factory=list, description="Patterns whose first group is the number."
    )
    key: str = Field("", description="A field of what an agent gave as JSON.")
    agents: list[str] = Field(
        default_factory=list, description="The only agents that are looked at, in this order."
    )

    @model_validator(mode="after")
    def _something(self) -> StrategySpec:
        if not self.patterns and not self.key:
            raise PydanticCustomError("strategy", "needs patterns or key", {})
        return self


class LessonsSpec(Model):
    """What a loop node keeps of each round for the next."""

    patterns: dict[Literal["insights", "improvements", "mistakes"], list[str]] = Field(
        default_factory=dict,
        description="Regular expressions by category; the first group is the lesson.",
    )
    entry: dict[str, Any] | None = Field(
        None, description="The templates of an entry of `past_loops`, by name."
    )
    longest: int = Field(300, ge=1, description="Characters of a category.")
    most: int = Field(20, ge=1, le=1000, description="How many entries of past rounds are shown.")
    persist: str = Field(
        "", description="The name under which entries outlive the run; without it they do not."
    )


class NodeSpec(Model):
    """A loop that is scored by what its agents write: its execute gives all of their outputs."""

    threshold: float = Field(
        0.8, ge=0, le=1, allow_inf_nan=False, description="The score that satisfies it."
    )
    scale: list[float] = Field(
        default_factory=lambda: [0.0, 1.0],
        min_length=2,
        max_length=2,
        description="The scale of a bare number.",
    )
    strategies: list[StrategySpec] | None = Field(
        None, min_length=1, description="Ways to find the score, in order."
    )
    first: Names = Field(
        default_factory=list, description="Agents whose score counts before that of others."
    )
    preset: PresetSpec | None = Field(
        None, description="Criteria by which a validator's booleans are weighed."
    )
    fallback_score: float | None = Field(
        None, ge=0, le=1, description="The score of a round that has none."
    )
    timeout_score: float | None = Field(
        None, ge=0, le=1, description="The score of a loop that is cut unscored."
    )
    lessons: LessonsSpec = Field(default_factory=LessonsSpec)


class MemorySpec(Model):
    """Texts that outlive the run, in the project's memory folder."""

    operation: Literal["read", "write"]
    namespace: str = Field("default", min_length=1)
    text: str = Field(
        "{{ value }}", description="What is kept, or by whose words it is found; a template."
    )
    limit: int = Field(5, ge=1, le=100, description="How many texts are found at most.")
    metadata: dict[str, Any] = Field(
        default_factory=dict, description="Kept with the text, with templates."
    )
