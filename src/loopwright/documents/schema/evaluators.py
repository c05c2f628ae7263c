"""The native document: checks, test commands, judges, confidence scorers, metrics, and the next input."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from ...records.codec import Json
from .fields import (
    ANSWER_TIMEOUT,
    CALL_TIMEOUT,
    CWD,
    MAX_TOKENS,
    MODEL_URL,
    MODELS,
    SANDBOX,
    TEMPERATURE,
    TIMEOUT,
    Names,
    Part,
    SandboxSpec,
    SandboxWord,
    Seconds,
    SettingsFields,
    Url,
)

__all__ = [
    "CHECKS",
    "SEAL_KEYS",
    "AdaptSpec",
    "CheckSpec",
    "ConfidenceSpec",
    "ConfirmSpec",
    "DeclaredMetric",
    "EarlySpec",
    "JudgeSpec",
    "MetricScoreSpec",
    "MetricSpec",
    "PairJudgeSpec",
    "TestsSpec",
]

CHECKS = (
    "command", "schema_", "python", "matches", "not_matches", "contains",
    "max_words", "min_words", "max_chars", "min_chars", "max_seconds", "max_usd",
)  # fmt: skip


class CheckSpec(Part):
    """A deterministic check of an output; all of its conditions must hold."""

    name: str | None = Field(None, description="The name of the check in feedback.")
    command: list[str] | str | None = Field(
        None, description="Passes if it exits with 0. It receives the output on standard input."
    )
    score: str | None = Field(
        None,
        description="A regular expression for a score in the output of the command, also of one that fails. Default: 1 if it "
        "passes, else 0.",
    )
    env: dict[str, str] = Field({}, description="Environment variables of the command.")
    cwd: str | None = Field(None, description=CWD)
    timeout: Seconds | None = Field(None, description=TIMEOUT)
    sandbox: SandboxWord | SandboxSpec | None = Field(None, description=SANDBOX)
    schema_: dict[str, Json] | None = Field(
        None, alias="schema", description="A JSON Schema that the output must meet."
    )
    python: str | None = Field(
        None, description="`package.module:function` of the output: True or False, or more."
    )
    matches: str | None = Field(
        None, description="A regular expression that the output must match."
    )
    not_matches: str | None = Field(
        None, description="A regular expression that the output must not match."
    )
    contains: str | None = Field(None, description="Text that the output must contain.")
    max_words: int | None = Field(None, ge=0, description="Maximum number of words.")
    min_words: int | None = Field(None, ge=0, description="Minimum number of words.")
    max_chars: int | None = Field(None, ge=0, description="Maximum number of characters.")
    min_chars: int | None = Field(None, ge=0, description="Minimum number of characters.")
    max_seconds: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Of an evaluation on cases: the most seconds that a task may take.",
    )
    max_usd: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Of an evaluation on cases: the most US dollars that a task may cost.",
    )
    weight: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="The weight of the check in the score of a checklist.",
    )

    @model_validator(mode="after")
    def _something(self) -> CheckSpec:
        if not self.tests:
            kinds = ", ".join(kind.rstrip("_") for kind in CHECKS)
            raise PydanticCustomError("check", "needs one of {kinds}", {"kinds": kinds})
        return self

    @property
    def tests(self) -> list[str]:
        """The names of its checks."""
        return [name for name in CHECKS if getattr(self, name) is not None]


class TestsSpec(Part):
    """A test command whose report names the tests that fail."""

    __test__ = False  # pytest would collect a class of this name

    command: list[str] | str = Field(description="The test command: words, or a constant script.")
    report: str = Field(
        "auto",
        description="`auto` asks pytest, node, go or gotestsum for a report, `none` uses the exit code, `stdout` is a report that "
        "the command prints; another text is a file, or a pattern of files, that it writes.",
    )
    name: str = Field("tests", description="The name of the criterion.")
    env: dict[str, str] = Field({}, description="Environment variables of the command.")
    pass_env: Names = Field(
        [], description="Variables of the environment that the command receives."
    )
    cwd: str | None = Field(None, description=CWD)
    timeout: Seconds | None = Field(600, description=TIMEOUT)
    sandbox: SandboxWord | SandboxSpec | None = Field(None, description=SANDBOX)
    sealed: bool = Field(
        True,
        description="In a loop with a workspace, run the tests in a clean copy with the protected files of the base.",
    )
    protect: list[str] = Field(
        ["auto"],
        description="Patterns of files that an iteration must not change. `auto` stands for the tests, the settings of the "
        "test program, lock files and the scripts in the command.",
    )
    allow: list[str] = Field(
        [], description="Patterns of files that may change although `protect` covers them."
    )
    allow_new: bool = Field(
        True, description="Whether an iteration may add tests. They count only in the last run."
    )
    on_tamper: Literal["put_back", "reject", "stop"] = Field(
        "put_back",
        description="After a change of protected files: `put_back` restores them, `reject` also discards the iteration, "
        "`stop` also ends the loop.",
    )
    setup: list[str] | str = Field(
        "", description="A command that prepares the clean copy. Default: that of the workspace."
    )
    link: list[str] = Field(
        [],
        description="Folders of yours that the clean copy contains as links. Default: those of the workspace.",
    )
    held_out: str | None = Field(
        None,
        description="A folder of tests that the agent cannot read, from the folder of the document. They run at the end.",
    )
    held_out_every: bool = Field(
        False, description="Whether the held-out tests run in each iteration."
    )
    held_out_required: bool = Field(
        False, description="Whether an iteration passes only if the held-out tests pass."
    )


class JudgeModel(SettingsFields):
    """The model of a judge, the limits of its calls, and the goal in its prompt."""

    goal: str | None = Field(
        None, description="The goal of the work. Default: the input of the loop."
    )
    model: str | None = Field(None, description="The model, as `provider:model`.")
    models: list[str] | None = Field(None, description=MODELS)
    model_url: Url | None = Field(None, description=MODEL_URL)
    api_key_env: str | None = Field(
        None, description="The environment variable with the key for `model_url`."
    )
    temperature: float | None = Field(
        None, ge=0, le=2, allow_inf_nan=False, description=TEMPERATURE
    )
    max_tokens: int | None = Field(None, ge=1, description=MAX_TOKENS)
    call_timeout: Seconds | None = Field(None, description=CALL_TIMEOUT)
    answer_timeout: Seconds | None = Field(None, description=ANSWER_TIMEOUT)


class JudgeSpec(JudgeModel):
    """A model that judges an output."""

    criterion: str | None = Field(None, description="A sentence that must be true, a template.")
    criteria: list[str] | dict[str, str] | None = Field(
        None, description="Sentences that are judged one by one."
    )
    preset: str | None = Field(None, description="A scoring preset, as `quality/moderate`.")
    weights: dict[str, float] | None = Field(
        None,
        description="Weights by criterion. Default: those of the preset, or 1.",
    )
    max_votes: int | None = Field(
        None, ge=1, le=15, description="The maximum of votes. Default: the larger lead."
    )
    accept_lead: int = Field(1, ge=1, le=15, description="Lead in votes that accepts.")
    reject_lead: int = Field(1, ge=1, le=15, description="Lead in votes that rejects.")
    measured: str | None = Field(
        None,
        description="The report of `loopwright measure judge` on this judge. It decides the leads.",
    )
    alpha: float | None = Field(
        None,
        gt=0,
        lt=1,
        allow_inf_nan=False,
        description="With `measured`: the share of bad outputs that may pass. Default: 0.05.",
    )
    accept_unattainable: bool = Field(
        False,
        description="With `measured`: whether a judge that cannot keep `alpha` is used, with a warning on every result.",
    )
    confirm: bool = Field(False, description="Whether a second verdict is needed to accept.")
    impossible: bool = Field(
        False, description="Whether the judge may answer that the criterion can never be met."
    )
    rejudge: int = Field(
        0, ge=0, le=9, description="New votes on the winner for the reported score."
    )
    self_test: bool = Field(
        False,
        description="Whether the judge is tested on bad outputs first, with a warning if it accepts one.",
    )
    of: Literal["output", "changes"] = Field(
        "output",
        description="`changes`: the judge sees the changes of the files of the workspace, the output of earlier checks and the "
        "last message, in place of the output.",
    )
    style: Literal["structured", "yes_no"] = Field("structured", description="Form of the answer.")
    tools: Names | None = Field(
        None,
        description="The tools that the judge can call before it answers: tools, servers, or `server.tool`.",
    )
    max_tool_rounds: int | None = Field(
        None, ge=1, le=1000, description="The maximum of replies with tool calls. Default: 8."
    )
    max_tool_calls_per_reply: int | None = Field(
        None, ge=1, le=1000, description="The maximum of tool calls in one reply. Default: 128."
    )


class PairJudgeSpec(JudgeModel):
    """A model that compares two outputs, in both orders."""

    criterion: str = Field(
        min_length=1, description="What decides between two outputs, a template."
    )
    measured: str | None = Field(
        None,
        description="The report of `loopwright measure judge --pairs` on this judge, which must be above the accuracy of a coin.",
    )


class AdaptSpec(Part):
    """How the next input is created: exactly one of these."""

    python: str | None = Field(None, description="`package.module:function` of the last iteration.")
    rotate: list[Json] | None = Field(
        None, min_length=1, description="Strategies that are tried in order."
    )
    set: Json = Field(None, description="The next input, with templates.")
    merge: dict[str, Json] | None = Field(
        None, description="Fields that replace those of the first input."
    )

    @model_validator(mode="after")
    def _one(self) -> AdaptSpec:
        if len(self.model_fields_set) != 1:
            raise PydanticCustomError(
                "adapt", "needs exactly one of python, rotate, set, merge", {}
            )
        return self


class ConfidenceSpec(SettingsFields):
    """A model that rates an output by weighted criteria. The output passes if its score reaches a threshold."""

    criteria: list[str] = Field(
        default_factory=list,
        description="Sentences, each rated from 0 to 1. Default: the list in the goal, otherwise criteria of a model.",
    )
    goal: str | None = Field(
        None, description="The goal of the work. Default: the input of the loop."
    )
    weights: dict[str, float] | None = Field(None, description="Weights by criterion. Default: 1.")
    threshold: float = Field(
        0.85, ge=0, le=1, allow_inf_nan=False, description="Score from which the output passes."
    )
    strict: bool = Field(
        False, description="Whether every criterion must reach the threshold, not only the total."
    )
    model: str | None = Field(None, description="`provider:model`.")
    models: list[str] | None = Field(None, description=MODELS)
    model_url: Url | None = Field(None, description=MODEL_URL)
    api_key_env: str | None = Field(
        None, description="The environment variable with the key for `model_url`."
    )
    temperature: float = Field(0.2, ge=0, le=2, allow_inf_nan=False, description=TEMPERATURE)
    max_tokens: int | None = Field(None, ge=1, description="Default: 1024.")
    call_timeout: Seconds | None = Field(None, description=CALL_TIMEOUT)
    answer_timeout: Seconds | None = Field(None, description=ANSWER_TIMEOUT)


Take = Literal["median", "mean", "min", "max"]
SEAL_KEYS = ("protect", "allow", "on_tamper", "setup", "link")
TAKE = "The value of several measurements."


class EarlySpec(Part):
    """When the command of a metric ends early: its value at a step is worse than the median of earlier iterations."""

    pattern: str = Field(
        min_length=1,
        description="A regular expression with two groups, the step and the value, in each line that the command prints.",
    )
    from_: float = Field(
        0,
        alias="from",
        ge=0,
        allow_inf_nan=False,
        description="The first step at which it may end.",
    )
    earlier: int = Field(
        3,
        ge=1,
        le=1000,
        description="How many earlier iterations need a value at or before this step.",
    )


class ConfirmSpec(Part):
    """How an iteration whose objective is better is confirmed by new measurements before it is accepted."""

    alpha: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="The probability that a complete run accepts any iteration that is not better.",
    )
    stages: list[Annotated[int, Field(ge=1, le=1000)]] = Field(
        [],
        description="The numbers of new measurements, of the iteration and of the last accepted one each, after which the "
        "test is made. Default: 3, 6 and 12; 1, 2 and 3 of a data set.",
    )
    baseline: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="How often the first of these is measured. Default: 5; 1 of a data set.",
    )


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
    early: EarlySpec | None = Field(
        None,
        description="When the command ends early, because what it prints on the way is worse than in earlier iterations. "
        "Default: never.",
    )
    # Of documents that are recorded with a run; others have them in the metrics of the loop.
    unit: SkipJsonSchema[str] = ""
    repeats: SkipJsonSchema[int] = Field(1, ge=1, le=1000)
    take: SkipJsonSchema[Take] = "median"
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
