"""What a user gets passes his command: the branch of a satisfied run, with the files as the loop leaves them."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loopwright import Result, Workspace, agent, run_sync, tests, until
from loopwright.coding.agents import Manifest
from loopwright.testing.fake_agent import manifest
from loopwright.tools.sandbox import sandbox_problem

RUN = 'for file in tests/*.sh tests/*/*.sh; do [ -e "$file" ] || continue; sh "$file" || exit 1; done\n'
FILES = {
    "run.sh": RUN,
    "lib.sh": "ONE=0\nTWO=2\n",
    "tests/one.sh": '. ./lib.sh\n[ "$ONE" = 1 ]\n',
    "tests/two.sh": '. ./lib.sh\n[ "$TWO" = 2 ]\n',
    ".gitignore": "build/\n",
}
FIX = "sed -i s/ONE=0/ONE=1/ lib.sh"
BUILT = "mkdir -p build && echo ONE=1 > build/one.sh"
EDITS = {
    "fix": FIX,
    "break": "echo TWO=3 >> lib.sh",
    "passing test": "echo true > tests/three.sh",
    "failing test": "mkdir -p tests/more && echo false > tests/more/four.sh",
    "test of a new file": "echo FIVE=5 > five.sh && echo '. ./five.sh' > tests/five.sh",
    "test of an ignored file": f"{BUILT} && echo '. ./build/one.sh' > tests/six.sh",
    "moved test": "mkdir -p tests/more && mv tests/two.sh tests/more/two.sh || true",
    "weakened test": "echo true > tests/one.sh",
    "deleted test": "rm -f tests/one.sh",
    "ignored code": f"{BUILT} && echo '. ./build/one.sh' >> lib.sh",
    "code by its absolute path": f'{BUILT} && echo ". $PWD/build/one.sh" >> lib.sh',
    "a link out": f'{BUILT} && rm lib.sh && ln -s "$PWD/build/one.sh" lib.sh',
}


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def project(root: Path, files: dict[str, str]) -> Path:
    """Return a repository with some files."""
    folder = root / "project"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(root, "init", "-q", "-b", "main", str(folder))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "start")
    return folder


def fixed(folder: Path, script: Sequence[str], check: Any = "sh run.sh", **options: Any) -> Result:
    """Return the result of a loop in which the fake agent runs these commands, one call for each iteration."""
    calls = folder.parent / "script.json"
    calls.write_text(json.dumps([[{"run": text}, {"say": "Done."}] for text in script]))
    step = agent(Manifest.model_validate(manifest("claude", calls)), "Fix it.")
    space = options.pop("workspace", {})
    workspace = Workspace(folder, home=folder.parent / "home", **space)
    loop = until(check, step, workspace=workspace, max_iterations=len(script), **options)
    return run_sync(loop, "")


def clone(folder: Path, branch: str) -> Path:
    """Return a fresh clone of a branch, without anything that the run left on this machine."""
    shutil.rmtree(folder.parent / "home")
    git(folder.parent, "clone", "-q", "-b", branch, str(folder), "fresh")
    return folder.parent / "fresh"


@pytest.mark.skipif(bool(sandbox_problem()), reason=f"NOT TESTED: {sandbox_problem()}")
@settings(max_examples=10, deadline=None, derandomize=True)
@example(["fix"])
@example(["fix", "failing test"])
@example(["fix", "moved test"])
@example(["code by its absolute path"])
@given(st.lists(st.sampled_from(sorted(EDITS)), min_size=1, max_size=3, unique=True))
def test_the_branch_of_a_satisfied_run_passes_in_a_fresh_clone(edits: list[str]) -> None:
    """Whatever the agent does: if the run is satisfied, the user's command passes on its branch."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = project(Path(scratch), FILES)
        script = " && ".join(EDITS[name] for name in edits)
        result = fixed(folder, [script], sandbox="auto")
        if edits == ["fix"]:
            assert result.satisfied
        if result.satisfied:
            assert result.workspace is not None
            fresh = clone(folder, result.workspace["branch"])
            done = subprocess.run(["sh", "run.sh"], cwd=fresh, check=False)
            assert done.returncode == 0, edits


def test_a_new_failing_test_is_not_satisfied(tmp_path: Path) -> None:
    """The command fails on the files as they are left: not passed, a score below 1, and the output in the feedback."""
    folder = project(tmp_path, FILES)
    result = fixed(folder, [f"{FIX}; {EDITS['failing test']}", "rm -r tests/more"])
    first, second = result.history
    assert (first.passed, first.score, second.passed) == (False, 0.5, True)
    assert "tests/more/four.sh" in first.feedback


COUNTED = RUN + 'echo run >> "$RUNS"\n'


def counted(tmp_path: Path, script: str, **options: Any) -> tuple[Result, int]:
    """Return the result of a loop, and how often its check ended well."""
    folder, runs = project(tmp_path, {**FILES, "run.sh": COUNTED}), tmp_path / "runs"
    runs.write_text("")
    result = fixed(folder, [script], tests("sh run.sh", env={"RUNS": str(runs)}), **options)
    return result, len(runs.read_text().splitlines())


@pytest.mark.parametrize(
    ("edit", "count"), [("true", 1), ("echo true > tests/three.sh", 2)], ids=["same files", "new test"]
)  # fmt: skip
def test_only_added_tests_cost_a_second_run(edit: str, count: int, tmp_path: Path) -> None:
    """Where the sealed tree is the one that is left, its run is the run of the command as it is written."""
    result, runs = counted(tmp_path, f"{FIX}; {edit}")
    assert (result.satisfied, runs) == (True, count)


def test_without_dropped_files(tmp_path: Path) -> None:
    """A file with a key that is not handed over is not there when the command runs as it is written."""
    folder = project(tmp_path, FILES)
    key = "ghp_" + "a" * 36
    script = f"{FIX}; echo '# {key}' > key.sh; echo '. ./key.sh' > tests/seven.sh"
    result = fixed(folder, [script], workspace={"secrets": "drop"})
    assert (result.satisfied, "tests/seven.sh" in result.history[0].feedback) == (False, True)


PYTHON = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "tests/test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n",
    "tests/test_old.py": "def test_old():\n    assert True\n",
    "pyproject.toml": '[project]\nname = "calc"\nversion = "1"\n\n[tool.pytest.ini_options]\npythonpath = ["."]\n',
    "uv.lock": "version = 1\n",
}
CALC = "sed -i 's/a - b/a + b/' calc.py"


def pytest_check(**options: Any) -> Any:
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return tests("pytest -q", env=env, **options)


def test_ids_in_the_feedback_are_those_of_pytest(tmp_path: Path) -> None:
    """An id can be given to pytest: it has the path of the file."""
    folder = project(tmp_path, PYTHON)
    result = fixed(folder, ["echo >> calc.py"], pytest_check())
    evaluation = result.history[0].evaluation
    assert evaluation is not None
    assert "tests/test_calc.py::test_add: assert" in evaluation.feedback
    assert evaluation.improvements[0].startswith("tests/test_calc.py::test_add: ")


def test_a_test_that_may_be_deleted(tmp_path: Path) -> None:
    """With `allow`, a deleted test of the base is no forgery, and the others count."""
    folder = project(tmp_path, PYTHON)
    script = f"{CALC}; rm tests/test_old.py"
    result = fixed(folder, [script], pytest_check(allow=["tests/test_old.py"]))
    assert (result.satisfied, result.history[0].score) == (True, 1.0)
    assert result.history[0].evaluation is not None
    assert result.history[0].evaluation.details["tests"]["total"] == 1


SETTINGS = """\
sed -i 's/version = "1"/version = "1"\\ndependencies = ["attrs"]/; s/pythonpath/addopts = "-k old"\\npythonpath/' pyproject.toml
"""


def test_an_honest_dependency_is_kept(tmp_path: Path) -> None:
    """Only the part of a settings file that belongs to the check is put back."""
    folder = project(tmp_path, PYTHON)
    result = fixed(folder, [f"{CALC}; {SETTINGS}"], pytest_check())
    assert result.satisfied
    assert result.workspace is not None
    text = git(folder, "show", f"{result.workspace['branch']}:pyproject.toml")
    assert ('dependencies = ["attrs"]' in text, "-k old" in text) == (True, False)
    tampered = result.history[0].evaluation.tampered  # type: ignore[union-attr]
    assert tampered is not None
    assert tampered.why.startswith(
        "the part of pyproject.toml that belongs to the check was changed"
    )


@pytest.mark.parametrize(
    "setup", ["", 'touch "$PWD/.installed"'], ids=["none", "without a sandbox"]
)
def test_what_is_installed_must_be_installed(setup: str, tmp_path: Path) -> None:
    """An allowed lock file that changed needs the setup in a sandbox; else the sentence names the file."""
    folder = project(tmp_path, PYTHON)
    check = pytest_check(allow=["uv.lock"], setup=setup)
    result = fixed(folder, [f"{CALC}; echo >> uv.lock"], check)
    assert (result.satisfied, result.history[0].score) == (False, 2 / 3)
    assert "uv.lock changed, and with it what is installed" in result.history[0].feedback


@pytest.mark.skipif(bool(sandbox_problem()), reason=f"NOT TESTED: {sandbox_problem()}")
def test_setup_runs_again_for_what_is_installed(tmp_path: Path) -> None:
    """In a sandbox, the setup sees the lock file of the iteration."""
    test = "import pathlib\n\n\ndef test_lock():\n    assert 'new' in pathlib.Path('installed').read_text()\n"
    folder = project(tmp_path, {**PYTHON, "tests/test_lock.py": test})
    check = pytest_check(allow=["uv.lock"], setup="cp uv.lock installed", sandbox="auto")
    result = fixed(folder, [f"{CALC}; echo '# new' >> uv.lock"], check)
    assert result.satisfied, result.history[0].feedback


def rewriting(target: str) -> str:
    """Return the text of a module that changes a test while the tests are collected."""
    return f"import pathlib\npathlib.Path('{target}').write_text('def test_add(): pass\\n')\nVALUE = 1\n"


@pytest.mark.parametrize("sandbox", ["none", "auto"])
def test_code_under_test_cannot_change_tests(sandbox: Any, tmp_path: Path) -> None:
    """A protected file is read-only in a sandbox; without one, a change while the check runs is noticed."""
    files = {
        **PYTHON,
        "other.py": "VALUE = 1\n",
        "tests/test_a.py": "from other import VALUE\n\n\ndef test_a():\n    assert VALUE\n",
    }
    del files["tests/test_calc.py"]
    files["tests/test_b.py"] = PYTHON["tests/test_calc.py"]
    folder = project(tmp_path, files)
    text = rewriting("tests/test_b.py").replace("'", "'\\''")
    result = fixed(folder, [f"printf '%s' '{text}' > other.py"], pytest_check(sandbox=sandbox))
    assert result.satisfied is False
    evaluation = result.history[0].evaluation
    assert evaluation is not None
    if sandbox == "none":
        assert evaluation.tampered is not None
        assert "tests/test_b.py" in evaluation.tampered.why
    elif not sandbox_problem():
        assert evaluation.tampered is None
        assert "Read-only file system" in evaluation.feedback


def test_what_the_check_writes_on_the_base_may_be_written(tmp_path: Path) -> None:
    """Tests that write beside themselves do so on the base, too, so that is no tampering."""
    writes = "import pathlib\n\n\ndef test_writes():\n    folder = pathlib.Path(__file__).parent\n    (folder / 'log.txt').write_text('new')\n    (folder / 'made.txt').write_text('')\n"
    folder = project(tmp_path, {**PYTHON, "tests/test_writes.py": writes, "tests/log.txt": "old"})
    result = fixed(folder, [CALC], pytest_check(sandbox="auto"))
    assert result.satisfied, result.history[0].feedback
