"""The native document: models, prompts, agents, prices, budgets, and coding agents."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from ...records.codec import Json
from .extensions import PresetSpec
from .fields import (
    ANSWER_TIMEOUT,
    CALL_TIMEOUT,
    CWD,
    MAX_RETRIES,
    MAX_TOKENS,
    MODEL_URL,
    MODELS,
    ON_FAILURE,
    SANDBOX,
    TEMPERATURE,
    Names,
    Part,
    SandboxSpec,
    SandboxWord,
    Seconds,
    SettingsFields,
    Url,
)

__all__ = [
    "AgentWaitsSpec",
    "BudgetSpec",
    "CodingAgentSpec",
    "LimitSpec",
    "ModelFields",
    "PhasedFields",
    "PriceSpec",
    "PromptFields",
    "ReasoningSpec",
]


class ModelFields(SettingsFields):
    """The models of prompts and judges without a model, and the settings of their calls."""

    model: str | None = Field(
        None, description="`provider:model` of prompts and judges without a model."
    )
    models: list[str] | None = Field(None, min_length=1, description=MODELS)
    model_url: Url | None = Field(None, description=MODEL_URL)
    api_key_env: str | None = Field(
        None, description="The environment variable with the key for `model_url`."
    )
    temperature: float | None = Field(
        None, ge=0, le=2, allow_inf_nan=False, description=TEMPERATURE
    )
    max_tokens: int | None = Field(None, ge=1, description=MAX_TOKENS)
    call_timeout: Seconds | None = Field(None, description="The time limit of one model call.")
    answer_timeout: Seconds | None = Field(
        None, description="The time limit of an answer with all of its model calls."
    )


class ConversationSpec(Part):
    """A conversation for all iterations of a loop, within limits on the earlier messages."""

    carry: bool = Field(
        True, description="Whether the conversation continues from iteration to iteration."
    )
    max_messages: int | None = Field(
        None, ge=2, description="The maximum of earlier messages. Default: no limit."
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="The maximum of tokens of earlier messages, where 4 characters count as one. Default: no limit.",
    )
    summary: bool = Field(
        False,
        description="Whether the model summarises the messages that are left out. It needs a limit.",
    )


class PromptFields(Part):
    """The model settings of a prompt, and how its reply is read."""

    model: str | None = Field(None, description="`provider:model` of the prompt.")
    models: list[str] | None = Field(
        None, description="Models that are tried in order if one is not available.", min_length=1
    )
    system: str | None = Field(None, description="System prompt, a template.")
    temperature: float | None = Field(
        None, ge=0, le=2, allow_inf_nan=False, description=TEMPERATURE
    )
    max_tokens: int | None = Field(None, ge=1, description=MAX_TOKENS)
    model_url: Url | None = Field(None, description="Address of an OpenAI-compatible server.")
    api_key_env: str | None = Field(
        None, description="The environment variable with the key for `model_url`."
    )
    call_timeout: Seconds | None = Field(None, description="The time limit of one model call.")
    answer_timeout: Seconds | None = Field(
        None, description="The time limit of an answer with all of its model calls."
    )
    answer: Literal["text", "json", "binary", "classification", "criteria"] | None = Field(
        None,
        description="How the reply of a prompt is read: as text; `json`: an object with `response`, else text; "
        "`binary`: true or false; `classification`: one of `options`; `criteria`: those of `preset`, each true or false.",
    )
    files: list[str] | None = Field(
        None,
        min_length=1,
        description="Images, audio, PDF and text files for the prompt: paths in the document's folder, addresses "
        "of images, or templates of these.",
    )
    options: list[str] | None = Field(
        None, min_length=1, description="The answers of `answer: classification`."
    )
    preset: PresetSpec | None = Field(None, description="The criteria of `answer: criteria`.")
    tools: Names | None = Field(
        None, description="The tools that the model can call: tools, servers, or `server.tool`."
    )
    max_tool_rounds: int | None = Field(
        None, ge=1, le=1000, description="The maximum of replies with tool calls. Default: 8."
    )
    max_tool_calls_per_reply: int | None = Field(
        None, ge=1, le=1000, description="The maximum of tool calls in one reply. Default: 128."
    )
    conversation: Literal["fresh", "carried"] | ConversationSpec | None = Field(
        None,
        description="Whether a prompt in a loop continues the conversation of the earlier iterations, and its "
        "limits. Default: fresh.",
    )


class PriceSpec(Part):
    """The price of a model in US dollars per million tokens."""

    input: float = Field(
        ge=0, allow_inf_nan=False, description="US dollars per million input tokens."
    )
    output: float = Field(
        ge=0, allow_inf_nan=False, description="US dollars per million output tokens."
    )


class BudgetSpec(Part):
    """The limits of what a run spends."""

    calls: int | None = Field(None, ge=1, description="Model calls.")
    tokens: int | None = Field(None, ge=1, description="Input and output tokens together.")
    usd: float | None = Field(None, gt=0, description="US dollars.")
    effects: int | None = Field(
        None,
        ge=1,
        description="Recorded effects: functions, commands, tool calls and model calls.",
    )


class LimitSpec(Part):
    """How many calls run at once, and how many start in a period."""

    cap: int | None = Field(None, ge=1, description="The maximum of calls at once.")
    rate: int | None = Field(None, ge=1, description="The maximum of calls that start in a period.")
    per: Seconds = Field(1.0, description="The period of `rate`.")

    @model_validator(mode="after")
    def _something(self) -> LimitSpec:
        if self.cap is None and self.rate is None:
            raise PydanticCustomError("limit", "needs cap, rate or both", {})
        return self


Presets = Literal["base", "qa_specialist", "coordinator", "financial_analyst", "risk_analyst"]
_LIMIT = "The maximum of iterations of this phase; 0 skips it. Default: that of the preset."


class PhasedFields(Part):
    """The settings of a phased agent."""

    preset: Presets = Field("base", description="The preset with the limits that are not set.")
    role: Presets | None = Field(None, description="The former name of `preset`.")
    task_complexity: Literal["low", "medium", "high"] | None = Field(
        None, description="Limits and duration that replace those of the preset."
    )
    max_iterations: int | None = Field(
        None,
        ge=1,
        description="The maximum of iterations of all phases. Default: their sum plus a tenth, at least 1.",
    )
    max_planning_iterations: int | None = Field(None, ge=0, le=1000, description=_LIMIT)
    max_execution_iterations: int | None = Field(None, ge=0, le=1000, description=_LIMIT)
    max_refinement_iterations: int | None = Field(None, ge=0, le=1000, description=_LIMIT)
    max_duration_seconds: Seconds | None = Field(
        None, description="The maximum of active time; then the current call is cancelled."
    )
    enable_dynamic_termination: bool = Field(
        False, description="Whether a confident answer ends the agent."
    )
    min_confidence_threshold: float = Field(
        0.8, ge=0, le=1, allow_inf_nan=False, description="Score from which an answer is confident."
    )
    reserve_refinement: int | bool = Field(
        False, description="Iterations that are reserved for refinement; true means 1."
    )
    token_budget: int | None = Field(None, ge=1, description="Tokens of all phases together.")
    token_split: list[float] = Field(
        default_factory=lambda: [0.1, 0.4, 0.5],
        min_length=3,
        max_length=3,
        description="The share of each phase.",
    )
    token_rollover: bool = Field(
        False, description="Whether a phase receives the tokens that the phase before did not use."
    )
    capabilities: Names = Field(
        default_factory=list,
        description="`package.module:name` of capability classes, or of functions that create them.",
    )
    on_failure: Literal["halt", "continue", "retry"] = Field("halt", description=ON_FAILURE)
    max_retries: int = Field(2, ge=0, le=100, description=MAX_RETRIES)


class ReasoningSpec(SettingsFields):
    """An agent that reasons over several calls in one conversation until it states its answer."""

    prompt: str | None = Field(None, description="The task, a template; default: the input.")
    role: str = Field("", description="The role of the agent: `You are ROLE.`")
    goal: str = Field("", description="Purpose of the work.")
    backstory: str = Field("", description="Background of the persona.")
    system: str | None = Field(None, description="Additional system prompt, a template.")
    model: str | None = Field(None, description="`provider:model`.")
    models: list[str] | None = Field(
        None, min_length=1, description="Models that are tried in order if one is not available."
    )
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
    max_iterations: int = Field(
        5, ge=1, le=1000, description="The maximum of iterations; 1 is one plain call."
    )
    mode: Literal["iterate", "single"] = Field(
        "iterate", description="`single`: one plain call, without instructions or marker."
    )
    notice_lead: int = Field(
        1, ge=1, description="The number of last iterations whose prompt says that the end is near."
    )
    max_prompt_chars: int = Field(
        10_000, ge=1, description="Maximum number of characters in the task."
    )
    tools: Names = Field(
        default_factory=list,
        description="The tools that the model can call: tools, servers, or `server.tool`.",
    )
    max_tool_rounds: int = Field(
        8, ge=1, le=1000, description="The maximum of replies with tool calls in one iteration."
    )
    max_tool_calls_per_reply: int = Field(
        128, ge=1, le=1000, description="The maximum of tool calls in one reply."
    )


class AgentWaitsSpec(Part):
    """How a coding agent may wait for something outside of the run."""

    most: int = Field(8, ge=1, description="The most waits of one answer.")
    longest: Seconds = Field(4 * 3600, description="The most time of one wait. Default: 4h.")
    commands: bool = Field(
        False, description="Whether it may wait for a command of its choice to exit with 0."
    )


class CodingAgentSpec(Part):
    """A task for a coding agent, which edits files."""

    cli: str = Field(
        description="claude, codex, gemini, qwen, opencode, aider, or a manifest such as `./agents/mine.yaml`."
    )
    prompt: str = Field(min_length=1, description="A template: the task.")
    model: str | None = Field(
        None,
        description="A model of the program. The model of the document does not apply: it is another program's.",
    )
    session: str = Field(
        "fresh",
        description="`fresh`; `loop` continues one conversation in a loop, `run` in the run; another name is shared by several steps.",
    )
    permissions: Literal["read", "edit", "full"] = Field(
        "edit", description="The actions that the program permits."
    )
    max_turns: int | None = Field(None, ge=1, description="Turns of one call. The work is kept.")
    max_usd: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="US dollars of one call. The work is kept."
    )
    timeout: Seconds | None = Field(None, description="Time limit of one call. Default: 30m.")
    idle_timeout: Seconds | None = Field(
        None, description="Time without output after which a call is ended. Default: 10m."
    )
    pass_env: Names | None = Field(
        None,
        description="Variables of the environment that it receives. Default: the keys that its manifest names.",
    )
    env: dict[str, str] = Field({}, description="Environment variables, with templates.")
    home: Literal["user", "run"] = Field(
        "user",
        description="`user`: its login and settings; `run`: an empty home folder of the run.",
    )
    args: list[str] = Field([], description="Constant words that follow the command.")
    output: Literal["text", "result"] | dict[Literal["schema"], dict[str, Json]] = Field(
        "text",
        description="`text`: the last message; `result`: an object with usage and files; `{schema: …}`: a JSON value.",
    )
    billing: Literal["metered", "subscription"] = Field(
        "metered", description="`subscription`: US dollars are not counted."
    )
    count_notional: bool = Field(
        False, description="Whether the US dollars of a subscription count."
    )
    price: PriceSpec | None = Field(
        None, description="Prices of its model, for a program that does not report US dollars."
    )
    stream: Literal["full", "tail", "off"] = Field(
        "tail", description="How much of its raw output is stored: `tail` is 1 MiB."
    )
    sandbox: SandboxWord | SandboxSpec | None = Field(None, description=SANDBOX)
    waits: bool | AgentWaitsSpec | None = Field(
        None,
        description="Lets it end its turn with a request to wait, and continues it with the result.",
    )
    workspace: Literal["here"] | None = Field(
        None, description="`here`: it works in the folder itself, without a workspace."
    )
    cwd: str | None = Field(None, description=CWD)
    idempotent: bool = Field(
        False,
        description="Whether it can run again if the process ended during a call, without a workspace.",
    )
