"""A command as a step: its text is constant, and a value reaches it by stdin, env or args only."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ..engine.context import Context
from ..engine.step import Leaf, as_step, digest_of
from ..errors import ConfigurationError, StepError, StepTimeout, nearest
from ..records import codec
from ..records.codec import Json
from .process import LIMIT, CommandResult, names_of, passed, run_command, tail
from .usage_report import FILE, VARIABLE, Where, checked_usage, reported

__all__ = ["Output", "ShellStep", "Value", "shell"]

Output = Literal["text", "json", "result"]
Value = Json | Callable[[Json, Context], Any]  # a constant, or made from the step's input
_OUTPUTS = ("text", "json", "result")
MAX_OUTPUT = 8 * 1024 * 1024  # bytes of each stream that go on, but for JSON
ENDLESS = 1024 * 1024 * 1024  # bytes after which a command is taken to print without end


class ShellStep(Leaf):
    """A command as a leaf step; see `shell`."""

    fingerprint: str

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
        usage: Where | None = None,
    ) -> None:
        self.command = _constant(command)
        self.name = name or _name_of(self.command)
        self.args, self.env, self.stdin = tuple(args), dict(env or {}), stdin
        self.pass_env = names_of(f"{self.name}: pass_env", pass_env)
        self.cwd = cwd
        self.timeout = timeout
        if timeout is not None:
            codec.number(f"{self.name}: timeout", timeout, least=0, above=True)
        self.idempotent = idempotent
        if output not in _OUTPUTS:
            hint = nearest(str(output), _OUTPUTS)
            raise ConfigurationError(
                f"{self.name}: output: {output!r} is none of {', '.join(_OUTPUTS)}{hint}"
            )
        self.output = output
        self.allow_exit = tuple(allow_exit)
        self.max_output = codec.whole(f"{self.name}: max_output", max_output, least=1)
        usual = LIMIT if output == "json" else ENDLESS  # JSON is of no use in part
        self.limit = codec.whole(f"{self.name}: limit", usual if limit is None else limit, least=1)
        self.usage = checked_usage(self.name, usage)
        self.reports = self.usage is not None or VARIABLE in str(self.command)
        values = (*self.args, *self.env.values(), self.stdin)
        where = "" if cwd is None or Path(cwd).is_absolute() else str(cwd)  # no path of one machine
        self.fingerprint = digest_of(
            "shell",
            repr((self.command, [*self.env, *self.pass_env], where, output, self.allow_exit)),
            *(_meaning(value) for value in values),
            *([codec.canonical(self.usage)] if self.usage is not None else []),
        )

    def __repr__(self) -> str:
        return f"shell({self.name})"

    async def act(self, value: Json, ctx: Context) -> Json:
        """Run the command on a value and return what `output` asks for."""
        result = await self.look(value, ctx)
        if result.decoded_with_loss and ctx is not None:
            ctx.warn("its output is not all UTF-8; what is not became U+FFFD")
        if result.omitted and ctx is not None:
            ctx.warn(
                f"{result.omitted:,} bytes of its output were left out, as it has more than "
                f"max_output: {self.max_output:,}"
            )
        if self.output == "result":
            return result.to_json()
        if result.exit_code not in self.allow_exit:
            said = tail(result.stderr) or tail(result.stdout)
            raise StepError(
                f"{self.name} {result.ending}{said and f': {said}'}", kind="exit_status"
            )
        text = result.stdout.removesuffix("\n")
        return text if self.output == "text" else self._json(text)

    async def look(self, value: Json, ctx: Context) -> CommandResult:
        """Run the command on a value and return how it ended, whatever its exit code.

        Raises:
            StepTimeout: if its own time was up.
            StepError: `output_too_large`, `option_like`, and what `run_command` raises.
        """
        with reported(ctx, self.usage) as report:
            result = await self._ran(value, ctx, report.env)
            report.stdout = result.stdout
        return result

    async def _ran(self, value: Json, ctx: Context, own: Mapping[str, str]) -> CommandResult:
        whole = self.output == "json" or self.usage not in (None, FILE)  # what is read as JSON
        result = await run_command(
            self.command,
            args=await self._arguments(value, ctx),
            env={
                **own,
                **passed(self.pass_env),
                **{name: await _text(given, value, ctx) for name, given in self.env.items()},
            },
            stdin=await _text(value if self.stdin is None else self.stdin, value, ctx),
            cwd=self.cwd,
            timeout=self.timeout,
            limit=self.limit,
            keep=None if whole else self.max_output,
            token=ctx.run.token if ctx is not None else "",
        )
        said = tail(result.stderr) or tail(result.stdout)
        if result.truncated:
            raise StepError(
                f"{self.name}: its output passed {self.limit} bytes and it was ended; write it to "
                "a file and print less",
                kind="output_too_large",
                retryable=False,
            )
        if result.timed_out:
            after = f"{self.name} took longer than its {self.timeout:g} s and was ended"
            raise StepTimeout(f"{after}; it last said: {said}" if said else after)
        return result

    async def _arguments(self, value: Json, ctx: Context) -> list[str]:
        words: list[str] = []
        for given in self.args:
            text = await _text(given, value, ctx)
            guarded = isinstance(self.command, str) or "--" in (*self.command, *words)
            if callable(given) and text.startswith("-") and not guarded:
                raise StepError(
                    f"{self.name}: the value {tail(text, 40)!r} would be taken for an option; "
                    "put '--' before it in the command, or give it by env or stdin",
                    kind="option_like",
                    retryable=False,
                )
            words.append(text)
        return words

    def _json(self, text: str) -> Json:
        try:
            return codec.decode(text)
        except json.JSONDecodeError as error:
            where = f"line {error.lineno} column {error.colno}"
        except (ValueError, RecursionError):
            where = "a number too long or a value too deep"
        raise StepError(
            f"{self.name}: its output is not JSON at {where}: {tail(text, 200)!r}; print one JSON "
            "value and nothing else on stdout, or ask for output: text",
            kind="malformed",
        )


def _constant(command: Sequence[str] | str) -> tuple[str, ...] | str:
    if isinstance(command, str):
        fine = bool(command.strip())
    else:
        words = list(command) if isinstance(command, Sequence) else []
        fine = bool(words) and all(isinstance(w, str) for w in words) and bool(words[0])
        command = tuple(words)
    if not fine:
        raise ConfigurationError(
            f"shell: {command!r} is not a command; give a list of words, or a script as text"
        )
    return command


def _name_of(command: tuple[str, ...] | str) -> str:
    return "shell" if isinstance(command, str) else Path(command[0]).name


def _meaning(value: Value) -> str:
    """Return what tells one value from another: a function by its own `fingerprint` if it has
    one."""
    if not callable(value):
        return repr(value)
    own = getattr(value, "fingerprint", "")
    return str(own or as_step(value).fingerprint)


async def _text(given: Value, value: Json, ctx: Context) -> str:
    found = given
    if callable(given):
        found = given(value, ctx)
        if inspect.isawaitable(found):
            found = await found
    return codec.text_of(found)


def shell(
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
    usage: Where | None = None,
) -> ShellStep:
    """Make a command a step: a list of words, or the constant text of a script for `/bin/sh -e`.

    Its input is its stdin: text as it is, anything else as JSON. `args`, `env` and `stdin` take
    constants or functions of (input, context), so a value is never part of the program; in a script
    `args` are "$1", "$2". Write `grep -- "$1"`: a value may begin with a dash. In a list such a
    value is refused unless "--" comes before it. The environment is PATH, HOME and the like only,
    with `env`, and the variables of ours that `pass_env` names.

    Args: timeout: seconds, after which it and all that it started are ended. idempotent: whether it
    may run twice if the process dies under it; if not, a resumed run asks first. output: `text`
    (stdout without its last newline), `json` (stdout parsed), or `result` (exit code and both
    streams; any exit code is a value then). allow_exit: the exit codes that are no failure. max_output:
    bytes of each stream that go on, the beginning and the end around a marker; JSON goes on whole.
    limit: bytes after which it is ended and has failed (1 GiB; JSON: 64 MiB). usage: where it reports
    what it costs: `file` if it writes JSON with some of calls, input_tokens, output_tokens and usd to
    the file named in `$LOOPWRIGHT_USAGE` (which is read in any case), a path into its JSON output such
    as `result.usage`, or a path for each figure.

    Raises:
        ConfigurationError: if the command or an option could not mean anything.
        StepError: when it runs: `exit_status`, `cannot_start`, `bad_argument`, `option_like`,
            `output_too_large`, `malformed`, or StepTimeout.

    >>> from loopwright import run_sync
    >>> run_sync(shell(["sort", "-r"]), "a\\nb").output
    'b\\na'
    >>> run_sync(shell('printf "%s!" "$1"', args=[lambda value, ctx: value]), "$(rm -rf x)").output
    '$(rm -rf x)!'
    """
    return ShellStep(
        command, name=name, args=args, env=env, pass_env=pass_env, stdin=stdin, cwd=cwd, timeout=timeout,
        idempotent=idempotent, output=output, allow_exit=allow_exit, max_output=max_output, limit=limit,
        usage=usage,
    )  # fmt: skip
