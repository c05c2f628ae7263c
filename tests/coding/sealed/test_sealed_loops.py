"""Loops whose check is sealed: what follows tampering, what is recorded, and what is refused."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Loop,
    MaxIterations,
    Passed,
    Result,
    Workspace,
    run_sync,
    tests,
)
from loopwright.coding.workspace.saved import saved_workspace
from loopwright.documents import load
from loopwright.errors import ConfigurationError
from loopwright.evaluators import check, gates
from loopwright.ui.run_files import RunFiles

# A test program in sh: it reads what it tests, as pytest imports it.
CHECK = """\
echo run >> "$RUNS"
. ./lib.sh
echo 1..2
[ "$ONE" = 1 ] && echo "ok 1 - one" || { echo "not ok 1 - one"; bad=1; }
[ "$TWO" = 2 ] && echo "ok 2 - two" || { echo "not ok 2 - two"; bad=1; }
exit "${bad:-0}"
"""
LIB = "ONE=0\nTWO=2\n"


class Bench:
    """A project with a check, and loops on it whose iterations are functions of the folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.project = root, root / "project"
        self.runs = root / "runs"
        self.project.mkdir()
        (self.project / "check.sh").write_text(CHECK)
        (self.project / "lib.sh").write_text(LIB)

    def evaluator(self, **options: Any) -> Any:
        return tests("sh check.sh", report="stdout", env={"RUNS": str(self.runs)}, **options)

    def loop(self, *work: Callable[[Path], object], **options: Any) -> Loop[Any, Any]:
        def execute(_: object, ctx: Any) -> str:
            act = work[min(ctx.iteration, len(work)) - 1]
            act(ctx.folder)
            return (ctx.folder / "check.sh").read_text() + (ctx.folder / "lib.sh").read_text()

        evaluate = options.pop("evaluate", None)
        rule = options.pop("refine_from", None)
        until = options.pop("until", Passed() | MaxIterations(len(work)))
        workspace = Workspace(self.project, kind="snapshot", home=self.root / "home", merge="none")
        return Loop(
            execute,
            evaluate or self.evaluator(**options),
            until=until,
            name="fix",
            workspace=workspace,
            refine_from=rule,
        )

    def run(self, *work: Callable[[Path], object], **options: Any) -> Result[Any]:
        return run_sync(self.loop(*work, **options), "")

    def count(self) -> int:
        return len(self.runs.read_text().splitlines())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def fix(folder: Path) -> None:
    (folder / "lib.sh").write_text("ONE=1\nTWO=2\n")


def cheat(folder: Path) -> None:
    (folder / "check.sh").write_text("echo 1..1\necho ok 1 - one\n")


def forge(folder: Path) -> None:
    (folder / "lib.sh").write_text("exit 0\n")


def test_protected_files_are_put_back(bench: Bench) -> None:
    """The clean copy decides, and the next iteration and the result have the file of the base."""
    result = bench.run(cheat, fix)
    first, second = result.history
    assert first.evaluation is not None
    assert first.evaluation.tampered is not None
    assert (first.evaluation.tampered.kind, first.evaluation.tampered.paths) == (
        "touched", ("check.sh",),
    )  # fmt: skip
    assert (first.score, first.passed) == (0.5, False)
    assert first.feedback.startswith("check.sh was changed and put back")
    assert (result.satisfied, second.output) == (True, CHECK + "ONE=1\nTWO=2\n")
    assert result.workspace is not None
    assert (Path(result.workspace["folder"]) / "check.sh").read_text() == CHECK
    saved = saved_workspace(bench.root / "home", result.run_id)
    assert saved.snapshots()[1] == (first.files or {})["commit"]
    shown = RunFiles(saved.tree.store, saved.base)
    assert (shown.changes(first), list(shown.changes(second))) == ({}, ["lib.sh"])


def test_rules_begin_at_the_folder_of_the_check(tmp_path: Path) -> None:
    """Of a project in the folder `tests` of a repository, its code is open and the file of its check is protected."""
    repository = tmp_path / "repository"
    repository.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    bench = Bench(repository)
    bench.project = bench.project.rename(repository / "tests")
    bench.runs.touch()

    def both(folder: Path) -> None:
        cheat(folder)
        fix(folder)

    result = bench.run(both)
    evaluation = result.history[0].evaluation
    assert evaluation is not None
    assert evaluation.tampered is not None
    assert (result.satisfied, evaluation.tampered.paths) == (True, ("tests/check.sh",))


def test_tampering_with_a_fix_satisfies_without_the_tampering(bench: Bench) -> None:
    """A real fix counts although a protected file was changed, and that change is not in the result."""

    def both(folder: Path) -> None:
        cheat(folder)
        fix(folder)

    result = bench.run(both)
    assert result.satisfied
    assert result.workspace is not None
    assert (Path(result.workspace["folder"]) / "check.sh").read_text() == CHECK


def test_a_rejected_iteration_is_discarded(bench: Bench) -> None:
    """With `reject` the next iteration continues from the parent, and the iteration is never the best."""

    def both(folder: Path) -> None:
        cheat(folder)
        fix(folder)

    seen = []
    result = bench.run(
        both, lambda folder: seen.append((folder / "lib.sh").read_text()), on_tamper="reject"
    )
    assert [item.eligible for item in result.history] == [False, True]
    assert (seen, result.history[0].score) == ([LIB], None)
    assert result.best is not None
    assert result.best.number == 2


def test_a_forged_result_never_counts(bench: Bench) -> None:
    """A check that ends without its report did not pass, and the files are put back."""
    seen = []
    result = bench.run(forge, lambda folder: seen.append((folder / "lib.sh").read_text()), fix)
    first = result.history[0].evaluation
    assert first is not None
    assert first.tampered is not None
    assert (first.tampered.kind, first.score, first.passed) == ("forged", None, False)
    assert (seen, result.satisfied) == ([LIB], True)


@pytest.mark.parametrize(("work", "options", "iterations"), [
    ((forge,), {"until": Passed() | MaxIterations(9)}, 3),
    ((cheat,), {"on_tamper": "stop", "until": Passed() | MaxIterations(9)}, 1),
    ((forge,), {"on_tamper": "stop", "until": Passed() | MaxIterations(9)}, 1),
])  # fmt: skip
def test_the_loop_ends(
    work: tuple[Callable[[Path], None]], options: dict[str, Any], iterations: int, bench: Bench
) -> None:
    """Three forged results in a row, or one change with `stop`, end the loop as tampered."""
    result = bench.run(*work, **options)
    assert (result.status.value, result.reason.value) == ("failed", "tampered")
    assert (result.iterations, result.status.exit_code) == (iterations, 1)
    assert result.output is None


def test_the_base_is_measured_twice_and_recorded(bench: Bench, tmp_path: Path) -> None:
    """The digests and the tests of the base are on record, and a resumed run does not measure again."""
    journal = f"sqlite:{tmp_path / 'runs.db'}"
    options: dict[str, Any] = {"journal": journal, "run_id": "one"}
    run_sync(bench.loop(lambda folder: None, fix, until=Passed() | MaxIterations(1)), "", **options)
    assert bench.count() == 3
    again = run_sync(
        bench.loop(lambda folder: None, fix, until=Passed() | MaxIterations(1)), "", **options
    )
    assert (bench.count(), again.iterations) == (3, 1)


def test_an_interrupted_run_does_not_measure_the_base_again(bench: Bench, tmp_path: Path) -> None:
    """What the first process recorded of the base is what the second one compares with."""

    def dies(folder: Path) -> None:
        raise KeyboardInterrupt

    options: dict[str, Any] = {"journal": f"sqlite:{tmp_path / 'runs.db'}", "run_id": "one"}
    with pytest.raises(KeyboardInterrupt):
        run_sync(bench.loop(dies), "", **options)
    assert bench.count() == 2
    result = run_sync(bench.loop(fix), "", **options)
    assert (result.satisfied, bench.count()) == (True, 3)


@pytest.mark.parametrize("text", ["exit 0\n", "echo broken; exit 3\n", "no-such-program\n"])
def test_a_check_that_cannot_run_on_the_base(text: str, bench: Bench) -> None:
    """The loop ends before its first iteration, which may cost money."""
    (bench.project / "check.sh").write_text(text)
    called = []
    result = bench.run(called.append)
    assert (result.status.value, result.reason.value) == ("failed", "evaluator_unusable")
    assert (called, result.iterations) == ([], 0)


def test_flaky_tests_have_no_weight(bench: Bench) -> None:
    """A test whose state differs between the two runs of the base is reported and does not count."""
    flaky = CHECK.replace(". ./lib.sh", '. ./lib.sh\n[ $(wc -l < "$RUNS") -eq 1 ] && TWO=0')
    (bench.project / "check.sh").write_text(flaky)
    result = bench.run(fix)
    evaluation = result.history[0].evaluation
    assert evaluation is not None
    assert (result.satisfied, evaluation.details["tests"]["flaky"]) == (True, ["two"])
    assert any("flaky_tests" in warning for warning in result.warnings)


def test_in_gates(bench: Bench) -> None:
    """A sealed check behind another evaluator is prepared once, and its tampering is that of the whole."""
    evaluate = gates(check(lambda _: True, name="first"), bench.evaluator())
    result = bench.run(cheat, fix, evaluate=evaluate)
    first = result.history[0].evaluation
    assert first is not None
    assert first.tampered is not None
    assert (result.satisfied, bench.count()) == (True, 4)


def test_not_sealed(bench: Bench) -> None:
    """`sealed=False` runs the files as they are."""
    result = bench.run(cheat, sealed=False)
    assert (result.satisfied, result.iterations) == (True, 1)


def test_allowed_and_protected_patterns(bench: Bench) -> None:
    """`allow` lifts a protection, `protect` adds one."""
    assert bench.run(cheat, allow=["check.sh"]).satisfied is False  # a test of the base is missing
    touched = bench.run(fix, protect=["auto", "lib.*"]).history[0].evaluation
    assert touched is not None
    assert touched.tampered is not None
    assert touched.tampered.paths == ("lib.sh",)


@pytest.mark.parametrize(("options", "words"), [
    ({"on_tamper": "ignore"}, "put_back, reject, stop"),
    ({"protect": "tests/**"}, "use a list"),
    ({"allow": ["../x"]}, "is not a path inside the workspace"),
])  # fmt: skip
def test_invalid_options(options: dict[str, Any], words: str) -> None:
    """Options are checked when the evaluator is made."""
    with pytest.raises(ConfigurationError, match=words):
        tests("true", **options)


def test_the_copy_is_removed(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a check remains after the run."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    assert bench.run(fix).satisfied
    assert list(scratch.iterdir()) == []


def test_what_a_check_writes_does_not_reach_the_next_one(bench: Bench) -> None:
    """A file that the tested code leaves in the copy is gone, and one that it changes is made again."""
    text = "[ -e left ] && exit 9\ntouch left\n[ -e data ] && echo changed >> data\nONE=0\nTWO=2\n"

    def leaves(folder: Path) -> None:
        (folder / "lib.sh").write_text(text)
        (folder / "data").write_text("as it was\n")

    result = bench.run(leaves, leaves, leaves, until=Passed() | MaxIterations(3))
    assert [item.score for item in result.history] == [0.5, 0.5, 0.5]


def test_suspicious_lines(bench: Bench) -> None:
    """Signs in a change are listed for a person, and decide nothing."""

    def odd(folder: Path) -> None:
        fix(folder)
        (folder / "more.py").write_text("import os\n\nos._exit(0)\n")
        (folder / "check.sh").write_text(CHECK + "# pytest\n")

    evaluation = bench.run(odd).history[0].evaluation
    assert evaluation is not None
    assert evaluation.passed
    assert evaluation.details["tests"]["suspicious"] == ["more.py: ends the process: os._exit(0)"]


HIDDEN = """\
import os
import pathlib


def test_one():
    assert "ONE=1" in (pathlib.Path(__file__).parent.parent / "lib.sh").read_text()


def test_three():
    assert "ONE=1\\nTWO=2\\nTHREE=3\\n" == (pathlib.Path(__file__).parent.parent / "lib.sh").read_text()
"""
VISIBLE = """\
import pathlib


def test_one():
    assert "ONE=1" in (pathlib.Path(__file__).parent / "lib.sh").read_text()
"""


@pytest.fixture
def hidden(bench: Bench) -> Bench:
    """A project with pytest, and held-out tests beside it."""
    (bench.project / "test_lib.py").write_text(VISIBLE)
    (bench.root / "hidden").mkdir()
    (bench.root / "hidden" / "test_hidden.py").write_text(HIDDEN)
    return bench


def with_hidden(bench: Bench, **options: Any) -> Any:
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return tests("python -m pytest -q", env=env, held_out=bench.root / "hidden", **options)


def solve(folder: Path) -> None:
    (folder / "lib.sh").write_text("ONE=1\nTWO=2\nTHREE=3\n")


def test_canaries_are_beside_the_tests_of_the_working_directory(bench: Bench) -> None:
    """The command of a part of a repository does not run the tests of other parts, which may be more."""
    for path in ("part/test_a.py", "tests/test_b.py", "tests/test_c.py"):
        place = bench.project / path
        place.parent.mkdir(exist_ok=True)
        place.write_text("def test():\n    assert True\n")
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    evaluate = tests("python -m pytest -q", cwd=bench.project / "part", env=env)
    result = bench.run(fix, evaluate=evaluate, until=Passed() | MaxIterations(1))
    assert (result.satisfied, result.warnings) == (True, ())


def test_held_out_tests_run_at_the_end(hidden: Bench, tmp_path: Path) -> None:
    """Their figures stand beside the visible score, in the result and in its record."""
    options: dict[str, Any] = {"journal": f"sqlite:{tmp_path / 'runs.db'}", "run_id": "one"}
    result = run_sync(hidden.loop(fix, evaluate=with_hidden(hidden)), "", **options)
    expected = {"passing": 1, "total": 2, "score": 0.5, "visible": 1.0, "gap": 0.5}
    assert (result.satisfied, result.held_out) == (True, {"tests": expected})
    assert result.to_json()["held_out"] == {"tests": expected}
    again = run_sync(hidden.loop(fix, evaluate=with_hidden(hidden)), "", **options)
    assert again.held_out == {"tests": expected}


def test_held_out_tests_import_the_project(hidden: Bench) -> None:
    """Plain `pytest` finds the modules beside the visible tests, for held-out tests in another folder too."""
    (hidden.project / "prices.py").write_text("PRICE = 3\n")
    (hidden.root / "hidden" / "test_hidden.py").write_text(
        "import prices\n\n\ndef test_price():\n    assert prices.PRICE == 3\n"
    )
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    evaluate = tests("pytest -q", env=env, held_out=hidden.root / "hidden")
    result = hidden.run(fix, evaluate=evaluate)
    assert result.held_out is not None
    assert (result.held_out["tests"]["passing"], result.held_out["tests"]["total"]) == (1, 1)


def test_required_held_out_tests(hidden: Bench) -> None:
    """An iteration passes only if they pass, and the agent does not learn which of them failed."""
    result = hidden.run(fix, solve, evaluate=with_hidden(hidden, held_out_required=True))
    first = result.history[0]
    assert (first.passed, first.score, result.satisfied) == (False, 0.5, True)
    assert "test_three" not in first.feedback
    assert result.held_out is not None
    assert result.held_out["tests"]["gap"] == 0


def test_held_out_tests_of_each_iteration(hidden: Bench) -> None:
    """Their figures are in the details of each evaluation, and decide nothing."""
    evaluate = with_hidden(hidden, held_out_every=True)
    result = hidden.run(lambda folder: None, fix, evaluate=evaluate)
    figures = [
        item.evaluation.details["tests"]["held_out"]["passing"]
        for item in result.history
        if item.evaluation
    ]
    assert (figures, result.satisfied) == ([0, 1], True)


def test_held_out_tests_that_cannot_run(hidden: Bench) -> None:
    """A folder without tests ends the loop before its first iteration."""
    (hidden.root / "hidden" / "test_hidden.py").unlink()
    result = hidden.run(fix, evaluate=with_hidden(hidden))
    assert (result.reason.value, result.iterations) == ("evaluator_unusable", 0)


def test_held_out_tests_need_a_report() -> None:
    """An exit code says nothing about single tests."""
    with pytest.raises(ConfigurationError, match="held_out needs a sealed check with a report"):
        tests("true", held_out="hidden")


def test_check_lists_the_protected_files(bench: Bench) -> None:
    """The plan of a document names them before anything runs."""
    (bench.project / "loop.yaml").write_text(
        "schema: loopwright/1\nname: n\nworkspace: copy\nsteps:\n  - name: fix\n    loop:\n"
        "      execute: {shell: 'true', idempotent: true}\n"
        "      evaluate: {tests: {command: sh check.sh, protect: [auto, 'lib.*']}}\n"
        "      until: [passed, {max_iterations: 1}]\n"
    )
    assert load(bench.project / "loop.yaml").plan()["protected"] == ["check.sh", "lib.sh"]
