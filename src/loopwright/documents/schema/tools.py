"""The native document: commands, and the tools and servers that steps call."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from .fields import Names, Part, Seconds, Url

__all__ = ["CommandFields", "SandboxSpec", "SandboxWord", "ServerSpec", "ToolSpec"]

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
