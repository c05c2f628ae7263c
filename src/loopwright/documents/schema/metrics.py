"""The models of metrics: how one is measured, how a loop orders it, and the score that it makes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from .fields import CWD, TIMEOUT, Names, Part, Seconds
from .tools import SANDBOX, SandboxSpec, SandboxWord

__all__ = ["SEAL_KEYS", "DeclaredMetric", "MetricScoreSpec", "MetricSpec"]

Take = Literal["median", "mean", "min", "max"]
SEAL_KEYS = ("protect", "allow", "on_tamper", "setup", "link")
TAKE = "The value of several measurements."


class MetricSpec(Part):
    """A number in the output of a command, or in the output of the loop."""

    name: str = Field(min_length=1, description="The name of the metric.")
    command: list[str] | str | None = Field(
        None,
        description="The command: words, or a constant script. Default: the number is read in the output.",
    )
    pattern: str = Field(
        "",
        description="A regular expression whose first group is the number; the last match counts. Default: the last line "
        "is the number.",
    )
    unit: str = Field("", description="The unit in the feedback, such as `s`.")
    repeats: int = Field(1, ge=1, le=1000, description="How often it is measured.")
    take: Take = Field("median", description=TAKE)
    gates: list[list[str] | str] = Field(
        [], description="Commands that must exit with 0 before anything is measured."
    )
    at_once: int = Field(
        1,
        ge=0,
        le=256,
        description="The maximum of measurements that run concurrently on this machine; 0 is no limit.",
    )
    idea: str = Field(
        "IDEA.txt", description="A file whose first line describes the change, for `loop.table`."
    )
    env: dict[str, str] = Field({}, description="Environment variables of the command.")
    pass_env: Names = Field(
        [], description="Variables of the environment that the command receives."
    )
    cwd: str | None = Field(None, description=CWD)
    timeout: Seconds | None = Field(None, description=TIMEOUT)
    sandbox: SandboxWord | SandboxSpec | None = Field(None, description=SANDBOX)
    sealed: bool = Field(
        False,
        description="In a loop with a workspace, measure in a clean copy with the protected files of the base.",
    )
    protect: list[str] = Field(
        [],
        description="Of a sealed metric: patterns of files that an iteration must not change. `auto` adds those of "
        "`tests`.",
    )
    allow: list[str] = Field(
        [],
        description="Of a sealed metric: patterns of files that may change although `protect` covers them.",
    )
    on_tamper: Literal["put_back", "reject", "stop"] = Field(
        "put_back",
        description="Of a sealed metric: what follows a change of protected files.",
    )
    setup: list[str] | str = Field(
        "",
        description="Of a sealed metric: a command that prepares the clean copy. Default: that of the workspace.",
    )
    link: list[str] = Field(
        [],
        description="Of a sealed metric: folders of yours that the clean copy contains as links. Default: those of the "
        "workspace.",
    )

    @model_validator(mode="after")
    def _of_sealed(self) -> MetricSpec:
        used = next((name for name in SEAL_KEYS if name in self.model_fields_set), None)
        if used is not None and not self.sealed:
            raise PydanticCustomError("metric", "{key} needs sealed: true", {"key": used})
        if self.sealed and self.command is None:
            raise PydanticCustomError("metric", "sealed needs a command", {})
        return self


class DeclaredMetric(Part):
    """How a loop orders, repeats and shows a metric."""

    minimise: bool = Field(False, description="Whether lower values are better.")
    maximise: bool = Field(False, description="Whether higher values are better.")
    unit: str = Field("", description="The unit, such as `s`.")
    min_delta: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="The smallest change, in its unit, that is an improvement.",
    )
    repeats: int = Field(
        1, ge=1, le=1000, description="How often an output is evaluated for this metric."
    )
    take: Take = Field("median", description=TAKE)

    @model_validator(mode="after")
    def _one_direction(self) -> DeclaredMetric:
        if self.minimise and self.maximise:
            raise PydanticCustomError("metric", "has both minimise and maximise; keep one", {})
        return self


class MetricScoreSpec(Part):
    """A score from 0 to 1 that is linear in a metric."""

    metric: str = Field(min_length=1, description="The name of the metric.")
    worst: float = Field(allow_inf_nan=False, description="Its value with the score 0.")
    best: float = Field(allow_inf_nan=False, description="Its value with the score 1.")
