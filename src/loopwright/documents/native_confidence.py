"""The part of native documents that the confidence scorer is described by."""

from __future__ import annotations

from pydantic import Field

from .fields import Part, Seconds, Url

__all__ = ["ConfidenceSpec"]


class ConfidenceSpec(Part):
    """A model that rates an output by weighted criteria; it passes from a threshold on."""

    criteria: list[str] = Field(
        default_factory=list,
        description="Sentences, each rated from 0 to 1; default: those that the goal lists, else a model makes them.",
    )
    goal: str | None = Field(None, description="What the work is for; default: the loop's input.")
    weights: dict[str, float] | None = Field(
        None, description="By criterion; 1 for those that are not named."
    )
    threshold: float = Field(0.85, ge=0, le=1, allow_inf_nan=False)
    strict: bool = Field(
        False, description="Whether every criterion must reach the threshold, not just the whole."
    )
    model: str | None = Field(None, description="`provider:model`.")
    models: list[str] | None = None
    model_url: Url | None = None
    api_key_env: str | None = Field(
        None, description="The environment variable with the key for `model_url`."
    )
    temperature: float = Field(0.2, ge=0, le=2, allow_inf_nan=False)
    max_tokens: int = Field(1024, ge=1)
    call_timeout: Seconds | None = None
