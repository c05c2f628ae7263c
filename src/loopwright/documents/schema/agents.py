"""The native document: coding agents, command-line programs that edit files."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ...records.codec import Json
from .fields import CWD, Names, Part, Seconds
from .models import PriceSpec
from .tools import SANDBOX, SandboxSpec, SandboxWord

__all__ = ["CodingAgentSpec"]


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
    workspace: Literal["here"] | None = Field(
        None, description="`here`: it works in the folder itself, without a workspace."
    )
    cwd: str | None = Field(None, description=CWD)
    idempotent: bool = Field(
        False,
        description="Whether it can run again if the process ended during a call, without a workspace.",
    )
