"""`sealed_metric`: a metric that is measured in a clean copy, with the protected files of the base."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...engine.context import Context
from ...engine.step import FunctionStep, Step, digest_of
from ...evaluators.metric import Measurement, repeated
from ...records import Evaluation
from ...records.codec import Json
from ...tools.process import CommandResult
from ...tools.sandbox import Sandbox, SandboxMode
from .feedback import evaluation_as_written, evaluation_of_exit, rejected, touched
from .measure import TestCommand, TestRun, isolated
from .record import SealOptions
from .runners import runner_of
from .sealed_check import SealedCheck, changed_sentence
from .watch import ChangedFiles

__all__ = ["sealed_metric"]


def sealed_metric(
    name: str,
    command: Sequence[str] | str,
    *,
    pattern: str = "",
    unit: str = "",
    repeats: int = 1,
    take: str = "median",
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
        unit: The unit, for the feedback, such as `s`. Default: none.
        repeats: How often it is measured. Default: 1.
        take: The value of several measurements: `median`, `mean`, `min` or `max`. Default: `median`.
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
    measurement = Measurement(name, unit, pattern, at_once, idea)
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

    async def evaluate(value: Json, ctx: Context) -> Evaluation:
        del value
        # Without a workspace there is no base, and a dry run has a stub in place of the command.
        if ctx.scope is None or ctx.scope.files is None or ctx.run.stubs is not None:
            return await measurement.of(lambda: _run_here(runs, cwd, ctx), ctx)
        check = SealedCheck(name, runs, options, cwd, ctx)
        change, tampered = await check.protect_present()
        if tampered is not None and tampered.rejected:
            return rejected(name, tampered)
        tree = await check.sealed_tree(change)
        try:
            evaluation = check.shown(await measurement.of(lambda: check.run_on(tree), ctx))
        except ChangedFiles as error:
            return rejected(name, check.forged(changed_sentence(error)))
        return evaluation if tampered is None else touched(evaluation, tampered)

    meaning = repr((command, sorted(env or {}), tuple(pass_env), options))
    step = FunctionStep(
        evaluate,
        name=name,
        fingerprint=digest_of("sealed metric", repr(measurement.reading), meaning),
        reports=False,
    )
    before = [_gate(name, replace(runs, command=gate), options=options, cwd=cwd) for gate in gates]
    return repeated(step, repeats=repeats, take=take, gates=before)


def _gate(
    name: str, runs: TestCommand, *, options: SealOptions, cwd: str | Path | None
) -> FunctionStep[object, Evaluation]:
    """Return a check of the same clean copy by the exit code of a command."""
    label = runs.command if isinstance(runs.command, str) else shlex.join(runs.command)

    async def evaluate(value: Json, ctx: Context) -> Evaluation:
        del value
        if ctx.scope is None or ctx.scope.files is None or ctx.run.stubs is not None:
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
