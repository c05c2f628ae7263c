"""A metric as a number in the output of a command, or in the output itself."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from .._platform import take_lock
from .._regex import Match, Pattern, PatternTimeout, compile_pattern
from ..engine.context import Context
from ..engine.functions import in_thread
from ..engine.metrics import TAKES, Repeated
from ..engine.step import FunctionStep, Step, digest_of
from ..errors import ConfigurationError, nearest
from ..records import Evaluation, codec, number_text
from ..records.codec import Json
from ..tools.commands import CommandOptions, ShellStep
from ..tools.process import READ, CommandResult, OnOutput
from .check import command_check, output_of, run_check
from .gates import Check, as_check, before

if TYPE_CHECKING:
    from ..engine.early import Curve, Early

__all__ = ["Measurement", "metric", "metric_of", "number_pattern", "repeated"]

WAIT = 0.05  # seconds between two attempts to take the lock of the machine
IDEA = 200  # characters of an idea


def metric(
    name: str,
    command: Sequence[str] | str | None = None,
    *,
    pattern: str = "",
    early: Early | None = None,
    gates: Sequence[Sequence[str] | Check] = (),
    at_once: int = 1,
    idea: str = "IDEA.txt",
    pass_env: Sequence[str] = (),
    **options: Unpack[CommandOptions],
) -> Step[object, Evaluation]:
    """Make an evaluator that measures one number, such as seconds, bytes or a loss.

    The evaluation has the number in `metrics`, and no score and no verdict. A command that fails, or
    prints no number, has no value; its output is the feedback. Its direction, its unit, and how often it is
    measured are those of the loop: `Loop(metrics={name: Metric("minimise", unit="s", repeats=3)})`.

    Args:
        name: The name of the metric.
        command: A list of words, or the text of a script for `/bin/sh -e`. Default: none; the number is read
            in the output of `execute`.
        pattern: A regular expression whose first group, or complete match, is the number. The last match
            counts. Default: the last line is the number.
        early: When the command ends early, because what it prints on the way is worse than in earlier iterations.
            Default: never.
        gates: Commands that must exit with 0, or other evaluators that must pass, before anything is
            measured.
        at_once: How many measurements of this user run on the machine at a time; others wait. 0 is no
            limit. Default: 1, because concurrent commands change each other's times.
        idea: A file in the folder whose first line describes the change, for tables. Default: `IDEA.txt`.
        pass_env: Names of our variables that the command receives.
        **options: `args`, `env`, `stdin`, `cwd`, `timeout` (seconds) and `sandbox`, as in `shell`.

    Returns:
        A step from any output to an Evaluation.

    Raises:
        ConfigurationError: For an invalid option.
        EvaluationError: At run time, of kind `bad_metric` for a number that is not finite; of kind
            `evaluator_broken` if the command cannot run; of kind `check_error` at its timeout.

    Example:
        >>> from loopwright import run_sync
        >>> measure = metric("val_loss", "echo 'val_loss: 0.93'", pattern="val_loss: ([0-9.]+)")
        >>> run_sync(measure, None).output.metrics
        {'val_loss': 0.93}
    """
    measurement = Measurement(name, "", pattern, at_once, idea, early)
    return metric_of(measurement, command, gates=gates, pass_env=pass_env, **options)


def metric_of(
    measurement: Measurement,
    command: Sequence[str] | str | None,
    *,
    gates: Sequence[Sequence[str] | Check] = (),
    pass_env: Sequence[str] = (),
    repeats: int = 1,
    take: str = "median",
    **options: Unpack[CommandOptions],
) -> Step[object, Evaluation]:
    """Return the evaluator of a measurement; documents that are recorded with a run repeat it here."""
    name, early = measurement.name, measurement.early
    if command is None and (options or early):
        key = "early" if early else next(iter(options))
        raise ConfigurationError(
            f"metric {name}: {key} belongs to a command; add command, or remove it"
        )
    if command is None:
        reading = measurement.reading

        async def of_output(value: Json) -> Evaluation:
            text = codec.text_of(value)
            return await in_thread(reading.evaluation, (text,), "the output has no such number", {})

        step = FunctionStep(of_output, name=name, fingerprint=digest_of("metric", repr(reading)))
    else:
        shell = ShellStep(command, name=name, pass_env=pass_env, **options)

        async def of_command(value: Json, ctx: Context) -> Evaluation:
            return await measurement.of(lambda watch: run_check(shell, value, ctx, watch), ctx)

        step = FunctionStep(
            of_command,
            name=name,
            fingerprint=digest_of("metric", measurement.meaning, shell.fingerprint),
            reports=False,
        )
        step.early = early is not None
    checks = [
        command_check(gate) if isinstance(gate, Sequence) else as_check("", gate) for gate in gates
    ]
    return repeated(step, repeats=repeats, take=take, gates=checks)


def repeated(
    step: FunctionStep[object, Evaluation], *, repeats: int, take: str, gates: Sequence[Step]
) -> Step[object, Evaluation]:
    """Return a measurement that is repeated, after the checks that must pass before it.

    Raises:
        ConfigurationError: for an invalid number of repeats, or an unknown value of them.
    """
    name = step.name
    codec.integer(f"metric {name}: repeats", repeats, minimum=1)
    if take not in TAKES:
        raise ConfigurationError(
            f"metric {name}: take: {take!r} is none of {', '.join(TAKES)}{nearest(str(take), TAKES)}"
        )
    step.scores_only = step.measures_only = True
    measured: Step = Repeated(step, {name: (repeats, take)}) if repeats > 1 else step
    return before(measured, *gates) if gates else measured


# Escapes, sets, and groups that match no text.
_NO_TEXT = re.compile(r"\\.|\[\^?\]?[^\]]*\]|\(\?(?:[=!]|<[=!])[^)]*\)")


@dataclass(frozen=True)
class _Reading:
    """Finds the number of a metric in texts."""

    name: str
    unit: str
    pattern: Pattern | None

    def evaluation(
        self, texts: Sequence[str], printed: str, details: Mapping[str, Json]
    ) -> Evaluation:
        """Return the evaluation of the last number in the first text that has one.

        Raises:
            EvaluationError: of kind `bad_metric` if it is not finite.
        """
        word = next((word for text in texts if (word := self._word(text))), "")
        try:
            value = float(word)
        except ValueError:
            lack = f"{word[:60]!r} is not a number" if word else "no number was printed"
            if self.pattern is not None and not word:
                lack = f"nothing matches {self.pattern.text!r}"
            feedback = f"{self.name} has no value: {lack}"
            return Evaluation(
                passed=False,
                feedback=f"{feedback}\n{printed}" if printed else feedback,
                details=details,
            )
        # A value that is not finite raises here; see `Evaluation`.
        measured = Evaluation(metrics={self.name: value}, details=details)
        return replace(measured, feedback=f"{self.name} {number_text(value)} {self.unit}".rstrip())

    def _word(self, text: str) -> str:
        if self.pattern is None:
            return text.strip().rpartition("\n")[2].strip()
        matches = self.pattern.findall(text)
        if not matches:
            return ""
        last = matches[-1]
        return (last.groups[0] or "") if last.groups else last.text


@dataclass(frozen=True)
class Measurement:
    """One measurement: a command runs in its turn, and its output has the number.

    Args:
        name: the name of the metric.
        unit: the unit, for the feedback.
        pattern: the expression of the number, or "" for the last line.
        at_once: how many measurements run on the machine at a time; 0 is no limit.
        idea: a file in the folder whose first line describes the change.
        early: when the command ends early, or None.
    """

    name: str
    unit: str = ""
    pattern: str = ""
    at_once: int = 1
    idea: str = "IDEA.txt"
    early: Early | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise ConfigurationError(
                f"metric: {self.name!r} is not a name; use text such as 'val_loss'"
            )
        codec.integer(f"metric {self.name}: at_once", self.at_once, minimum=0)
        if self.early is not None and self.points.group_count < 2:
            raise ConfigurationError(
                f"metric {self.name}: early: the pattern {self.early.pattern!r} needs two groups, the step and the "
                "value, such as 'step ([0-9]+) loss ([0-9.]+)'"
            )

    @functools.cached_property
    def points(self) -> Pattern:
        """The expression of a step and a value."""
        return compile_pattern(self.early.pattern if self.early else "", multiline=True)

    @property
    def meaning(self) -> str:
        """What it measures, for fingerprints."""
        return repr(self.reading) + (repr(self.early) if self.early is not None else "")

    @functools.cached_property
    def reading(self) -> _Reading:
        """The reader of the number."""
        return _Reading(self.name, self.unit, number_pattern(f"metric {self.name}", self.pattern))

    async def of(
        self, run: Callable[[OnOutput | None], Awaitable[CommandResult]], ctx: Context
    ) -> Evaluation:
        """Run the command when it is its turn, and return the evaluation of its output."""
        if self.early is None:
            async with _turn(self.at_once):
                result = await run(None)
            return await self._evaluation(result, ctx)
        from ..engine.early import curve_of  # for the few metrics that have it

        reader = _Points(self.points, curve_of(ctx, self.early, self.name))
        async with _turn(self.at_once):
            result = await run(reader.read)
        if reader.curve.stopped:  # it may have ended well nevertheless
            result = replace(result, exit_code=-15)
        return reader.curve.of(await self._evaluation(result, ctx))

    async def _evaluation(self, result: CommandResult, ctx: Context) -> Evaluation:
        details = await in_thread(_idea, ctx.folder, self.idea)
        if result.exit_code:
            printed = output_of(result)
            feedback = f"{self.name} has no value: the command {result.ending}"
            return Evaluation(
                passed=False,
                feedback=f"{feedback}\n{printed}" if printed else feedback,
                details=details,
            )
        texts = (result.stdout, result.stderr)
        return await in_thread(self.reading.evaluation, texts, output_of(result), details)


class _Points:
    """Reads a step and a value from each line that a command prints."""

    def __init__(self, pattern: Pattern, curve: Curve) -> None:
        self.curve = curve
        self._pattern = pattern
        self._rest: dict[object, bytes] = {}  # the beginning of a line, by stream

    async def read(self, stream: object, data: bytes) -> bool:
        """Read a piece of output, and return whether the command ends here."""
        lines, _, rest = (self._rest.get(stream, b"") + data).rpartition(b"\n")
        # A line that never ends must not fill the memory.
        self._rest[stream] = rest[-READ:]
        if lines:
            for match in await in_thread(self._matches, lines.decode(errors="replace")):
                step, value = match.groups[:2]
                with suppress(TypeError, ValueError):
                    self.curve.add(float(step or ""), float(value or ""))
        return bool(self.curve.stopped)

    def _matches(self, lines: str) -> list[Match]:
        try:
            return self._pattern.findall(lines)
        except PatternTimeout:
            return []  # the values of these lines are unknown


def number_pattern(owner: str, pattern: str) -> Pattern | None:
    """Return the expression of a number; None for "".

    Raises:
        ConfigurationError: if it has no group, and what it matches is more than a number.
    """
    if not pattern:
        return None
    compiled = compile_pattern(pattern, multiline=True)
    rest = _NO_TEXT.sub("", pattern)
    letters = re.search(r"[^\W\d_eE]|[:=]", rest)
    # An alternative or an optional part need not match.
    if letters and not compiled.group_count and not re.search(r"[|?*{]", rest):
        raise ConfigurationError(
            f"{owner}: the pattern {pattern!r} matches more than a number; put the number into a group, such as "
            "'loss: ([0-9.]+)'"
        )
    return compiled


def _idea(folder: Path | None, name: str) -> dict[str, Json]:
    """Return the first line of the file that describes the change, as details."""
    root = (folder or Path()).resolve()
    file = root.joinpath(name).resolve()
    # An agent could link the name to a file that only we can read.
    if not file.is_relative_to(root):
        return {}
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            line = opened.readline(IDEA).strip()
    except (OSError, ValueError):
        return {}
    return {"idea": line} if line else {}


@asynccontextmanager
async def _turn(at_once: int) -> AsyncIterator[None]:
    """Wait until fewer than `at_once` measurements of this user run on the machine."""
    if not at_once:
        yield
        return
    file = await _taken(at_once)
    try:
        yield
    finally:
        os.close(file)  # which releases the lock, as the end of the process does


async def _taken(at_once: int) -> int:
    """Return an open file whose lock this process has taken."""
    folder = Path(tempfile.gettempdir()) / f"loopwright-measuring-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    while True:
        for place in range(at_once):
            file = os.open(folder / str(place), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if take_lock(file):
                return file
            os.close(file)
        await asyncio.sleep(WAIT)
