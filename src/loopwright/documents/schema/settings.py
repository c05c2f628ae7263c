"""The part of native documents that says how a model is asked, beyond its name, limit and temperature."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ...models.settings import SAMPLING
from .fields import Part

__all__ = ["SETTINGS", "SettingsFields"]

SETTINGS = (*SAMPLING, "extra_headers", "on_cutoff")


class SettingsFields(Part):
    """Further settings of model calls; what an endpoint does not take is left out with a warning."""

    on_cutoff: Literal["fail", "retry", "accept"] | None = Field(
        None,
        description="What follows a reply that was cut off at max_tokens: fail (where max_tokens is given), "
        "retry with a larger limit (elsewhere), or accept the cut text.",
    )
    top_p: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    seed: int | None = None
    stop: str | list[str] | None = Field(None, description="Texts at which a reply ends.")
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = None
    frequency_penalty: float | None = Field(None, ge=-2, le=2, allow_inf_nan=False)
    presence_penalty: float | None = Field(None, ge=-2, le=2, allow_inf_nan=False)
    extra_body: dict[str, Any] | None = Field(None, description="Further fields of the request.")
    extra_headers: dict[str, str] | None = Field(
        None, description="Headers of the request, without keys: those are named in api_key_env."
    )
