"""One run of a test command: its exit code, its report and the feedback on what fails."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...engine.context import Context
from ...engine.functions import in_thread
from ...errors import EvaluationError
from ...evaluators.check import broken, output_of, run_check
from ...evaluators.parsing.reports import (
    TestCase,
    TestReport,
    UnreadableReport,
    merged,
    read_report,
    read_report_file,
)
from ...tools.commands import ShellStep
from ...tools.process import CommandResult
from ...tools.sandbox import Sandbox, SandboxMode
from .runners import Runner, runner_of

__all__ = ["TestCommand", "TestRun", "feedback_of", "isolated"]

EACH = 2_000  # characters of one failing test in the feedback
ALL = 8_000  # characters of the feedback
INSTALLED = (
    ".git",
    ".venv",
    "venv",
    "node_modules",
    ".tox",
    "__pycache__",
)  # without bytecode of the loop
MAX_FILES = 10_000  # report files that a pattern may match


@dataclass(frozen=True, slots=True)
class TestRun:
    """How a test command ended. `report` is None if only the exit code is known.

    `problem` says why there is no complete report although one was expected, and `missing` whether none was
    written. `folder` is where the tests of pytest are.
    """

    __test__ = False  # pytest would collect a class of this name

    result: CommandResult
    report: TestReport | None = None
    problem: str = ""
    missing: bool = False
    folder: Path | None = None

    def shown(self, name: str) -> str:
        """Return the id of a test as its program takes it: that of pytest has the file, which reports lack."""
        module, mark, rest = name.partition("::")
        parts = module.split(".")
        for count in range(len(parts) if self.folder is not None else 0, 0, -1):
            path = "/".join(parts[:count]) + ".py"
            if self.folder is not None and (self.folder / path).is_file():
                return "::".join([path, *parts[count:], *([rest] if mark else [])])
        return name


@dataclass(frozen=True)
class TestCommand:
    """A test command with its report.

    Args:
        command: A list of words, or the text of a script for `/bin/sh -e`.
        report: `auto` asks a known test program for a report; `none` uses the exit code; `stdout` is a
            report that the command prints; another text is a file or a pattern of files in the folder.
        timeout: Seconds until the command is ended.
        env: More environment variables.
        pass_env: Names of our variables that are passed on.
        sandbox: The isolation of the command.
    """

    __test__ = False  # pytest would collect a class of this name

    command: Sequence[str] | str
    report: str = "auto"
    timeout: float | None = 600
    env: Mapping[str, str] | None = None
    pass_env: Sequence[str] = ()
    sandbox: Sandbox = field(default_factory=Sandbox)

    @property
    def runner(self) -> Runner | None:
        """The known test program in the command, if a variable makes it write the report that is wanted."""
        runner = runner_of(self.command) if self.report == "auto" else None
        return runner if runner is not None and runner.variables else None

    @property
    def planted(self) -> Runner | None:
        """The known test program in the command, if its report shows tests that are added."""
        runner = runner_of(self.command)
        if runner is None or runner.variables:
            return self.runner
        return runner if self.has_report else None

    @property
    def has_report(self) -> bool:
        """Whether more than the exit code is known of the tests."""
        return self.runner is not None or self.report not in ("auto", "none")

    async def run(
        self,
        folder: Path,
        ctx: Context,
        variables: Mapping[str, str] | None = None,
        *,
        words: str = "",
        asks: bool = True,
        writable: Sequence[Path] = (),
        read_only: Sequence[Path] = (),
        hide: Sequence[Path] = (),
    ) -> TestRun:
        """Run the command in a folder and read its report.

        Args:
            folder: the working directory.
            ctx: the context of the evaluator.
            variables: more environment variables.
            words: more options for pytest.
            asks: whether the test program is asked for a report; without, the command runs as it is written.
            writable: folders that the command may change in a sandbox, besides its working directory.
            read_only: what it may not change in them.
            hide: what it may not read.

        Raises:
            EvaluationError: of kind `evaluator_broken` if the command cannot run, of kind `check_error` at
                its timeout.
        """
        # A random name outside of the folder: the tested code must not find it there.
        with tempfile.TemporaryDirectory(prefix="loopwright-") as scratch:
            place = Path(scratch) / secrets.token_hex(8)
            env = {"PYTHONDONTWRITEBYTECODE": "1"}
            files = None if ctx.scope is None else ctx.scope.files
            if files is not None:
                await in_thread(remove_bytecode, files.root)
            if self.runner is not None and asks:
                env |= self.runner.environment(place, words)
            step = ShellStep(
                self.command,
                name="tests",
                stdin="",
                env={**env, **(self.env or {}), **(variables or {})},
                pass_env=self.pass_env,
                cwd=folder,
                timeout=self.timeout,
                sandbox=replace(
                    self.sandbox.within(scratch, *writable),
                    read_only=read_only,
                    hide=(*self.sandbox.hide, *hide),
                ),
            )
            result = await run_check(step, "", ctx)
            if ctx.run.stubs is not None or not (self.has_report and (asks or self.runner is None)):
                return TestRun(result)
            return await in_thread(self._read, result, place, folder)

    def _read(self, result: CommandResult, place: Path, folder: Path) -> TestRun:
        try:
            report = self._report(result, place, folder)
        except UnreadableReport as error:
            return TestRun(result, None, f"its report cannot be read: {error}")
        except OSError as error:
            return TestRun(result, None, f"it wrote no report: {error.strerror}", missing=True)
        if report.problem:
            return TestRun(result, None, f"its report is not complete: {report.problem}")
        named = self.runner is not None and self.runner.name == "pytest"
        return TestRun(result, report, folder=folder if named else None)

    def _report(self, result: CommandResult, place: Path, folder: Path) -> TestReport:
        runner = self.runner
        if self.report == "stdout" or (runner is not None and runner.prints_report):
            return read_report(result.stdout.encode())
        if runner is not None:
            return read_report_file(place)
        files = sorted(folder.glob(self.report))[:MAX_FILES]
        if not files:
            raise FileNotFoundError(2, f"no file matches {self.report}")
        return merged(read_report_file(file) for file in files)


def remove_bytecode(folder: Path) -> None:
    """Remove the bytecode of Python in a folder, except that of installed packages.

    It is found by the second and the size of its source, so that of an edit within one second would be run in
    place of the new source. A cache elsewhere (PYTHONPYCACHEPREFIX) costs more: it is empty for each check, and
    Python compiles the standard library and pytest again, 1.9 s of CPU time.
    """
    for place, names, _ in os.walk(folder):
        if "__pycache__" in names:
            shutil.rmtree(Path(place, "__pycache__"), ignore_errors=True)
        names[:] = [name for name in names if name not in INSTALLED]


def feedback_of(measured: TestRun, failures: Sequence[TestCase]) -> str:
    """Return the failing tests with their messages, shortest first; without any, the output's tail."""
    if not failures:
        return output_of(measured.result)[-ALL:]
    # Short messages are assertions, long ones are often traces of one common cause.
    ordered = sorted(failures, key=lambda case: len(case.text))
    texts = [
        f"{measured.shown(case.id)}: {case.message}\n{case.text}"[:EACH].strip() for case in ordered
    ]
    shown, left = [], ALL
    for text in texts:
        if len(text) > left:
            break
        shown.append(text)
        left -= len(text) + 2
    if len(shown) < len(texts):
        names = ", ".join(measured.shown(case.id) for case in ordered[len(shown) :])
        shown.append(f"and {len(texts) - len(shown)} more: {names}"[: max(left, 200)])
    return "\n\n".join(shown)


def isolated(sandbox: Sandbox | SandboxMode) -> Sandbox:
    """Return the sandbox of a check; that of a word has no network."""
    return Sandbox(sandbox, network=False) if isinstance(sandbox, str) else sandbox


def unusable(name: str, measured: TestRun) -> EvaluationError:
    """Return the error of a test command that says nothing about its tests."""
    printed = output_of(measured.result)
    why = measured.problem or "no test ran"
    text = f"{name}: {why}, and the command {measured.result.ending}"
    return broken(f"{text}{f': {printed}' if printed else ''}")
