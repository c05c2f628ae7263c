"""The types of fields in documents, and models that several parts share: settings, commands, tools and servers.

A model refuses unknown keys. Types of fields are names, durations and addresses.
"""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ...records.codec import Json
from ...records.display import seconds_of
from ..yaml.bounds import shorten

__all__ = [
    "ANSWER_TIMEOUT",
    "CALL_TIMEOUT",
    "CWD",
    "MAX_RETRIES",
    "MAX_TOKENS",
    "MODELS",
    "MODEL_URL",
    "ON_FAILURE",
    "RETRY_DELAY",
    "SETTINGS",
    "TEMPERATURE",
    "TIMEOUT",
    "Accepted",
    "CommandFields",
    "Identifier",
    "Names",
    "Part",
    "Pause",
    "SandboxSpec",
    "SandboxWord",
    "Seconds",
    "ServerSpec",
    "SettingsFields",
    "StrictModel",
    "ToolSpec",
    "Url",
]

# Descriptions of keys that several parts have.
ON_FAILURE = "What follows an error: halt, continue, or retry."
MAX_RETRIES = "Retries after the first attempt, with `on_failure: retry`."
RETRY_DELAY = "Seconds. Before retry k + 1, the wait is random between 0 and `retry_delay` · 2^k."
CWD = "Working folder, inside the project."
TIMEOUT = "Time limit."
MODELS = "Models that are tried in order if one is not available."
MODEL_URL = "Address of an OpenAI-compatible server."
TEMPERATURE = "Sampling temperature."
MAX_TOKENS = "Maximum number of tokens in one reply."
CALL_TIMEOUT = "Time limit for one model call. A call that exceeds it is retried."
ANSWER_TIMEOUT = "Time limit for one answer, with all attempts and the waits between them."


def duration(value: Json) -> Json:
    """Return seconds of a number, or of text such as `500ms`, `30s`, `5m`, `1h30m`."""
    if isinstance(value, str):
        try:
            return seconds_of(value)
        except ValueError:
            raise PydanticCustomError(
                "duration", "{value} is not a duration; write seconds, or text like 30s or 5m",
                {"value": repr(shorten(value))},
            ) from None  # fmt: skip
    return value


def address(value: str) -> str:
    """Return the address of a server. An empty text means that there is none."""
    try:
        # `port` raises ValueError too, for one that is not a number up to 65535.
        parts = urlsplit(value.strip())
        result = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        result = False
    if value and not result:
        raise PydanticCustomError(
            "address", "{value} is not an http or https address; write one such as http://localhost:1234/v1",
            {"value": repr(shorten(value))},
        )  # fmt: skip
    return value


def one_or_more(value: Json) -> Json:
    """Return a single name as a list of one."""
    return [value] if isinstance(value, str) else value


def _or_text(**number: Json) -> WithJsonSchema:
    """Return the schema of a duration: seconds, or text with units."""
    pattern = r"^\s*(\d+(\.\d+)?\s*(ms|s|m|h|d)\s*)+$"
    return WithJsonSchema(
        {"anyOf": [{"type": "number", **number}, {"type": "string", "pattern": pattern}]}
    )


Seconds = Annotated[
    float, BeforeValidator(duration), Field(gt=0, allow_inf_nan=False), _or_text(exclusiveMinimum=0)
]
Pause = Annotated[
    float, BeforeValidator(duration), Field(ge=0, allow_inf_nan=False), _or_text(minimum=0)
]
Url = Annotated[str, AfterValidator(address)]
Names = Annotated[
    list[str],
    BeforeValidator(one_or_more),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
]
Accepted = Annotated[
    list[Literal["failed", "exhausted", "impossible"]],
    BeforeValidator(one_or_more),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"enum": ["failed", "exhausted", "impossible"]}},
                {"enum": ["failed", "exhausted", "impossible"]},
            ]
        }
    ),
]
NAME_PATTERN = r"[\p{L}_][\p{L}\p{M}\p{N}_. -]{0,63}"
# Letters of any script. The JSON Schema uses a range, because the regular expressions of editors have no \p{L}.
Identifier = Annotated[
    str,
    Field(pattern=f"^{NAME_PATTERN}$"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^[A-Za-z_\u00aa-\uffff][A-Za-z0-9_. \u00aa-\uffff-]{0,63}$",
        }
    ),
]


class StrictModel(BaseModel):
    """The base of all models: unknown keys are refused, and no value is converted."""

    # `strict`, because a conversion would change what the author wrote: "yes" is not true, and 3.5 is not 3.
    # `frozen`, because one document may be compiled for several callers.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Part(StrictModel):
    """A part of other models."""

    # Built once, together with the model that contains it, which keeps the import fast.
    model_config = ConfigDict(defer_build=True)


class CacheSpec(Part):
    """Which replies of model calls are kept for equal requests, and for how long."""

    where: Literal["run", "store", "off"] = Field(
        "store", description="The runs that share replies: one, all of the journal, or none."
    )
    ttl: Seconds | None = Field(
        None, description="The age after which a reply is not used. Default: none."
    )
    sampling: bool = Field(
        False,
        description="Whether calls with a temperature above 0 and without a seed keep and use replies.",
    )
    scope: dict[str, Json] = Field(
        {}, description="Names and values that a call must share with the kept one."
    )


class SettingsFields(Part):
    """Further settings of model calls. A setting that an endpoint does not support is left out with a warning."""

    on_cutoff: Literal["fail", "retry", "accept"] | None = Field(
        None,
        description="The handling of a reply that is cut off at max_tokens: fail (default if max_tokens is set), "
        "retry with a larger limit (default otherwise), or accept the cut text.",
    )
    top_p: float | None = Field(
        None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Nucleus sampling: the share of probability to sample from.",
    )
    seed: int | None = Field(None, description="Seed for sampling, if the provider supports it.")
    stop: str | list[str] | None = Field(None, description="Texts that end a reply.")
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = Field(
        None, description="How much the model reasons before it answers."
    )
    frequency_penalty: float | None = Field(
        None,
        ge=-2,
        le=2,
        allow_inf_nan=False,
        description="Penalty for tokens that are frequent in the reply.",
    )
    presence_penalty: float | None = Field(
        None,
        ge=-2,
        le=2,
        allow_inf_nan=False,
        description="Penalty for tokens that are already in the reply.",
    )
    extra_body: dict[str, Json] | None = Field(
        None, description="Additional fields of the request."
    )
    extra_headers: dict[str, str] | None = Field(
        None, description="Headers of the request. Keys belong in api_key_env."
    )
    cache: Literal["run", "store", "off"] | CacheSpec | None = Field(
        None,
        description="Whether replies are kept for equal requests: of the same `run`, of all runs in the `store` of the "
        "journal, or not (`off`, the default).",
    )


SETTINGS = tuple(SettingsFields.model_fields)

SandboxWord = Literal["auto", "bubblewrap", "own", "none"]
SANDBOX = (
    "The isolation: `auto` uses bubblewrap where it works, else the program's own sandbox, else none with a warning; "
    "`bubblewrap` and `own` require one; or an object with options. Default: none."
)


class SandboxSpec(Part):
    """The isolation of a command."""

    mode: SandboxWord = Field("auto", description="`auto`, `bubblewrap`, `own` or `none`.")
    network: bool | None = Field(
        None, description="Whether the network can be used. Default: false for tests, else true."
    )
    wrap: list[str] = Field(
        [],
        description="Words before the command instead, such as those of a container; `{folder}` is the working folder.",
    )
    hide: list[str] = Field(
        [],
        description="Files and folders that the command cannot read, relative to the document.",
    )
    show: list[str] = Field(
        [],
        description="Files and folders that the command can read although the sandbox hides what is around them; "
        "relative to the document, `~` is the home folder.",
    )


class CommandFields(Part):
    """The environment, input and limits of a command."""

    env: dict[str, str] = Field(
        {}, description="Environment variables of the command, with templates."
    )
    pass_env: Names = Field(
        [], description="Variables of the environment that the command receives, for keys."
    )
    stdin: str | None = Field(
        None, description="Standard input of the command, a template; default: the input."
    )
    cwd: str | None = Field(None, description="Folder of the command, inside the project.")
    usage: str | dict[str, str] | None = Field(
        None,
        description="Where the command reports its cost: `file` ($LOOPWRIGHT_USAGE), or a path into its JSON output.",
    )
    allow_exit: list[int] = Field([0], description="Exit codes that count as success.")
    max_output: int | None = Field(
        None,
        ge=1,
        description="The maximum of bytes of each stream, beginning and end. Default: 8 MiB; JSON is never cut.",
    )
    sandbox: SandboxWord | SandboxSpec | None = Field(None, description=SANDBOX)


class ToolSpec(Part):
    """A tool: a function of Python, or commands from an allow-list."""

    python: str | None = Field(
        None,
        description="`package.module:function`; its parameters' types are the schema, its docstring the description.",
    )
    commands: list[list[str]] | None = Field(
        None,
        min_length=1,
        description="The commands that may be called, each a list of words. `{name}` stands for one word, `{name...}` for any number of words. They are not passed to a shell.",
    )
    description: str | None = Field(None, description="The description of the tool for the model.")
    env: dict[str, str] = Field(
        default_factory=dict, description="Environment variables of commands."
    )
    pass_env: Names = Field(
        default_factory=list,
        description="Variables of the environment that commands receive, for keys.",
    )
    cwd: str | None = Field(None, description="Folder of commands, inside the project.")
    idempotent: bool = Field(
        False, description="Whether it can be called again if the process ended during the call."
    )
    approve: bool = Field(False, description="Whether a person must approve each call.")
    timeout: Seconds = Field(60.0, description="The time limit of one call.")

    @model_validator(mode="after")
    def _one_kind(self) -> ToolSpec:
        if (self.python is None) == (self.commands is None):
            raise PydanticCustomError("action", "needs exactly one of python and commands", {})
        if self.python is not None:
            for name in ("env", "pass_env", "cwd"):
                if name in self.model_fields_set:
                    raise PydanticCustomError(
                        "misplaced", "{name} belongs to commands, not to python", {"name": name}
                    )
        return self


class ServerSpec(Part):
    """An MCP server, by its command or its address; it is started when a step first needs it."""

    command: list[str] | None = Field(
        None,
        min_length=1,
        description="The program and its arguments. It is used over standard input and output.",
    )
    url: Url | None = Field(None, description="Its address, for streamable HTTP.")
    env: dict[str, str] = Field(
        default_factory=dict,
        description="Variables of its environment, in addition to HOME and PATH.",
    )
    pass_env: Names = Field(
        default_factory=list,
        description="Variables of the environment that the server receives, for keys.",
    )
    cwd: str | None = Field(
        None, description="Its folder, inside the project; default: the document's."
    )
    headers: dict[str, str] = Field(
        default_factory=dict, description="Sent with every request to `url`."
    )
    token_env: str | None = Field(
        None, description="The environment variable with the bearer token for `url`."
    )
    only: Names = Field(
        default_factory=list, description="The tools that can be used. Default: all."
    )
    idempotent: bool | Names = Field(
        False, description="Whether calls can be repeated after a crash, for all tools or by name."
    )
    approve: bool | Names = Field(
        False, description="Whether a person must approve each call, for all tools or by name."
    )
    timeout: Seconds = Field(60.0, description="The time limit of one call.")
    start_timeout: Seconds = Field(
        30.0, description="The time limit of the handshake, and of the list of tools."
    )

    @model_validator(mode="after")
    def _one_way(self) -> ServerSpec:
        if (self.command is None) == (self.url is None):
            raise PydanticCustomError("action", "needs exactly one of command and url", {})
        for name in ("env", "pass_env", "cwd") if self.url else ("headers", "token_env"):
            if name in self.model_fields_set:
                owner = "command" if self.url else "url"
                raise PydanticCustomError(
                    "misplaced", "{name} belongs to {owner}", {"name": name, "owner": owner}
                )
        return self
