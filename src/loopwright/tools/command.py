"""Commands of the machine as a tool: a list of words that begins as one of an allow-list does.

Rules:

1. There is no shell: the words are handed to the program as they are, and nothing is parsed again.
2. What is allowed is the beginning of a command; with `exact` nothing may follow it.
3. How the command ended is the output, also when it failed: the exit code and both streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..codec import Json
from ..context import Context
from ..errors import ConfigurationError, StepError
from .base import Tool
from .process import LIMIT, run_command

__all__ = ["CommandTool", "command_tool"]


class CommandTool(Tool):
    """Commands from an allow-list; see `command_tool`."""

    def __init__(
        self,
        name: str,
        allow: Sequence[Sequence[str]],
        *,
        exact: bool = False,
        description: str = "",
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        idempotent: bool = False,
        approve: bool = False,
        timeout: float | None = 60.0,
        limit: int = LIMIT,
    ) -> None:
        self.allow = tuple(tuple(words) for words in allow if not isinstance(words, str))
        if not self.allow or len(self.allow) != len(allow) or not all(self.allow):
            raise ConfigurationError(
                f"tool {name}: commands: give the commands that are allowed, each a list of words"
            )
        self.exact, self.env, self.cwd = exact, dict(env or {}), cwd
        listed = "; ".join(" ".join(words) for words in self.allow)
        begin = "exactly one of" if exact else "beginning with one of"
        said = f"{description or 'Run a command.'} The command is {begin}: {listed}"
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
        return repr((self.allow, self.exact, sorted(self.env)))

    def problem_with(self, arguments: Json) -> str:
        if problem := super().problem_with(arguments):
            return problem
        argv = tuple(arguments["argv"])
        if any(self._allows(argv, words) for words in self.allow):
            return ""
        allowed = "; ".join(" ".join(words) for words in self.allow)
        what = "only these are" if self.exact else "a command begins with one of"
        return f"{' '.join(argv)[:200]!r} is not allowed; {what}: {allowed}"

    def _allows(self, argv: tuple[str, ...], words: tuple[str, ...]) -> bool:
        return argv == words if self.exact else argv[: len(words)] == words

    async def invoke(self, arguments: dict[str, Json], ctx: Context) -> Any:
        result = await run_command(
            arguments["argv"],
            stdin=arguments.get("stdin"),
            env=self.env,
            cwd=self.cwd,
            limit=self.limit,
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
    exact: bool = False,
    description: str = "",
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    idempotent: bool = False,
    approve: bool = False,
    timeout: float | None = 60.0,
    limit: int = LIMIT,
) -> CommandTool:
    """Make commands a tool that takes `{"argv": […], "stdin"?: …}`.

    `allow` lists the beginnings of commands that may be called: `["git", "status"]` allows
    `git status --short` too, unless `exact`. What follows is the model's: allow only programs whose
    every option is harmless, or give `approve`. The environment is HOME, PATH and the like, and
    `env`. Its output is `{"exit_code", "stdout", "stderr"}`, whatever the exit code. See Tool for the
    rest.

    Raises:
        ConfigurationError: if nothing is allowed.

    >>> command_tool("sh", [["echo"]]).problem_with({"argv": ["rm", "-rf", "/"]})
    "'rm -rf /' is not allowed; a command begins with one of: echo"
    """
    return CommandTool(
        name, allow, exact=exact, description=description, env=env, cwd=cwd,
        idempotent=idempotent, approve=approve, timeout=timeout, limit=limit,
    )  # fmt: skip
