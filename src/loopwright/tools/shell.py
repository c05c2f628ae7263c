"""A command as a step. Its text is constant; values reach it through stdin, env or args only."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

from ..engine.context import Context
from ..engine.step import Leaf, as_step, digest_of
from ..errors import ConfigurationError, StepError, StepTimeout, nearest
from ..records import codec
from ..records.codec import Json
from .process import LIMIT, CommandResult, inherited, run_command, tail, variable_names
from .sandbox import Sandbox, SandboxMode
from .usage_report import FILE, VARIABLE, UsageSource, checked_usage, report_usage

__all__ = ["CommandOptions", "Output", "ShellStep", "Value", "shell"]

Output = Literal["text", "json", "result"]
Value = Json | Callable[[Json, Context], object]  # a constant, or computed from the step's input
_OUTPUTS = ("text", "json", "result")
MAX_OUTPUT = 8 * 1024 * 1024  # bytes of each stream in the output, except for JSON
ENDLESS = 1024 * 1024 * 1024  # bytes after which output counts as endless


class CommandOptions(TypedDict, total=False):
    """The options that `shell` shares with evaluators that run a command."""

    args: Sequence[Value]
    env: Mapping[str, Value] | None
    stdin: Value
    cwd: str | Path | None
    timeout: float | None
    sandbox: Sandbox | SandboxMode


class ShellStep(Leaf):
    """Make a step that runs a command: a list of words, or the text of a script for `/bin/sh -e`.

    The step's input is the command's standard input: text unchanged, other values as JSON. `args`, `env`
    and `stdin` take constants or functions of (input, context), so a value never becomes part of the
    program. A value may begin with a dash: write `grep -- "$1"` in a script. In a list of words such a
    value is refused unless "--" precedes it.

    Args:
        command: The command. It is constant.
        name: The name of the step. Default: that of the program, or "shell".
        args: More arguments. In a script they are "$1", "$2" and so on.
        env: Environment variables besides PATH, HOME and the like.
        pass_env: Names of our variables, such as API keys, that are passed on.
        stdin: Standard input. Default: the step's input.
        cwd: The working directory. Default: the folder of the workspace, else that of this process.
        timeout: Seconds until the command and its processes are ended. Default: no limit.
        idempotent: Whether the command may run twice after a crash. If not (the default), a resumed
            run asks first.
        output: `text` (stdout without its last newline), `json` (stdout, parsed), or `result` (an
            object of exit code and both streams; no exit code is a failure).
        allow_exit: The exit codes that are not failures. Default: 0.
        max_output: Bytes of each stream in the output, the beginning and the end around a marker.
            JSON is not cut. Default: 8 MiB.
        limit: Bytes of output after which the command is ended and fails. Default: 1 GiB, and 64 MiB
            with `json`.
        usage: Where the command reports its cost: `file` if it writes JSON with calls, input_tokens,
            output_tokens or usd to the file named in `$LOOPWRIGHT_USAGE` (which is always read), a path
            into its JSON output such as `result.usage`, or a path for each figure.
        sandbox: The isolation of the command. Default: none.

    Raises:
        ConfigurationError: For an invalid command or option.
        StepError: At run time: `exit_status`, `cannot_start`, `bad_argument`, `option_like`,
            `output_too_large`, `malformed`, `no_sandbox`, or StepTimeout.

    Example:
        >>> from loopwright import run_sync
        >>> run_sync(shell(["sort", "-r"]), "a\\nb").output
        'b\\na'
        >>> run_sync(shell('printf "%s!" "$1"', args=[lambda value, ctx: value]), "$(rm -rf x)").output
        '$(rm -rf x)!'
    """

    noun = "command"
    fingerprint: str
    in_folder = True
    idempotent: bool
    reports: bool

    def __init__(
        self,
        command: Sequence[str] | str,
        *,
        name: str = "",
        args: Sequence[Value] = (),
        env: Mapping[str, Value] | None = None,
        pass_env: Sequence[str] = (),
        stdin: Value = None,
        cwd: str | Path | None = None,
        timeout: float | None = None,
        idempotent: bool = False,
        output: Output = "text",
        allow_exit: Sequence[int] = (0,),
        max_output: int = MAX_OUTPUT,
        limit: int | None = None,
        usage: UsageSource | None = None,
        sandbox: Sandbox | SandboxMode = "none",
    ) -> None:
        self.command = _checked(command)
        default = "shell" if isinstance(self.command, str) else Path(self.command[0]).name
        self.name = name or default
        self.args, self.env, self.stdin = tuple(args), dict(env or {}), stdin
        self.pass_env = variable_names(f"{self.name}: pass_env", pass_env)
        self.cwd = cwd
        self.timeout = timeout
        if timeout is not None:
            codec.number(f"{self.name}: timeout", timeout, minimum=0, above=True)
        self.idempotent = idempotent
        if output not in _OUTPUTS:
            raise ConfigurationError(
                f"{self.name}: output: {output!r} is not one of {', '.join(_OUTPUTS)}"
                f"{nearest(str(output), _OUTPUTS)}"
            )
        self.output = output
        self.allow_exit = tuple(allow_exit)
        self.max_output = codec.integer(f"{self.name}: max_output", max_output, minimum=1)
        usual = LIMIT if output == "json" else ENDLESS  # a part of a JSON text is useless
        self.limit = codec.integer(
            f"{self.name}: limit", usual if limit is None else limit, minimum=1
        )
        self.usage = checked_usage(self.name, usage)
        self.sandbox = Sandbox(sandbox) if isinstance(sandbox, str) else sandbox
        if self.sandbox.mode == "own":
            raise ConfigurationError(f"{self.name}: sandbox: own is for coding agents; use auto")
        # The file is always read; a command that names the variable announces that it writes one.
        self.reports = self.usage is not None or VARIABLE in str(self.command)
        self.fingerprint = self._fingerprint()

    def _fingerprint(self) -> str:
        # An absolute path differs between machines.
        where = "" if self.cwd is None or Path(self.cwd).is_absolute() else str(self.cwd)
        variables = [*self.env, *self.pass_env]
        return digest_of(
            "shell",
            repr((self.command, variables, where, self.output, self.allow_exit)),
            *(_meaning(value) for value in (*self.args, *self.env.values(), self.stdin)),
            *([codec.canonical(self.usage)] if self.usage is not None else []),
        )

    def __repr__(self) -> str:
        return f"shell({self.name})"

    async def act(self, value: Json, ctx: Context) -> Json:
        """Run the command on a value and return its output."""
        result = await self.run_command(value, ctx)
        if result.decoded_with_loss and ctx is not None:
            ctx.warn(
                "its output is not all UTF-8. The invalid bytes were replaced by U+FFFD.",
                code="invalid_utf8",
            )
        if result.omitted and ctx is not None:
            ctx.warn(
                f"{result.omitted:,} bytes of its output were left out. Raise max_output "
                f"({self.max_output:,}) to keep more.",
                code="output_shortened",
            )
        if self.output == "result":
            return result.to_json()
        if result.exit_code not in self.allow_exit:
            last = result.last_output
            raise StepError(
                f"{self.name} {result.ending}{last and f': {last}'}", kind="exit_status"
            )
        # Only the newline that ends the last line; other white space may be content.
        text = result.stdout.removesuffix("\n")
        return text if self.output == "text" else self._parsed(text)

    async def run_command(self, value: Json, ctx: Context) -> CommandResult:
        """Run the command on a value and return how it ended, whatever its exit code.

        Raises:
            StepTimeout: If its timeout was reached.
            StepError: `output_too_large`, `option_like`, or an error of `process.run_command`.
        """
        if ctx is not None and ctx.run.stubs is not None:
            stub = ctx.run.stubs.of(ctx.path, "command")
            return CommandResult(stub.exit or 0, stub.printed())
        complete = self.output == "json" or self.usage not in (None, FILE)  # parsed as JSON
        env = {name: await _text(item, value, ctx) for name, item in self.env.items()}
        with report_usage(ctx, self.usage) as report:
            files = None if ctx is None or ctx.scope is None else ctx.scope.files
            cwd = self.cwd if files is None else files.inside(self.cwd)
            own = [Path(report.env[VARIABLE]).parent, *([] if files is None else [files.root])]
            sandbox = self.sandbox.within(*own)
            if files is not None:
                sandbox = sandbox.within(readable=files.state.shown, project=files.state.covered)
            result = await run_command(
                self.command,
                args=await self._arguments(value, ctx),
                prefix=await sandbox.prefix(
                    cwd,
                    ctx,
                    name=self.name,
                    command=() if isinstance(self.command, str) else self.command,
                ),
                env={
                    **({} if files is None else files.variables),
                    **report.env,
                    **inherited(self.pass_env),
                    **env,
                },
                stdin=await _text(value if self.stdin is None else self.stdin, value, ctx),
                cwd=cwd,
                timeout=self.timeout,
                limit=self.limit,
                keep=None if complete else self.max_output,
                token=ctx.run.token if ctx is not None else "",
            )
            self._check(result)
            report.stdout = result.stdout
        return result

    def _check(self, result: CommandResult) -> None:
        if result.truncated:
            raise StepError(
                f"{self.name}: its output passed {self.limit} bytes and it was ended. Write the "
                "output to a file and print less.",
                kind="output_too_large",
                retryable=False,
            )
        if result.timed_out:
            last = result.last_output
            raise StepTimeout(
                f"{self.name} took longer than its {self.timeout:g} s and was ended"
                f"{last and f'; its last output: {last}'}"
            )

    async def _arguments(self, value: Json, ctx: Context) -> list[str]:
        words: list[str] = []
        for item in self.args:
            text = await _text(item, value, ctx)
            # A value such as "--output=/etc/passwd" would otherwise change what the program does.
            guarded = isinstance(self.command, str) or "--" in (*self.command, *words)
            if callable(item) and text.startswith("-") and not guarded:
                raise StepError(
                    f"{self.name}: the value {tail(text, 40)!r} would be read as an option. Put '--' "
                    "before it in the command, or pass it by env or stdin.",
                    kind="option_like",
                    retryable=False,
                )
            words.append(text)
        return words

    def _parsed(self, text: str) -> Json:
        try:
            return codec.decode(text)
        except json.JSONDecodeError as error:
            where = f"line {error.lineno} column {error.colno}"
        except (ValueError, RecursionError):
            where = "a number that is too long or a value that is too deep"
        raise StepError(
            f"{self.name}: its output is not JSON at {where}: {tail(text, 200)!r}. Print one JSON "
            "value and nothing else on stdout, or use output: text.",
            kind="malformed",
        )


shell = ShellStep


def _checked(command: Sequence[str] | str) -> tuple[str, ...] | str:
    if isinstance(command, str) and command.strip():
        return command
    words = tuple(command) if isinstance(command, Sequence) else ()
    if isinstance(command, str) or not words or not words[0] or not _are_texts(words):
        raise ConfigurationError(
            f"shell: {command!r} is not a command. Use a list of words, or a script as text."
        )
    return words


def _are_texts(words: Sequence[object]) -> bool:
    return all(isinstance(word, str) for word in words)


def _meaning(value: Value) -> str:
    """Return a text that identifies a value: of a function its `fingerprint`, if it has one."""
    if not callable(value):
        return repr(value)
    fingerprint = getattr(value, "fingerprint", "")
    return str(fingerprint or as_step(value).fingerprint)


async def _text(item: Value, value: Json, ctx: Context) -> str:
    result = item(value, ctx) if callable(item) else item
    if inspect.isawaitable(result):
        result = await result
    return codec.text_of(result)
