"""Commands of the machine as steps and as tools, and the cost that a command reports.

A step runs one command. Its text is constant; values reach it through stdin, env or args only. A tool runs lists of
words from an allow-list:

1. There is no shell. The program receives the words unchanged, and nothing parses them again.
2. The list allows complete command lines with placeholders. Allowing the beginning of a command does
   not allow any continuation.
3. `{name}` stands for one word, `{name...}` for any number of words, and `--since={name}` for a word
   with that beginning.
4. A word for a placeholder without a beginning must not start with a dash, because it would be an
   option. `{name:any}` and `{name...:any}` allow it.
5. The output says how the command ended, also when it failed: the exit code and both streams.

The cost is in the file named by `$LOOPWRIGHT_USAGE`, or in the command's JSON output:

1. The command writes the file as soon as it knows its cost: `{"calls", "input_tokens", "output_tokens",
   "usd"}`, each optional. It is read after the command has ended, also after a failure or a timeout.
2. A report counts as at least one call. An unreadable report is a warning and counts as nothing. It
   never fails the step.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from .._platform import temporary_folder
from ..engine.context import Context
from ..engine.run_state import Stub
from ..engine.step import Leaf, as_step, digest_of
from ..errors import ConfigurationError, StepError, StepTimeout, nearest
from ..records import Usage, codec
from ..records.codec import Json
from .base import Tool, ToolOptions
from .process import LIMIT, CommandResult, OnOutput, inherited, run_command, tail, variable_names
from .sandbox import Sandbox, SandboxMode

if TYPE_CHECKING:
    from ..engine.waiting import Probed

__all__ = [
    "FILE",
    "VARIABLE",
    "CommandOptions",
    "CommandTool",
    "Output",
    "ShellStep",
    "UsageReport",
    "UsageSource",
    "Value",
    "checked_usage",
    "command_tool",
    "report_text",
    "report_usage",
    "shell",
]

VARIABLE = "LOOPWRIGHT_USAGE"
FILE = "file"  # `usage: file`: the command always writes the file
LARGEST = 65_536  # bytes of a report; it has four numbers
# Neither a link nor a pipe may stand in for the file; Windows has no such flags.
_NO_DEVICES = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FIGURES = ("calls", "input_tokens", "output_tokens", "usd")

UsageSource = str | Mapping[str, str]  # `file`, a path into the output, or a path for each figure


def checked_usage(owner: str, usage: object) -> UsageSource | None:
    """Return the setting `usage` of a command, checked.

    Raises:
        ConfigurationError: For an invalid path, or an unknown figure.
    """
    if usage is None or (isinstance(usage, str) and all(usage.split("."))):
        return usage
    if not isinstance(usage, Mapping) or not usage:
        raise ConfigurationError(
            f"{owner}: usage: {usage!r} is not valid. Use {FILE!r}, a path into the JSON output such as "
            "'result.usage', or a path for each figure: {usd: total_cost_usd}."
        )
    for name, path in usage.items():
        if name not in _FIGURES:
            hint = nearest(str(name), _FIGURES) or f"; use {', '.join(_FIGURES)}"
            raise ConfigurationError(f"{owner}: usage: unknown figure {name!r}{hint}")
        if not isinstance(path, str) or not all(path.split(".")):
            raise ConfigurationError(
                f"{owner}: usage: {name}: {path!r} is not a path. Separate keys by dots."
            )
    return dict(usage)


class UsageReport:
    """The report of one call. `env` is added to the command's environment, `stdout` set at its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.env = {VARIABLE: str(path)}
        self.stdout: str | None = None

    def read(self, source: UsageSource | None) -> Usage | None:
        """Return the reported usage, if any.

        Raises:
            LookupError: If an expected report is missing.
            ValueError: If the report is invalid.
        """
        text = report_text(self._path)
        if text is not None:
            return _usage(codec.decode(text))
        if source is None or self.stdout is None:  # no report is expected, or the command was ended
            return None
        if source == FILE:
            raise LookupError(f"it wrote no file ${VARIABLE}")
        try:
            data = codec.decode(self.stdout)
        except (ValueError, RecursionError):
            raise LookupError("its output is not JSON, so there is no usage in it") from None
        paths = [source] if isinstance(source, str) else list(source.values())
        values = [_at(data, path) for path in paths]
        if all(value is None for value in values):
            raise LookupError(f"its output has nothing at {', '.join(paths)}")
        single = isinstance(source, str)
        return _usage(values[0] if single else dict(zip(source, values, strict=True)))


@contextlib.contextmanager
def report_usage(ctx: Context | None, source: UsageSource | None) -> Iterator[UsageReport]:
    """Let a command report its cost, and add it to `ctx` after the command has ended."""
    with temporary_folder("usage") as folder:
        report = UsageReport(folder / "usage.json")
        try:
            yield report
        finally:
            # Also after a failure or a timeout: the money is spent.
            try:
                usage, problem = report.read(source), ""
            except LookupError as error:
                usage, problem = None, str(error.args[0])
            except (ValueError, RecursionError, OSError) as error:
                reason = " ".join(str(error).split())[:200]
                usage, problem = None, f"its report of usage cannot be read: {reason}"
            if ctx is not None and usage is not None:
                ctx.spend(usage)
            if ctx is not None and problem:
                ctx.warn(f"{problem}; its cost is not counted", code="unreported_usage")


def report_text(path: Path) -> str | None:
    """Return the text of a file that a command wrote, or None if there is none.

    Raises:
        ValueError: If it is too large, or is not UTF-8, or a pipe or device, which is not read.
        OSError: If it is a link.
    """
    try:
        handle = os.open(path, os.O_RDONLY | _NO_DEVICES)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it is not a regular file")
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"it has more than {LARGEST} bytes")
    return data.decode("utf-8")


def _usage(data: Json) -> Usage:
    expected = f"an object with some of {', '.join(_FIGURES)} is expected"
    if not isinstance(data, dict):
        raise ValueError(expected)
    figures = {name: data[name] for name in _FIGURES if data.get(name) is not None}
    if not figures:
        raise ValueError(expected)
    if "usd" in figures:
        figures["usd"] = float(codec.number("usd", figures["usd"], minimum=0))
    # A command that reports no call still cost something, and limits on calls have to count it.
    calls = max(1, codec.integer("calls", figures.get("calls", 1), minimum=0))
    return Usage(**{**figures, "calls": calls})


def _at(data: Json, path: str) -> Json:
    for key in path.split("."):
        if isinstance(data, list) and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        elif isinstance(data, dict):
            data = data.get(key)
        else:
            return None
    return data


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
    changes = False

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
        # An absolute path differs between machines.
        where = "" if cwd is None or Path(cwd).is_absolute() else str(cwd)
        self.fingerprint = digest_of(
            "shell",
            repr((self.command, [*self.env, *self.pass_env], where, self.output, self.allow_exit)),
            *(_meaning(value) for value in (*self.args, *self.env.values(), self.stdin)),
            *([codec.canonical(self.usage)] if self.usage is not None else []),
        )

    @property
    def words(self) -> str:
        """The command as a person writes it."""
        return self.command if isinstance(self.command, str) else shlex.join(self.command)

    def __repr__(self) -> str:
        return f"shell({self.name})"

    @property
    def asks(self) -> Json:
        """The command for the journal, so that a trace can name it, and the exit codes that are no errors."""
        command: Json = self.command if isinstance(self.command, str) else list(self.command)
        return {
            "command": command,
            **({} if self.allow_exit == (0,) else {"allow_exit": list(self.allow_exit)}),
        }

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
        if self.output == "text":
            return text
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

    async def run_command(
        self, value: Json, ctx: Context, watch: OnOutput | None = None
    ) -> CommandResult:
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
                watch=watch,
            )
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
            report.stdout = result.stdout
        return result

    async def look(self, ctx: Context, before: str) -> Probed:
        """Run the command as the condition of a wait; it is true if the command succeeds."""
        from ..engine.waiting import Probed  # for the few commands that a wait looks at

        del before
        result = await self.run_command(None, ctx)
        output = "\n".join(text for text in (result.stdout, result.stderr) if text)
        value: Json = {"exit": result.exit_code, "output": output[-8192:]}
        return Probed(result.exit_code in self.allow_exit, value, result.exit_code)

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


shell = ShellStep


def _checked(command: Sequence[str] | str) -> tuple[str, ...] | str:
    if isinstance(command, str) and command.strip():
        return command
    words = tuple(command) if isinstance(command, Sequence) else ()
    if (
        isinstance(command, str)
        or not words
        or not words[0]
        or not all(isinstance(word, str) for word in words)
    ):
        raise ConfigurationError(
            f"shell: {command!r} is not a command. Use a list of words, or a script as text."
        )
    return words


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
