"""A check on the files of an iteration, in a clean copy with the protected files of the base.

1. The base is measured twice before the first iteration; the record of it is what later runs are compared with.
2. A check that would pass runs once more, as it is written, on the files that the iteration leaves: a canary hides
   the exit code, and tests of the agent are part of what the user gets.
3. Nothing of a check is decided in the workspace, and nothing that it writes reaches the next check.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ...engine.context import Context
from ...engine.functions import in_thread
from ...errors import EvaluationError, StepError
from ...evaluators.check import broken
from ...evaluators.test_report import TestReport
from ...records import Evaluation, Tampering
from ...records.codec import Json
from ...tools.process import CommandResult, OnOutput, inherited
from ...tools.sandbox import sandbox_problem
from ..workspace.handover import paths_with_secrets, without_changes
from ..workspace.store import PUT_BACK
from .clean_copy import (
    ChangedFiles,
    CleanCopy,
    ProtectedWatch,
    blob,
    entries_of,
    entry_of,
    environment,
    tree_with,
)
from .measure import (
    Baseline,
    Canary,
    Runner,
    TestCommand,
    TestRun,
    baseline_of,
    imports_outside,
    modules_of,
    outside,
    paths_for,
    plant,
    unusable,
)
from .protected import Protection, TreeChange, TreeEntry
from .verdict import (
    SHOWN,
    Sealed,
    SealOptions,
    evaluation_as_written,
    evaluation_of_base,
    evaluation_of_exit,
    evaluation_of_tests,
    failing_of,
    gated,
    held_out_figures,
    rejected,
    suspicious_lines,
    touched,
    unsatisfied,
    verdict_of,
    with_details,
)

if TYPE_CHECKING:
    from ...engine.files import Snapshots
    from ..workspace.workspace import Files

__all__ = ["SealedCheck", "changed_sentence"]

WITHOUT_CANARIES = "check_without_canaries"  # codes of warnings
FLAKY = "flaky_tests"
MAX_PATCH = 2_000_000  # characters of a change in which signs are looked for


@dataclass
class SealedCheck:
    """The check of one loop, in one process.

    Args:
        name: the name of the criterion.
        command: the test command.
        options: what is protected, and what follows.
        cwd: the working directory that the document names, or None.
        ctx: the context of the evaluator.
    """

    name: str
    command: TestCommand
    options: SealOptions
    cwd: str | Path | None
    ctx: Context
    files: Snapshots = field(init=False)
    # What the runs of one call share: the protected files and what the check writes on the base, both once
    # known, and a name for what the files of the iteration install.
    _watched: Mapping[str, TreeEntry] = field(init=False, default_factory=dict)
    _written: frozenset[str] | None = field(init=False, default=frozenset())
    _measures_base: bool = field(init=False, default=False)
    _installed: str = field(init=False, default="")

    def __post_init__(self) -> None:
        scope = self.ctx.scope
        assert scope is not None
        assert scope.files is not None
        self.files = scope.files
        # Those of the workspace are shown to every command in it.
        links = [self._state.source / link for link in self.options.link]
        self.command = replace(self.command, sandbox=self.command.sandbox.within(readable=links))

    async def prepare(self) -> Sealed:
        """Measure the base and return its record.

        Raises:
            EvaluationError: of kind `evaluator_broken`, if the check cannot run on the base.
        """
        base = self.files.base["commit"]
        entries = await in_thread(entries_of, self._state.tree.store, base)
        rules = self._rules
        self._watched = await in_thread(rules.protected, entries, self._read)
        self._measures_base = True
        protected = await in_thread(rules.listed, entries, self._read)
        tests = sorted(path for path in entries if rules.is_test(path))
        modules = modules_of(entries)
        try:
            copy = await self._put(base)
        except StepError as error:
            raise broken(f"{self.name}: {error}") from error
        paths = await self._import_paths(copy, modules)
        if not self.command.has_report:
            sealed = await self._exit_codes(protected, paths)
        else:
            sealed = await self._reports(protected, tests, modules, paths)
        return replace(sealed, evaluation=self.shown(sealed.evaluation), written=self._written)

    async def _outside(
        self, copy: Path, modules: Mapping[str, str], paths: tuple[str, ...]
    ) -> dict[str, str]:
        own = {**inherited(self.command.pass_env), **(self.command.env or {})}
        return await outside(copy, modules, {**own, **self._variables(paths)})

    async def _exit_codes(self, protected: dict[str, str], paths: tuple[str, ...]) -> Sealed:
        """Measure the base of a command of which only the exit code is known."""
        base = self.files.base["commit"]
        codes = []
        # A check that is flaky on the base would decide later iterations by chance.
        for _ in range(2):
            measured = await self._measured(base, paths)
            codes.append(measured.result.exit_code)
        if (codes[0] == 0) != (codes[1] == 0):
            self.ctx.warn(
                f"the check is flaky: on the same files it exited with {codes[0]} and with {codes[1]}",
                code=FLAKY,
            )
        return Sealed(protected, None, "none", paths, evaluation_of_exit(self.name, measured))

    async def _reports(
        self,
        protected: dict[str, str],
        tests: Sequence[str],
        modules: Mapping[str, str],
        paths: tuple[str, ...],
    ) -> Sealed:
        """Measure the base of a command with a report."""
        base = self.files.base["commit"]
        first, mode, canary = await self._first(tests, modules, paths)
        if canary is not None and (places := canary.imported(_report(first))):
            # The process of the tests has an import path of its own.
            paths = paths_for(modules)
            first, mode, canary = await self._first(tests, modules, paths)
            if canary is not None and (places := canary.imported(_report(first))):
                raise broken(f"{self.name}: {imports_outside(places)}")
        if canary is None:
            if self.command.planted is not None:
                self.ctx.warn(
                    f"{self.name} does not run tests that are added beside the others, so a forged report may not "
                    "be noticed; name a folder in its command, and leave out options such as -k and -x",
                    code=WITHOUT_CANARIES,
                )
        elif wrong := canary.holds(_report(first)):
            raise broken(f"{self.name}: on the unchanged files, {wrong}")
        # Without canaries, so that the exit code is that of the tests.
        second = await self._measured(base, paths)
        if second.report is None:
            raise unusable(self.name, second)
        report = _report(first) if canary is None else canary.without(_report(first))
        # Of the other programs a variable or their default makes them run all tests.
        own = canary is not None and self.command.runner is None
        if own and second.report.states.keys() - report.states.keys():
            raise broken(
                f"{self.name}: the test program stops at the first failing test, so its report has no score; "
                "make it run all tests, such as with --no-fail-fast"
            )
        baseline = baseline_of(report, second.report)
        if not baseline.states:
            raise unusable(self.name, second)
        if baseline.flaky:
            self.ctx.warn(
                f"{len(baseline.flaky)} tests are flaky and do not count, such as {baseline.flaky[0]}",
                code=FLAKY,
            )
        evaluation = evaluation_of_base(self.name, second, baseline)
        if self.options.held_out:
            # A folder without tests is noticed here, and not after the cost of the loop.
            figures = await self.held_out(base, baseline, paths)
            if self.options.held_out_required:
                evaluation = gated(evaluation, figures)
        return Sealed(protected, baseline, mode, paths, evaluation)

    async def _first(
        self, tests: Sequence[str], modules: Mapping[str, str], paths: tuple[str, ...]
    ) -> tuple[TestRun, str, Canary | None]:
        """Run the check on the base, and find out how it runs canaries."""
        base, runner = self.files.base["commit"], self.command.planted
        for mode in ("beside", "named"):
            if runner is None:
                break
            canary = await self._canary(base, tests, modules)
            named = mode == "named"
            if canary is None or (named and runner.name != "pytest"):
                break
            measured = await self._measured(base, paths, canary, named=named)
            if measured.report is None:
                raise unusable(self.name, measured)
            if canary.is_reported(measured.report):
                # An added name must not replace the tests that the command finds without one.
                others = canary.without(measured.report).cases
                if others or not named:
                    return measured, mode, canary
        measured = await self._measured(base, paths)
        if measured.report is None:
            raise unusable(self.name, measured)
        return measured, "none", None

    async def evaluate(self, sealed: Sealed) -> Evaluation:
        """Return the evaluation of the files of the present iteration."""
        if self.files.current is None:
            return sealed.evaluation  # before the first iteration, of the base
        self._written = sealed.written
        change = await self._change(self.files.current["commit"])
        tampered = await in_thread(self._tampering, change)
        if tampered is not None and tampered.rejected:
            return rejected(self.name, tampered)
        outdated = self._outdated(change)
        try:
            evaluation = await self._judged(sealed, change, complete=not outdated)
            if self.options.held_out and not outdated:
                evaluation = await self._with_held_out(evaluation, sealed, change)
        except ChangedFiles as error:
            return rejected(self.name, self.forged(changed_sentence(error)))
        except EvaluationError as error:
            if error.kind != "check_error":
                raise
            # On the base it ended in time, so the iteration is the cause.
            return Evaluation(0.0, False, str(error), tampered=tampered)
        except StepError as error:
            if not self._installed:
                raise
            return Evaluation(0.0, False, f"{self.name}: {error}", tampered=tampered)
        if outdated and evaluation.tampered is None:
            evaluation = (
                unsatisfied(self.name, evaluation, outdated, ["what is installed"])
                if evaluation.passed
                else replace(evaluation, feedback=f"{outdated}\n{evaluation.feedback}")
            )
        evaluation = self.shown(evaluation)
        signs = await in_thread(self._signs, change)
        if signs:
            evaluation = with_details(self.name, evaluation, {"suspicious": signs})
        # A result that is not to be believed stays so, whatever else the iteration did.
        if tampered is None or evaluation.tampered is not None:
            return evaluation
        return touched(evaluation, tampered)

    async def _change(self, commit: str) -> TreeChange:
        """Return what the files of an iteration change of the check."""
        store, base = self._state.tree.store, self.files.base["commit"]
        before = await in_thread(entries_of, store, base)
        after = await in_thread(entries_of, store, commit)
        change = await in_thread(self._rules.changes, before, after, self._read)
        self._watched = {} if self._written is None else change.protected
        for content in change.partial.values():
            await in_thread(
                lambda data: store.git("hash-object", "-w", "--stdin", stdin=data), content
            )
        names = [f"{path} {after.get(path)}" for path in change.installed]
        usable = names and not self._outdated(change)
        self._installed = sha256("\n".join(names).encode()).hexdigest() if usable else ""
        return change

    def _outdated(self, change: TreeChange) -> str:
        """Return why what the files install cannot be installed, or ""."""
        if not change.installed:
            return ""
        what = f"{', '.join(change.installed[:SHOWN])} changed, and with it what is installed"
        if not self._copy.setup:
            return f"{what}; the check needs a command that installs it, --setup (setup: in a document)"
        sandbox = self.command.sandbox
        # Installing runs code that the agent chose.
        if not sandbox.used or (not sandbox.wrap and sandbox_problem()):
            return f"{what}; its setup runs only in a sandbox, and here is none"
        return ""

    async def protect_present(self) -> tuple[TreeChange | None, Tampering | None]:
        """Return what the present iteration changed of the check, and what follows; None before the first one."""
        if self.files.current is None:
            return None, None
        change = await self._change(self.files.current["commit"])
        return change, await in_thread(self._tampering, change)

    async def sealed_tree(self, change: TreeChange | None) -> str:
        """Return the tree of an iteration with the protected files of the base, without its new tests."""
        base: str = self.files.base["commit"]
        return base if change is None else await in_thread(self._tree, change.clean)

    async def left_tree(self, change: TreeChange) -> str:
        """Return the tree that the user gets: with new and moved tests, without files that have a key."""
        return await in_thread(self._left, change)

    def _left(self, change: TreeChange) -> str:
        state, tree = self._state, self._tree(change.put_back)
        if state.settings.secrets == "drop":
            store = state.tree.store
            if found := paths_with_secrets(store, state.base, tree, state.redactor):
                return store.tree_of(without_changes(store, state.base, tree, found))
        return tree

    def _tree(self, entries: Mapping[str, TreeEntry]) -> str:
        commit = self.files.base if self.files.current is None else self.files.current
        return tree_with(self._state.tree.store, commit["commit"], entries)

    def _read(self, digest: str) -> bytes:
        return blob(self._state.tree.store, digest)

    async def run_on(self, tree: str, watch: OnOutput | None = None) -> CommandResult:
        """Run the command on a tree in the clean copy; `watch` receives its output.

        Raises:
            EvaluationError: of kind `evaluator_broken`, if it cannot run, or if it would import the code from
                elsewhere.
        """
        base = self.files.base["commit"]
        self.command = replace(self.command, watch=watch)
        try:
            copy = await self._put(tree)
        except StepError as error:
            raise broken(f"{self.name}: {error}") from error
        if self._copy.paths is None:
            modules = modules_of(await in_thread(entries_of, self._state.tree.store, base))
            self._copy.paths = await self._import_paths(copy, modules)
        return (await self._measured(tree, self._copy.paths)).result

    async def _import_paths(self, copy: Path, modules: Mapping[str, str]) -> tuple[str, ...]:
        """Return the folders of the copy that must come first on the import path."""
        if not modules or not await self._outside(copy, modules, ()):
            return ()
        # An editable install of the user's folder: the copy comes first.
        paths = paths_for(modules)
        if places := await self._outside(copy, modules, paths):
            raise broken(f"{self.name}: {imports_outside(places)}")
        return paths

    def _signs(self, change: TreeChange) -> list[str]:
        """Return the suspicious lines of what the loop changed, without the files that the check ignores."""
        assert self.files.current is not None
        store = self._state.tree.store
        patch = store.diff(self.files.base["commit"], self.files.current["commit"], "--unified=0")
        return suspicious_lines(patch[:MAX_PATCH], (*change.touched, *change.left_out))

    def shown(self, evaluation: Evaluation) -> Evaluation:
        """Return an evaluation that names the workspace in place of the copy, which no agent may know."""
        copy, folder = str(self._copy.folder), str(self._state.tree.folder)
        if copy not in evaluation.feedback and not any(copy in t for t in evaluation.improvements):
            return evaluation
        return replace(
            evaluation,
            feedback=evaluation.feedback.replace(copy, folder),
            improvements=tuple(text.replace(copy, folder) for text in evaluation.improvements),
        )

    async def _judged(self, sealed: Sealed, change: TreeChange, *, complete: bool) -> Evaluation:
        """Return the evaluation of the sealed check, and of the command as it is written if that passes.

        Args:
            sealed: the record of the base.
            change: what the iteration changed.
            complete: whether the command runs as it is written, too.
        """
        tree, left = await self.sealed_tree(change), await self.left_tree(change)
        paths, baseline = sealed.paths, sealed.baseline
        canary = None
        if baseline is None:
            measured = await self._measured(tree, paths)
            evaluation = evaluation_of_exit(self.name, measured)
        else:
            base = await in_thread(entries_of, self._state.tree.store, self.files.base["commit"])
            allowed = await in_thread(self._may_be_missing, baseline, change, base)
            if sealed.canaries != "none":
                tests = sorted(path for path in base if self._rules.is_test(path))
                canary = await self._canary(tree, tests, {})
            measured = await self._measured(tree, paths, canary, named=sealed.canaries == "named")
            runner = self.command.planted
            verdict = verdict_of(measured, runner, baseline, canary, allowed)
            if verdict.passed and canary is not None and (left != tree or not complete):
                canary = None
                measured = await self._measured(tree, paths)
                verdict = verdict_of(measured, runner, baseline, None, allowed)
            if verdict.forged:
                return rejected(self.name, self.forged(verdict.forged))
            if verdict.passed and canary is not None:
                # Its exit code is that of the canary; the next run has that of the tests.
                verdict = replace(verdict, exit_code=0)
            evaluation = evaluation_of_tests(self.name, measured, verdict, baseline)
        was_written = left == tree and canary is None and self.command.runner is None
        if not (evaluation.passed and complete) or was_written:
            return evaluation
        return await self._as_written(left, sealed, change, evaluation)

    async def _as_written(
        self, tree: str, sealed: Sealed, change: TreeChange, evaluation: Evaluation
    ) -> Evaluation:
        """Run the command as it is written on the files that the user gets; its exit code decides."""
        run = await self._measured(tree, sealed.paths, asks=False)
        if run.result.exit_code == 0:
            return evaluation
        listed, flaky = run, () if sealed.baseline is None else sealed.baseline.flaky
        if self.command.has_report and (flaky or run.report is None):
            # Once more, with a report where it has none: which tests fail, and whether only flaky ones do.
            again = await self._measured(tree, sealed.paths)
            listed = again if run.report is None else run
        failing = {case.id for case in failing_of(listed)}
        if flaky and failing <= {*flaky} and (failing or listed.result.exit_code == 0):
            names = ", ".join(sorted(map(listed.shown, failing or flaky))[:SHOWN])
            note = (
                f"the command failed in tests that are flaky on the base, and was accepted: {names}"
            )
            self.ctx.warn(f"{self.name}: {note}", code=FLAKY)
            return replace(evaluation, feedback=f"{evaluation.feedback}\n{note}")
        return evaluation_as_written(self.name, evaluation, run, listed, change.left_out)

    def _may_be_missing(
        self, baseline: Baseline, change: TreeChange, base: Mapping[str, TreeEntry]
    ) -> frozenset[str]:
        """Return the tests of files that the user allowed to change, and that did."""
        found = set[str]()
        for path in change.allowed:
            text = self._read(base[path].digest).decode("utf-8", "replace")
            module = path.removesuffix(".py").replace("/", ".")
            for name in baseline.states:
                inside = name == module or name.startswith((f"{module}.", f"{module}::"))
                # The reports of other programs have no files.
                last = name.rpartition("::")[2].partition("[")[0].partition("#")[0]
                if inside if path.endswith(".py") else last in text:
                    found.add(name)
        return frozenset(found)

    async def _with_held_out(
        self, evaluation: Evaluation, sealed: Sealed, change: TreeChange
    ) -> Evaluation:
        """Add the figures of the held-out tests, if they are wanted in this iteration."""
        options = self.options
        if evaluation.tampered is not None or sealed.baseline is None:
            return evaluation
        if not options.held_out_every and not (options.held_out_required and evaluation.passed):
            return evaluation
        figures = await self.held_out(await self.sealed_tree(change), sealed.baseline, sealed.paths)
        evaluation = with_details(self.name, evaluation, {"held_out": figures})
        return gated(evaluation, figures) if options.held_out_required else evaluation

    async def held_out(
        self, tree: str, baseline: Baseline, paths: tuple[str, ...]
    ) -> dict[str, Json]:
        """Run the held-out tests on a tree and return their figures.

        Raises:
            EvaluationError: of kind `evaluator_broken`, if they cannot run.
        """
        source = Path(self.options.held_out)
        if not source.is_dir():
            raise broken(f"{self.name}: held_out: {source} is not a folder")
        folder = await self._put(tree)
        place = folder / f"held_out_{secrets.token_hex(4)}"
        try:
            own = await in_thread(lambda: _put_held_out(source, place, self.command.runner))
            measured = await self._run(
                folder, tree, paths, own, words=f"--continue-on-collection-errors {place}"
            )
        finally:
            # Before the next check, in which the code of the agent would find them.
            shutil.rmtree(place, ignore_errors=True)
        figures = held_out_figures(measured, baseline, place.name)
        if figures is None:
            raise unusable(f"{self.name}: held_out", measured)
        return figures

    async def conclude(self, sealed: Sealed, number: int) -> Json:
        """Return the figures of the held-out tests on the files of an iteration."""
        scope = self.ctx.scope
        assert scope is not None
        chosen = next(item for item in scope.history if item.number == number)
        evaluation = chosen.evaluation or Evaluation()
        figures = (evaluation.details.get(self.name) or {}).get("held_out")
        if figures is None:
            assert chosen.files is not None
            assert sealed.baseline is not None
            self._written = sealed.written
            change = await self._change(chosen.files["commit"])
            tree = await self.sealed_tree(change)
            try:
                figures = await self.held_out(tree, sealed.baseline, sealed.paths)
            except ChangedFiles as error:
                raise broken(f"{self.name}: {changed_sentence(error)}") from error
        visible = evaluation.score
        gap = None if visible is None else round(visible - figures["score"], 6)
        return {**figures, "visible": visible, "gap": gap}

    def forged(self, why: str) -> Tampering:
        """Return what follows a result that is not to be believed."""
        action = "stop" if self.options.on_tamper == "stop" else "reject"
        return Tampering("forged", (), why, action)

    def _tampering(self, change: TreeChange) -> Tampering | None:
        """Return what the iteration did to its check, with the snapshot in which that is undone."""
        if not change.touched:
            return None
        assert self.files.current is not None
        present = self.files.current["commit"]
        paths, action = change.touched, self.options.on_tamper
        shown = [
            f"the part of {path} that belongs to the check" if path in change.partial else path
            for path in paths[:SHOWN]
        ]
        names = ", ".join(shown) + (f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else "")
        were = "was" if len(paths) == 1 else "were"
        if action != "put_back":
            return Tampering("touched", paths, f"{names} {were} changed", action)
        store = self._state.tree.store
        tree = tree_with(store, present, change.put_back)
        # On top of the captured commit, which stays as evidence of what the iteration did.
        commit = store.commit(tree, present, PUT_BACK)
        store.point(f"{self._state.tree.refs}put_back/{commit[:12]}", commit)
        parent = None if self.files.parent is None else self.files.parent.files
        base = str((parent or self.files.base)["commit"])
        changed = store.changes(base, tree)
        files: dict[str, Json] = {
            **{k: v for k, v in (self.files.current or {}).items() if k == "left_out"},
            "commit": commit,
            "tree": tree,
            "files": len(changed),
            "added": sum(added for added, _ in changed.values()),
            "removed": sum(removed for _, removed in changed.values()),
        }
        return Tampering("touched", paths, f"{names} {were} changed and put back", action, files)

    async def _canary(
        self, tree: str, tests: Sequence[str], modules: Mapping[str, str]
    ) -> Canary | None:
        store = self._state.tree.store
        folder = await self._put(tree)
        read = {path: entry.digest for path, entry in entries_of(store, tree).items()}
        present = [path for path in tests if path in read]
        # The command runs the tests of its working directory, which may be a small part of a repository.
        inside = self._inside(folder)
        return plant(
            self.command.planted,
            [path for path in present if (folder / path).is_relative_to(inside)] or present,
            lambda path: blob(store, read[path]),
            folder=folder,
            modules=tuple(modules),
        )

    async def _measured(
        self,
        tree: str,
        paths: tuple[str, ...],
        canary: Canary | None = None,
        *,
        named: bool = False,
        asks: bool = True,
    ) -> TestRun:
        """Run the command on a tree, with canaries if there are any; without asking for a report as it is written.

        Raises:
            ChangedFiles: if a protected file changed while it ran.
        """
        folder = await self._put(tree)
        # One file that cannot be imported must not hide the results of the others.
        words = "--continue-on-collection-errors"
        own = dict[str, TreeEntry]()
        if canary is not None:
            canary.write(folder)
            own[canary.path] = entry_of(canary.text.encode())
            words += f" {folder / canary.path}" if named else ""
        try:
            return await self._run(folder, tree, paths, own, words=words, asks=asks)
        finally:
            if canary is not None:
                canary.remove(folder)

    async def _run(
        self,
        folder: Path,
        tree: str,
        paths: tuple[str, ...],
        own: Mapping[str, TreeEntry],
        *,
        words: str,
        asks: bool = True,
    ) -> TestRun:
        """Run the command in the copy, whose protected files, and those of `own`, must stay as they are."""
        store, state = self._state.tree.store, self._state
        entries = await in_thread(entries_of, store, tree)
        written = self._written or frozenset()
        watch = ProtectedWatch(folder, {**self._watched, **own}, written)
        # On the base it is the user's own code, which may write into the folders of its tests.
        places = [] if self._measures_base else watch.places(self._open(entries, own))
        inner = {above for place in places for above in place.parents if folder in above.parents}
        # With `here`, it is the folder of the user.
        hidden = () if state.tree.folder == state.source else (state.tree.folder,)
        run = await self.command.run(
            self._inside(folder),
            self.ctx,
            self._variables(paths),
            words=words,
            asks=asks,
            # A folder that is a mount cannot be replaced by another one, with what is mounted in it.
            writable=(*self._copy.writable, *sorted(inner)),
            read_only=places,
            hide=hidden,
        )
        if self._measures_base:
            self._written = written | await in_thread(watch.written_now)
        elif changed := await in_thread(watch.changed):
            raise ChangedFiles(*changed)
        return run

    def _open(self, entries: Mapping[str, TreeEntry], own: Mapping[str, TreeEntry]) -> list[str]:
        """Return the paths of the copy that may change: what is not protected, and what a pattern allows."""
        allowed = [pattern.partition("*")[0] for pattern in self.options.allow]
        if any("/" not in pattern for pattern in allowed):
            return [*entries]  # it may be a name in any folder
        return [*allowed, *(entries.keys() - self._watched.keys() - own.keys())]

    async def _put(self, tree: str) -> Path:
        """Return the copy with the files of a tree."""
        base = self.files.base["commit"]
        sandbox = replace(self.command.sandbox, network=True)  # packages come from elsewhere
        return await self._copy.put(tree, base, self._installed, sandbox)

    def _inside(self, folder: Path) -> Path:
        """Return the working directory in the copy."""
        files = self.files
        try:
            return folder / files.inside(self.cwd).relative_to(self._state.tree.folder)
        except ValueError:
            raise broken(
                f"{self.name}: {self.cwd} is outside of the workspace; use a folder inside it, or sealed: false"
            ) from None

    def _variables(self, paths: tuple[str, ...]) -> dict[str, str]:
        runner, command = self.command.runner, self.command.command
        words = command.split() if isinstance(command, str) else command
        # A script, and `python -m`, import from their folder on purpose.
        isolated = runner is not None and runner.name == "pytest" and "-m" not in words
        variables = environment(self._copy, isolated=isolated, paths=paths)
        own = (self.command.env or {}).get("PYTHONPATH")
        if own and paths:
            variables["PYTHONPATH"] += os.pathsep + own
        return variables

    @property
    def _rules(self) -> Protection:
        options = self.options
        folder = self._inside(Path()).as_posix()
        return Protection(
            self.command.command,
            options.protect,
            options.allow,
            options.allow_new,
            "" if folder == "." else folder,
        )

    @property
    def _state(self) -> Files:
        return cast("Files", self.files.state)

    @property
    def _copy(self) -> CleanCopy:
        """The clean copy of this run: it is made once and closed with the run."""
        owned, key = self.ctx.run.owned, f"{self.files.lane}/check {self.name}"
        if key not in owned:
            settings = self._state.settings
            owned[key] = CleanCopy(
                self._state.tree.store,
                self.options.setup or settings.setup,
                self.options.link or settings.link,
                self._state.source,
            )
        copy: CleanCopy = owned[key]
        return copy


def _report(measured: TestRun) -> TestReport:
    assert measured.report is not None
    return measured.report


def changed_sentence(error: ChangedFiles) -> str:
    """Return the sentence on protected files that changed while a check ran."""
    paths = [str(path) for path in error.args]
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return f"the code under test changed protected files while the check ran: {', '.join(paths[:SHOWN])}{more}"


def _put_held_out(source: Path, place: Path, runner: Runner | None) -> dict[str, TreeEntry]:
    """Copy the held-out tests into a folder of the clean copy, from which they import the project.

    Returns their entries.
    """
    shutil.copytree(source, place, symlinks=True)
    settings = place / "conftest.py"
    if runner is not None and runner.name == "pytest" and not settings.exists():
        # The tests of the project may import it from their own folder, which is another one here.
        # At the end of the path, because a file of the agent must not replace a standard module.
        settings.write_text(f"import sys\n\nsys.path.append({str(place.parent)!r})\n", "utf-8")
    files = (path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(place.parent)): entry_of(path.read_bytes()) for path in files}
