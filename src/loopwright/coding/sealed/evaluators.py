"""The evaluators `tests`, the share of tests that pass, and `sealed_metric`, a metric measured in a clean copy.

Both use the protected files of the base. `tests` names the tests that fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...engine.context import Context
from ...engine.early import Early
from ...engine.step import Function, FunctionStep, Step, digest_of
from ...errors import ConfigurationError
from ...evaluators.metric import Measurement, repeated
from ...records import Criterion, Evaluation
from ...records.codec import Json
from ...tools.process import CommandResult
from ...tools.sandbox import Sandbox, SandboxMode
from .clean_copy import ChangedFiles
from .measure import TestCommand, TestRun, feedback_of, isolated, runner_of, unusable
from .sealed_check import SealedCheck, changed_sentence
from .verdict import (
    LISTED,
    NAMED,
    Sealed,
    SealOptions,
    evaluation_as_written,
    evaluation_of_exit,
    rejected,
    touched,
)

__all__ = [
    "sealed_metric",
    "sealed_metric_of",
    "tests",
]


class TestsStep(FunctionStep[object, Evaluation]):
    """The step that `tests` makes: in a loop with a workspace, the base is measured before the first iteration."""

    __test__ = False  # pytest would collect a class of this name
    __slots__ = ("conclusion", "preparation")
    preparation: FunctionStep[object, Json] | None
    conclusion: FunctionStep[int, Json] | None

    def preparations(self) -> Iterable[Step]:
        return () if self.preparation is None else (self.preparation,)

    def conclusions(self) -> Iterable[Step]:
        return () if self.conclusion is None else (self.conclusion,)


@dataclass(frozen=True)
class _Check:
    """The functions of the steps of one `tests`.

    Args:
        name: the name of the criterion.
        runs: the test command.
        options: what is protected, and what follows.
        cwd: the working directory that the caller names, or None.
        sealed: whether the check is sealed in a loop with a workspace.
    """

    name: str
    runs: TestCommand
    options: SealOptions
    cwd: str | Path | None
    sealed: bool

    def step(self) -> TestsStep:
        """Return the evaluator, with the steps before and after the iterations."""
        preparation = self._step(self.prepare, "prepare", "tests sealed") if self.sealed else None

        async def evaluate(value: Json, ctx: Context) -> Evaluation:
            del value
            return await self.evaluate(preparation, ctx)

        async def conclude(number: int, ctx: Context) -> Json:
            assert preparation is not None
            return await self.conclude(preparation, number, ctx)

        step = TestsStep(evaluate, name=self.name, fingerprint=self._digest("tests"), reports=False)
        step.preparation, step.words = preparation, self.runs.words
        held_out = bool(self.options.held_out)
        step.conclusion = self._step(conclude, self.name, "tests held out") if held_out else None
        return step

    def _step(self, function: Function, name: str, kind: str) -> FunctionStep:
        return FunctionStep(function, name=name, fingerprint=self._digest(kind), reports=False)

    def _digest(self, kind: str) -> str:
        runs, options = self.runs, self.options
        # Without the options of a sealed check as long as they are the usual ones: earlier runs can be resumed.
        meaning = [repr((runs.command, runs.report, sorted(runs.env or {}), tuple(runs.pass_env)))]
        if not self.sealed or options != SealOptions():
            # The place of the held-out tests differs between machines.
            portable = replace(options, held_out=str(bool(options.held_out)))
            meaning.append(repr((self.sealed, portable)))
        return digest_of(kind, *meaning)

    async def prepare(self, _: Json, ctx: Context) -> Json:
        """Measure the base before the first iteration, and return its record."""
        return (await self._in(ctx).prepare()).to_json()

    async def conclude(self, preparation: Step, number: int, ctx: Context) -> Json:
        """Run the held-out tests on the chosen iteration."""
        assert ctx.scope is not None
        record = Sealed.from_json(ctx.scope.prepared[preparation.fingerprint])
        return await self._in(ctx).conclude(record, number)

    async def evaluate(self, preparation: Step | None, ctx: Context) -> Evaluation:
        """Check one iteration: sealed in a loop with a workspace, else in its folder."""
        scope = ctx.scope
        files = None if scope is None else scope.files
        if preparation is None or scope is None or files is None:
            return await self._unsealed(ctx)
        record: Json = scope.prepared.get(preparation.fingerprint)
        if record is None and files.current is None:
            # A step of its own, and not the evaluator of a loop: there is no iteration to compare.
            return await self._unsealed(ctx)
        if record is None:
            record = await ctx.call("prepare", preparation)
        return await self._in(ctx).evaluate(Sealed.from_json(record))

    async def _unsealed(self, ctx: Context) -> Evaluation:
        return evaluation_of(self.name, self.runs, await self.runs.run(Path(self.cwd or "."), ctx))

    def _in(self, ctx: Context) -> SealedCheck:
        return SealedCheck(self.name, self.runs, self.options, self.cwd, ctx)


def tests(
    command: Sequence[str] | str,
    *,
    report: str = "auto",
    name: str = "tests",
    timeout: float | None = 600,
    env: Mapping[str, str] | None = None,
    pass_env: Sequence[str] = (),
    cwd: str | Path | None = None,
    sandbox: Sandbox | SandboxMode = "none",
    sealed: bool = True,
    protect: Sequence[str] = ("auto",),
    allow: Sequence[str] = (),
    allow_new: bool = True,
    on_tamper: str = "put_back",
    setup: Sequence[str] | str = "",
    link: Sequence[str] = (),
    held_out: str | Path = "",
    held_out_every: bool = False,
    held_out_required: bool = False,
) -> FunctionStep[object, Evaluation]:
    """Make an evaluator that runs a test command in the folder of the loop.

    The score is the share of tests that pass. `passed` means that the command exits with 0 and no test
    fails. `details[name]` has `passing`, `total` and `failing`, the ids of the failing tests. A command
    without a report passes or fails by its exit code.

    In a loop with a workspace the check is sealed: it runs in a clean copy with the protected files as they
    were before the first iteration, and its result is compared with that of the unchanged files. An iteration
    that changed protected files, or whose result is not to be believed, has `Evaluation.tampered`. If it passes,
    the command runs once more as it is written, on the files that the iteration leaves, with tests that it
    added; if that fails, the iteration has not passed, and it counts as one more test.

    Args:
        command: A list of words, or the text of a script for `/bin/sh -e`. It is constant.
        report: `auto` asks pytest, node, go or gotestsum for a report; `none` uses the exit code; `stdout`
            is a report that the command prints; another text is a file, or a pattern of files, that it
            writes. JUnit's XML, TRX, `go test -json` and TAP are read. Default: `auto`.
        name: The name of the criterion. Default: "tests".
        timeout: Seconds until the command and its processes are ended. Default: 600.
        env: More environment variables.
        pass_env: Names of our variables that are passed on.
        cwd: The folder. Default: that of the loop's workspace, else that of this process.
        sandbox: The isolation of the command, as in `shell`; a word means one without a network. Default: `none`.
        sealed: Whether the check of a loop with a workspace is sealed. Default: true.
        protect: Patterns of files that an iteration must not change; `auto` stands for the tests, the settings
            of the test program, lock files and the scripts in the command. Default: `auto`.
        allow: Patterns of files that may change although `protect` covers them.
        allow_new: Whether an iteration may add tests. They count only in the last run. Default: true.
        on_tamper: What follows a change of protected files: `put_back` restores them, `reject` also discards
            the iteration, `stop` also ends the loop. Default: `put_back`.
        setup: A command that prepares the clean copy. Default: that of the workspace.
        link: Folders of yours that the copy contains as links. Default: those of the workspace.
        held_out: A folder of tests that the agent cannot read. They run at the end of the loop, in a folder
            of the clean copy, and `Result.held_out` has their figures. Default: none.
        held_out_every: Whether they run in each iteration. Default: false.
        held_out_required: Whether an iteration passes only if they pass. Default: false.

    Returns:
        A step from any output to an Evaluation.

    Raises:
        ConfigurationError: For an invalid option.
        EvaluationError: At run time, of kind `evaluator_broken` if the command cannot run or its report is
            missing; of kind `check_error` at its timeout.

    Example:
        >>> from loopwright import run_sync
        >>> run_sync(tests("printf '1..2\\\\nok 1 - adds\\\\nnot ok 2 - divides\\\\n'", report="stdout"), "").output.score
        0.5
    """
    runs = TestCommand(
        command,
        report=report,
        timeout=timeout,
        env=env,
        pass_env=pass_env,
        sandbox=isolated(sandbox),
    )
    options = SealOptions.of(
        name,
        protect=protect,
        allow=allow,
        allow_new=allow_new,
        on_tamper=on_tamper,
        setup=setup,
        link=link,
        # Now, because the folder of the process may be another one later.
        held_out=str(Path(held_out).expanduser().absolute()) if held_out else "",
        held_out_every=held_out_every,
        held_out_required=held_out_required,
    )
    if held_out and not (sealed and runs.has_report):
        raise ConfigurationError(
            f"{name}: held_out needs a sealed check with a report; name a test program, or its report"
        )
    return _Check(name, runs, options, cwd, sealed).step()


setattr(tests, "__test__", False)  # noqa: B010  # pytest would collect it as a test


def evaluation_of(name: str, runs: TestCommand, measured: TestRun) -> Evaluation:
    """Return the evaluation of one run of a test command.

    Raises:
        EvaluationError: if the report is missing, or no test ran.
    """
    ended = measured.result
    if measured.report is None:
        # Without an expected report, an exit code says nothing about single tests.
        if measured.problem and runs.has_report:
            raise unusable(name, measured)
        return evaluation_of_exit(name, measured)
    failures = measured.report.failures
    passing = measured.report.passing
    total = passing + len(failures)
    if not total:
        raise unusable(name, measured)
    # For example a coverage limit: the tests pass, the command does not.
    failed = ended.exit_code != 0 and not failures
    gap = f"{passing} of {total} tests pass"
    if failed:
        gap += f", but the command {ended.ending}"
    passed = not failures and ended.exit_code == 0
    feedback = gap if passed else f"{gap}\n{feedback_of(measured, failures)}"
    return Evaluation(
        # One more failing test, so that the score stays below 1.
        passing / (total + failed),
        passed,
        feedback,
        tuple(f"{measured.shown(case.id)}: {case.message}"[:NAMED] for case in failures[:LISTED]),
        (Criterion(name, passed, "" if passed else gap),),
        details={
            name: {
                "passing": passing,
                "total": total,
                "failing": sorted(case.id for case in failures),
            }
        },
    )


def sealed_metric(
    name: str,
    command: Sequence[str] | str,
    *,
    pattern: str = "",
    early: Early | None = None,
    gates: Sequence[Sequence[str] | str] = (),
    at_once: int = 1,
    idea: str = "IDEA.txt",
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    pass_env: Sequence[str] = (),
    cwd: str | Path | None = None,
    sandbox: Sandbox | SandboxMode = "none",
    protect: Sequence[str] = (),
    allow: Sequence[str] = (),
    on_tamper: str = "put_back",
    setup: Sequence[str] | str = "",
    link: Sequence[str] = (),
) -> Step[object, Evaluation]:
    """Make an evaluator that measures one number in a clean copy, with the protected files of the base.

    It needs a loop with a workspace. A protected file that an iteration changed does not count: the command
    reads that of the base, and the file is put back. Otherwise it is as `metric`.

    Args:
        name: The name of the metric.
        command: A list of words, or the text of a script for `/bin/sh -e`. Its standard input is empty.
        pattern: A regular expression whose first group, or complete match, is the number. Default: the last
            line is the number.
        early: When the command ends early. Default: never.
        gates: Commands that must exit with 0 before anything is measured. They run in a clean copy too.
        at_once: How many measurements of this user run on the machine at a time; 0 is no limit. Default: 1.
        idea: A file of the workspace whose first line describes the change. Default: `IDEA.txt`.
        timeout: Seconds until the command is ended. Default: no limit.
        env: More environment variables.
        pass_env: Names of our variables that the command receives.
        cwd: The folder. Default: that of the workspace.
        sandbox: The isolation of the command, as in `tests`. Default: `none`.
        protect: Patterns of files that an iteration must not change, such as the program that measures. `auto`
            adds the usual ones of `tests` and the scripts in the command. Default: none, because the command may
            start the program that the agent improves.
        allow: Patterns of files that may change although `protect` covers them.
        on_tamper: What follows a change of them: `put_back`, `reject` or `stop`. Default: `put_back`.
        setup: A command that prepares the clean copy. Default: that of the workspace.
        link: Folders of yours that the copy contains as links. Default: those of the workspace.

    Returns:
        A step from any output to an Evaluation.

    Raises:
        ConfigurationError: For an invalid option.
        EvaluationError: At run time, as those of `metric`.

    Example:
        >>> sealed_metric("loss", ["python", "train.py"], protect=["evaluate.py"]).name
        'loss'
    """
    measurement = Measurement(name, "", pattern, at_once, idea, early)
    runs = TestCommand(
        command,
        report="none",
        timeout=timeout,
        env=env,
        pass_env=pass_env,
        sandbox=isolated(sandbox),
    )
    options = SealOptions.of(
        f"metric {name}",
        protect=protect,
        allow=allow,
        on_tamper=on_tamper,
        setup=setup,
        link=link,
    )
    return sealed_metric_of(measurement, runs, options, cwd=cwd, gates=gates)


def sealed_metric_of(
    measurement: Measurement,
    runs: TestCommand,
    options: SealOptions,
    *,
    cwd: str | Path | None,
    gates: Sequence[Sequence[str] | str],
    repeats: int = 1,
    take: str = "median",
) -> Step[object, Evaluation]:
    """Return the evaluator of a sealed measurement; documents that are recorded with a run repeat it here."""
    name = measurement.name

    async def evaluate(value: Json, ctx: Context) -> Evaluation:
        del value
        # Without a workspace, such as in a dry run, there is no base.
        if ctx.scope is None or ctx.scope.files is None:
            return await measurement.of(
                lambda watch: _run_here(replace(runs, watch=watch), cwd, ctx), ctx
            )
        check = SealedCheck(name, runs, options, cwd, ctx)
        change, tampered = await check.protect_present()
        if tampered is not None and tampered.rejected:
            return rejected(name, tampered)
        tree = await check.sealed_tree(change)
        try:
            measured = await measurement.of(lambda watch: check.run_on(tree, watch), ctx)
            evaluation = check.shown(measured)
        except ChangedFiles as error:
            return rejected(name, check.forged(changed_sentence(error)))
        return evaluation if tampered is None else touched(evaluation, tampered)

    meaning = repr((runs.command, sorted(runs.env or {}), tuple(runs.pass_env), options))
    step = FunctionStep(
        evaluate,
        name=name,
        fingerprint=digest_of("sealed metric", measurement.meaning, meaning),
        reports=False,
    )
    step.words, step.early = runs.words, measurement.early is not None
    before = [_gate(name, replace(runs, command=gate), options=options, cwd=cwd) for gate in gates]
    return repeated(step, repeats=repeats, take=take, gates=before)


def _gate(
    name: str, runs: TestCommand, *, options: SealOptions, cwd: str | Path | None
) -> FunctionStep[object, Evaluation]:
    """Return a check of the same clean copy by the exit code of a command."""
    label = runs.words

    async def evaluate(value: Json, ctx: Context) -> Evaluation:
        del value
        if ctx.scope is None or ctx.scope.files is None:
            return evaluation_of_exit(label, TestRun(await _run_here(runs, cwd, ctx)))
        # The name of the metric, whose copy it shares.
        check = SealedCheck(name, runs, options, cwd, ctx)
        change, _ = await check.protect_present()
        tree = await check.sealed_tree(change)
        try:
            evaluation = evaluation_of_exit(label, TestRun(await check.run_on(tree)))
            if change is not None and evaluation.passed and runner_of(runs.command) is not None:
                left = await check.left_tree(change)
                if left != tree:
                    # With the tests that the agent added, which the user gets.
                    run = TestRun(await check.run_on(left))
                    if run.result.exit_code:
                        evaluation = evaluation_as_written(
                            label, evaluation, run, run, change.left_out
                        )
        except ChangedFiles as error:
            return rejected(label, check.forged(changed_sentence(error)))
        return check.shown(evaluation)

    meaning = digest_of("sealed gate", repr((runs.command, options)))
    return FunctionStep(
        evaluate, name=Path(label.split()[0]).name, fingerprint=meaning, reports=False
    )


async def _run_here(runs: TestCommand, cwd: str | Path | None, ctx: Context) -> CommandResult:
    """Run the command in the folder itself: without a workspace there is no base."""
    return (await runs.run(Path(cwd or "."), ctx)).result
