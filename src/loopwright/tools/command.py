"""Commands of the machine as a tool: lists of words from an allow-list.

Rules:

1. There is no shell. The program receives the words unchanged, and nothing parses them again.
2. The list allows complete command lines with placeholders. Allowing the beginning of a command does
   not allow any continuation.
3. `{name}` stands for one word, `{name...}` for any number of words, and `--since={name}` for a word
   with that beginning.
4. A word for a placeholder without a beginning must not start with a dash, because it would be an
   option. `{name:any}` and `{name...:any}` allow it.
5. The output says how the command ended, also when it failed: the exit code and both streams.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from ..engine.context import Context
from ..engine.run_state import Stub
from ..errors import ConfigurationError, StepError
from ..records.codec import Json
from .base import Tool, ToolOptions
from .process import inherited, run_command, variable_names
from .usage_report import report_usage

__all__ = ["CommandTool", "command_tool"]

_PLACEHOLDER = re.compile(r"(.*)\{[A-Za-z_]\w*(\.\.\.)?(:any)?\}", re.DOTALL)
_SCHEMA: Mapping[str, Json] = {
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


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of the list: its fixed beginning, and the placeholder that may follow."""

    fixed: str
    free: bool = False
    many: bool = False
    dashes: bool = False

    def fits(self, word: str) -> bool:
        if not self.free:
            return word == self.fixed
        if not word.startswith(self.fixed):
            return False
        # After a fixed beginning such as "--since=", a dash cannot begin an option.
        return bool(self.fixed) or self.dashes or not word.startswith("-")


class _AllowedCommand:
    """A command line with placeholders. See the rules of this module."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        if not self.words or not all(isinstance(w, str) for w in self.words) or not self.words[0]:
            raise ConfigurationError(f"{words!r} is not a command. Use a list of words.")
        parsed = [_parse(word) for word in self.words]
        # A model must not choose the program: one that runs others (`env`, `sh`) would allow everything.
        if parsed[0].free:
            raise ConfigurationError(f"{self}: the program cannot be a placeholder. Name it.")
        repeated = [i for i, word in enumerate(parsed) if word.many]
        # With two, a word could belong to either, and `allows` would have to try all splits.
        if len(repeated) > 1:
            raise ConfigurationError(
                f"{self}: two placeholders stand for any number of words. Keep one of them."
            )
        at = repeated[0] if repeated else len(parsed)
        self._head, self._tail = parsed[:at], parsed[at + 1 :]
        self._many = parsed[at] if repeated else None

    def __str__(self) -> str:
        return " ".join(self.words)

    def allows(self, argv: Sequence[str]) -> bool:
        minimum = len(self._head) + len(self._tail)
        if len(argv) < minimum or (len(argv) > minimum and self._many is None):
            return False
        end = len(argv) - len(self._tail)
        fixed = zip(
            [*self._head, *self._tail], [*argv[: len(self._head)], *argv[end:]], strict=True
        )
        return all(word.fits(arg) for word, arg in fixed) and all(
            self._many is not None and self._many.fits(arg) for arg in argv[len(self._head) : end]
        )


def _parse(word: str) -> _Word:
    match = _PLACEHOLDER.fullmatch(word)
    if match is None:
        return _Word(word)
    fixed, many, dashes = match.groups()
    if many and fixed:
        raise ConfigurationError(
            f"{word!r}: a placeholder for any number of words cannot follow other text."
        )
    return _Word(fixed, free=True, many=bool(many), dashes=bool(dashes))


class CommandTool(Tool):
    """Make a tool of commands. It takes `{"argv": [...], "stdin": "..."}`, the latter optional.

    `["git", "status"]` allows `git status` and nothing else. `{name}` in a list stands for one word,
    `{name...}` for any number of words. Such a word must not begin with a dash, unless the placeholder
    is `{name:any}`. The output is `{"exit_code", "stdout", "stderr"}`, whatever the exit code.

    Args:
        name: 1 to 64 letters, digits, - and _.
        allow: The allowed command lines, each a list of words.
        env: Environment variables besides HOME, PATH and the like.
        pass_env: Names of our variables, such as API keys, that are passed on.
        cwd: The working directory. Default: that of this process.
        **options: `description` (the purpose of the tool; the allowed commands are added), `idempotent`
            (whether a call may run twice after a crash; default: false), `approve` (whether a person
            must approve each call; default: false), `timeout` (seconds for one call, default 60; None:
            no limit except that of the loop), `limit` (bytes of output after which the command is
            ended; default 64 MiB).

    Raises:
        ConfigurationError: If no command is allowed, or a command line is invalid.

    Example:
        >>> git = command_tool("git", [["git", "log", "-n", "{count}", "{paths...}"]])
        >>> git.problem_with({"argv": ["git", "log", "-n", "3", "src"]})
        ''
        >>> git.problem_with({"argv": ["git", "push"]})
        "'git push' is not allowed; only these are: git log -n {count} {paths...}"
    """

    def __init__(
        self,
        name: str,
        allow: Sequence[Sequence[str]],
        *,
        env: Mapping[str, str] | None = None,
        pass_env: Sequence[str] = (),
        cwd: str | Path | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        if isinstance(allow, str) or not allow or any(isinstance(words, str) for words in allow):
            raise ConfigurationError(
                f"tool {name}: commands: list the allowed commands, each as a list of words."
            )
        try:
            self.allow = tuple(_AllowedCommand(words) for words in allow)
        except ConfigurationError as error:
            raise ConfigurationError(f"tool {name}: commands: {error}") from None
        self.env, self.cwd = dict(env or {}), cwd
        self.pass_env = variable_names(f"tool {name}: pass_env", pass_env)
        options["description"] = (
            f"{options.get('description') or 'Run a command.'} The command is one of: "
            f"{self._listed()}; {{name}} is one word, {{name...}} any number of words"
        )
        super().__init__(name, schema=_SCHEMA, **options)

    def meaning(self) -> str:
        # Names only: values of the environment may be secrets, and they differ between machines.
        return repr(([one.words for one in self.allow], sorted(self.env), self.pass_env))

    def _listed(self) -> str:
        return "; ".join(str(one) for one in self.allow)

    def passing(self, names: Sequence[str]) -> CommandTool:
        """Return the same tool with more of our environment variables passed on.

        Raises:
            ConfigurationError: For an invalid name.
        """
        tool = copy.copy(self)
        tool.pass_env = (*self.pass_env, *variable_names(f"tool {self.name}: pass_env", names))
        tool.__dict__.pop("fingerprint", None)
        return tool

    def problem_with(self, arguments: Json) -> str:
        if problem := super().problem_with(arguments):
            return problem
        argv = arguments["argv"]
        if any(one.allows(argv) for one in self.allow):
            return ""
        return f"{' '.join(argv)[:200]!r} is not allowed; only these are: {self._listed()}"

    def stub_output(self, stub: Stub) -> Json:
        """Return how the command ended. An object as output is the complete result."""
        if isinstance(stub.output, dict) and stub.exit is None:
            return stub.output
        return {"exit_code": stub.exit or 0, "stdout": stub.printed(), "stderr": ""}

    async def invoke(self, arguments: dict[str, Json], ctx: Context) -> Json:
        with report_usage(ctx, None) as report:
            result = await run_command(
                arguments["argv"],
                stdin=arguments.get("stdin"),
                env={**inherited(self.pass_env), **self.env, **report.env},
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


command_tool = CommandTool
