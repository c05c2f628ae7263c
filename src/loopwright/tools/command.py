"""Commands of the machine as a tool: lists of words from an allow-list.

Rules:

1. There is no shell: the words are handed to the program as they are, and nothing is parsed again.
2. What is allowed is a whole command, with free places where the list says so (`allowing`): the
   beginning of a command is no permission for what may follow.
3. How the command ended is the output, also when it failed: the exit code and both streams.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..engine.context import Context
from ..errors import ConfigurationError, StepError
from ..records.codec import Json
from .allowed_commands import AllowedCommand
from .base import Tool
from .process import LIMIT, names_of, passed, run_command
from .usage_report import reported

__all__ = ["CommandTool", "command_tool"]


class CommandTool(Tool):
    """Commands from an allow-list; see `command_tool`."""

    def __init__(
        self,
        name: str,
        allow: Sequence[Sequence[str]],
        *,
        description: str = "",
        env: Mapping[str, str] | None = None,
        pass_env: Sequence[str] = (),
        cwd: str | Path | None = None,
        idempotent: bool = False,
        approve: bool = False,
        timeout: float | None = 60.0,
        limit: int = LIMIT,
    ) -> None:
        if isinstance(allow, str) or not allow or any(isinstance(words, str) for words in allow):
            raise ConfigurationError(
                f"tool {name}: commands: give the commands that are allowed, each a list of words"
            )
        try:
            self.allow = tuple(AllowedCommand(words) for words in allow)
        except ConfigurationError as error:
            raise ConfigurationError(f"tool {name}: commands: {error}") from None
        self.env, self.cwd = dict(env or {}), cwd
        self.pass_env = names_of(f"tool {name}: pass_env", pass_env)
        said = (
            f"{description or 'Run a command.'} The command is one of: {self._listed()}; {{name}} is "
            "one word, {name...} any number of words"
        )
        schema: dict[str, Json] = {
            "type": "object",
            "properties": {
                "argv": {
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 1,
                    "description": "The program and its arguments, one word each; no shell reads them.",
                },
                "stdin": {"type": "string", "description": "What it reads as standard input."},
            },
            "required": ["argv"],
            "additionalProperties": False,
        }
        super().__init__(
            name, description=said, schema=schema, idempotent=idempotent, approve=approve,
            timeout=timeout, limit=limit,
        )  # fmt: skip

    def meaning(self) -> str:
        words = [one.words for one in self.allow]
        return repr((words, sorted(self.env), self.pass_env))

    def _listed(self) -> str:
        return "; ".join(str(one) for one in self.allow)

    def passing(self, names: Sequence[str]) -> CommandTool:
        """Return the same tool with these variables of ours in its environment too.

        Raises:
            ConfigurationError: for what cannot be names.
        """
        made = copy.copy(self)
        made.pass_env = (*self.pass_env, *names_of(f"tool {self.name}: pass_env", names))
        made.__dict__.pop("fingerprint", None)
        return made

    def problem_with(self, arguments: Json) -> str:
        if problem := super().problem_with(arguments):
            return problem
        argv = arguments["argv"]
        if any(one.allows(argv) for one in self.allow):
            return ""
        return f"{' '.join(argv)[:200]!r} is not allowed; only these are: {self._listed()}"

    async def invoke(self, arguments: dict[str, Json], ctx: Context) -> Any:
        with reported(ctx, None) as report:
            result = await run_command(
                arguments["argv"],
                stdin=arguments.get("stdin"),
                env={**passed(self.pass_env), **self.env, **report.env},
                cwd=self.cwd,
                limit=self.limit,
                token=ctx.run.token if ctx is not None else "",
            )
        if result.truncated:
            raise StepError(
                f"its output passed {self.limit} bytes and it was ended; ask for less of it",
                kind="output_too_large",
                retryable=False,
            )
        return {
            "exit_code": result.exit_code, "stdout": result.stdout, "stderr": result.stderr,
        }  # fmt: skip


def command_tool(
    name: str,
    allow: Sequence[Sequence[str]],
    *,
    description: str = "",
    env: Mapping[str, str] | None = None,
    pass_env: Sequence[str] = (),
    cwd: str | Path | None = None,
    idempotent: bool = False,
    approve: bool = False,
    timeout: float | None = 60.0,
    limit: int = LIMIT,
) -> CommandTool:
    """Make commands a tool that takes `{"argv": […], "stdin"?: …}`.

    `allow` lists the commands that may be called, each a list of words in which `{name}` is free: one
    word; `{name...}` any number of words. A free word may not begin with a dash, unless it is
    `{name:any}`. `["git", "status"]` allows `git status` and nothing else. The environment is HOME,
    PATH and the like, `env`, and the variables of ours that `pass_env` names. The output is
    `{"exit_code", "stdout", "stderr"}`, whatever the exit code. See Tool for the rest.

    Raises:
        ConfigurationError: if nothing is allowed.

    >>> command_tool("sh", [["echo", "{words...}"]]).problem_with({"argv": ["rm", "-rf", "/"]})
    "'rm -rf /' is not allowed; only these are: echo {words...}"
    """
    return CommandTool(
        name, allow, description=description, env=env, pass_env=pass_env, cwd=cwd,
        idempotent=idempotent, approve=approve, timeout=timeout, limit=limit,
    )  # fmt: skip
