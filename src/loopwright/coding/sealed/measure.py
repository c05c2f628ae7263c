"""One run of a test command: its exit code, report, comparison with the base, and feedback on what fails.

- A test program writes its report when an environment variable asks for it. A variable reaches the program through
  `uv run`, `npm test` or `make`, so the command stays unchanged.
- An editable install leaves a path or a finder in the environment that points to the user's folder. The check would
  then test that folder, whatever the files of the loop are, so the place from which it imports the project is compared.
- Canaries are one test that must fail and one that must pass, in a file with a random name beside the tests. A test
  program that was told to report success reports it for the canary that must fail, too.
"""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import shlex
import shutil
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from ..._platform import temporary_folder
from ...engine.context import Context
from ...engine.functions import in_thread
from ...errors import EvaluationError, StepError
from ...evaluators.check import broken, output_of, run_check
from ...evaluators.test_report import (
    TestCase,
    TestReport,
    TestState,
    UnreadableReport,
    merged,
    read_report,
    read_report_file,
)
from ...tools.commands import ShellStep
from ...tools.process import CommandResult, OnOutput, run_command
from ...tools.sandbox import Sandbox, SandboxMode

__all__ = [
    "OUTSIDE",
    "RUNNERS",
    "Baseline",
    "BaselineComparison",
    "Canary",
    "Runner",
    "TestCommand",
    "TestRun",
    "baseline_of",
    "feedback_of",
    "imports_outside",
    "isolated",
    "modules_of",
    "outside",
    "paths_for",
    "plant",
    "runner_of",
]

_RAN = (TestState.PASSED, TestState.FAILED, TestState.ERROR)
_FILES = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx")


@dataclass(frozen=True)
class Baseline:
    """The tests of the base.

    Args:
        states: the state of each test by id.
        flaky: the ids whose states differed between two runs of the base. They have no weight.
    """

    states: Mapping[str, str]
    flaky: tuple[str, ...] = ()

    @property
    def counting(self) -> tuple[str, ...]:
        """The ids that count: those that ran on the base, without flaky ones."""
        return tuple(
            name for name, state in self.states.items() if state in _RAN and name not in self.flaky
        )

    def tally(
        self, report: TestReport, allowed: Collection[str] = frozenset()
    ) -> BaselineComparison:
        """Compare a report with the baseline; the allowed ids may be missing or skipped."""
        cases = {case.id: case for case in report.cases}
        new = [case for case in report.cases if case.id not in self.states]
        result = BaselineComparison(len(self.counting))
        failed = {case.id: case for case in report.failures}
        for name in self.counting:
            case = cases.get(name)
            if case is None:
                case = self._replaced(name, new, failed)
            if name in allowed and (case is None or not case.ran):
                result.total -= 1
            elif case is None:
                result.missing.append(name)
            elif not case.ran:
                result.skipped.append(name)
            elif case.failing:
                result.failing.setdefault(case.id, case)
            else:
                result.passing += 1
        for case in report.failures:
            if case.id not in self.flaky:
                result.failing.setdefault(case.id, case)
        return result

    def _replaced(
        self, name: str, new: Sequence[TestCase], failed: Mapping[str, TestCase]
    ) -> TestCase | None:
        """Return what stands for a test that is not in a report, or None if nothing does."""
        if self.states[name] != TestState.PASSED:
            # A file that could not be read has one entry on the base; once it is read, its tests have theirs.
            inside = [case for case in new if case.id.startswith((f"{name}::", f"{name}."))]
            if name.endswith(_FILES):
                inside = list(new)
            ran = [case for case in inside if case.ran]
            if ran:
                return next((case for case in ran if case.failing), ran[0])
        # The other way round: the file of the test cannot be read any more.
        for end in [i for i, sign in enumerate(name) if sign == "." or name[i : i + 2] == "::"]:
            if name[:end] in failed:
                return failed[name[:end]]
        return next((case for case in new if case.failing and case.id.endswith(_FILES)), None)


@dataclass
class BaselineComparison:
    """A report in comparison with the baseline.

    Args:
        total: the tests of the baseline that count.
        passing: how many of them pass.
        failing: what fails by id, new tests included.
        missing: the tests that the report does not have.
        skipped: the tests that ran on the base and did not now.
    """

    total: int
    passing: int = 0
    failing: dict[str, TestCase] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def gone(self, shown: Callable[[str], str] = str) -> str:
        """Return a sentence on tests of the base that did not run, or ""; `shown` makes their names readable."""
        for names, what in ((self.missing, "is not in the report"), (self.skipped, "was skipped")):
            if names:
                more = f" and {len(names) - 1} more" if len(names) > 1 else ""
                return f"a test of the base {what}: {shown(names[0])}{more}"
        return ""

    @property
    def passed(self) -> bool:
        """Whether every test passes."""
        return not (self.failing or self.missing or self.skipped)


def baseline_of(first: TestReport, second: TestReport) -> Baseline:
    """Return the baseline of two runs of the same files."""
    before, after = first.states, second.states
    names = [*before, *(name for name in after if name not in before)]
    flaky = tuple(name for name in names if before.get(name) != after.get(name))
    return Baseline({name: str(before.get(name, after.get(name))) for name in names}, flaky)


SECONDS = 60.0
_ROOTS = ("src/", "")
# Names at the top of a repository that are not the product, or not to be imported.
_OTHERS = {
    "tests", "test", "docs", "doc", "examples", "build", "dist", "benchmarks", "scripts", "tools", "setup",
    "conftest", "noxfile", "tasks", "manage", "fabfile",
}  # fmt: skip
# The code of a function, for the interpreter and for the test that is added to a check.
OUTSIDE = """\
def outside(copy, names):
    import importlib.util, os
    copy, found = os.path.realpath(copy), {}
    for name in names:
        try:
            spec = importlib.util.find_spec(name)
        except Exception:
            continue
        if spec is None:
            continue
        places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
        for place in places:
            if place and os.path.commonpath([copy, os.path.realpath(place)]) != copy:
                found[name] = os.path.realpath(place)
    return found
"""
_PROBE = f"""\
import sys
all_paths, sys.path = sys.path, [path for path in sys.path if path.startswith(sys.base_prefix)]
import importlib.util, json, os  # those of Python: the project may have modules with these names
sys.path = [path for path in all_paths if path]
{OUTSIDE}
print(json.dumps(outside(sys.argv[1], sys.argv[2:])))
"""


def modules_of(paths: Iterable[str]) -> dict[str, str]:
    """Return the modules of a project, each with the folder that must be on the import path.

    >>> modules_of(["src/shop/__init__.py", "app.py", "tests/__init__.py", "src/shop/cart.py"])
    {'shop': 'src', 'app': ''}
    """
    modules: dict[str, str] = {}
    for path in paths:
        root = next(root for root in _ROOTS if path.startswith(root))
        name, _, rest = path.removeprefix(root).partition("/")
        if rest not in ("", "__init__.py") or (not rest and not name.endswith(".py")):
            continue
        module = name.removesuffix(".py")
        if module.isidentifier() and module not in _OTHERS and not module.startswith("test_"):
            modules.setdefault(module, root.rstrip("/"))
    return modules


def paths_for(modules: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders that must be on the import path."""
    return tuple(sorted(set(modules.values()), reverse=True))


async def outside(
    folder: Path, modules: Iterable[str], variables: Mapping[str, str]
) -> dict[str, str]:
    """Return the modules that the active interpreter imports from outside of a copy, with their places."""
    words = ["python", "-c", _PROBE, str(folder), *modules]
    try:
        result = await run_command(words, cwd=folder, env=variables, timeout=SECONDS)
        places: dict[str, str] = json.loads(result.stdout)
    except (StepError, ValueError):
        return {}  # without an interpreter there is nothing to compare
    return places


@dataclass(frozen=True, slots=True)
class Runner:
    """A test program.

    `pattern` finds it in a command. `variables` are set for a report, with `{report}` as its file; without
    that word the report is standard output. Without variables only its own settings make it write one.
    `tests` are the patterns of its test files, and `settings` those of the other files that it reads.
    `normal_exits` are the exit codes after which it has written a report.
    """

    name: str
    pattern: re.Pattern[str]
    variables: Mapping[str, str]
    tests: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    normal_exits: tuple[int, ...] = (0, 1)

    @property
    def prints_report(self) -> bool:
        """Whether the report is its standard output."""
        return not any("{report}" in value for value in self.variables.values())

    def environment(self, report: Path, words: str = "") -> dict[str, str]:
        """Return the variables that make it write a report to a file; `words` are more options of pytest."""
        filled = {
            name: text.replace("{report}", str(report)) for name, text in self.variables.items()
        }
        if words and "PYTEST_ADDOPTS" in filled:
            filled["PYTEST_ADDOPTS"] += f" {words}"
        return filled


_PYTEST = Runner(
    "pytest",
    re.compile(r"(?:^|[\s/;&|])(?:pytest|py\.test)(?:$|[\s;&|])"),
    {"PYTEST_ADDOPTS": "--junitxml={report} -o junit_family=xunit2 -p no:cacheprovider"},
    ("tests/", "test/", "test_*.py", "*_test.py"),
    (
        "conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pytest.py", "_pytest/",
        "pluggy/", "unittest/", "unittest.py",
    ),
    # 5: no test was collected.
    normal_exits=(0, 1, 5),
)  # fmt: skip
_NODE = Runner(
    "node",
    re.compile(r"(?:^|[\s/;&|])node\s(?:.*\s)?--test\b|(?:^|[\s/;&|])npm (?:run )?test\b"),
    {
        "NODE_OPTIONS": "--test-reporter=junit --test-reporter-destination={report} "
        "--test-reporter=spec --test-reporter-destination=stdout"
    },
    (
        "tests/", "test/", "__tests__/", "*.test.js", "*.test.mjs", "*.test.cjs", "*.test.ts", "*-test.js",
        "*_test.js", "test.js", "test-*.js",
    ),
    ("jest.config.*", "vitest.config.*", ".mocharc*"),
)  # fmt: skip
_GO_TESTS = ("*_test.go", "testdata/")
_GO = Runner(
    "go", re.compile(r"(?:^|[\s/;&|])go test\b"), {"GOFLAGS": "-json"}, _GO_TESTS, ("go.sum",),
    # A package that cannot be compiled has no events.
    normal_exits=(0,),
)  # fmt: skip
_GOTESTSUM = Runner(
    "gotestsum",
    re.compile(r"(?:^|[\s/;&|])gotestsum\b"),
    {"GOTESTSUM_JUNITFILE": "{report}"},
    _GO_TESTS,
    ("go.sum",),
    normal_exits=(0,),
)
_CARGO = Runner(
    "cargo",
    re.compile(r"(?:^|[\s/;&|])cargo(?:\s+\+\S+)?[\s-](?:nextest|test|t)\b"),
    {},
    ("tests/", "testdata/"),
    # A build script could change the tests before they are compiled.
    ("build.rs", ".cargo/", "rust-toolchain", "rust-toolchain.toml"),
    # nextest exits with 100 if a test fails.
    normal_exits=(0, 100),
)
RUNNERS = (_PYTEST, _GOTESTSUM, _GO, _NODE, _CARGO)


def runner_of(command: Sequence[str] | str) -> Runner | None:
    """Return the test program that a command names, or None.

    >>> runner_of("uv run pytest -q").name, runner_of(["make"])
    ('pytest', None)
    """
    text = command if isinstance(command, str) else " ".join(command)
    return next((runner for runner in RUNNERS if runner.pattern.search(text)), None)


_PACKAGE = re.compile(rb"^\s*package\s+(\w+)", re.MULTILINE)
_IMPORTS = "imports outside of the copy: "
_PYTEST_CANARY = """\
def test_{right}():
    assert {number} % 2 == {parity}


def test_{wrong}():
    assert {number} % 2 != {parity}, "expected"
"""
# In the process of the tests, after its settings: there the import path is the one that counts.
_PYTEST_IMPORTS = """

def test_{imports}():
    import json

{search}
    found = outside({copy!r}, {modules!r})
    assert not found, {label!r} + json.dumps(found)
"""
_NODE_CANARY = """\
const test = require("node:test");
const assert = require("node:assert");
test("{right}", () => assert.strictEqual({number} % 2, {parity}));
test("{wrong}", () => assert.notStrictEqual({number} % 2, {parity}));
"""
_GO_CANARY = """\
package {package}

import "testing"

func Test_{right}(t *testing.T) {{
	if {number}%2 != {parity} {{
		t.Fatal("expected")
	}}
}}

func Test_{wrong}(t *testing.T) {{
	if {number}%2 == {parity} {{
		t.Fatal("expected")
	}}
}}
"""
# An integration test: a program of its own, which Cargo finds in the folder tests of a package.
_RUST = """\
#[test]
fn t_{right}() {{
    assert_eq!({number} % 2, {parity});
}}

#[test]
fn t_{wrong}() {{
    assert_ne!({number} % 2, {parity}, "expected");
}}
"""


@dataclass(frozen=True)
class Canary:
    """The canaries of one check.

    Args:
        path: their file, inside the copy.
        text: its content.
        right: the name of the test that must pass.
        wrong: the name of the test that must fail.
        imports: the name of the test that compares the places of imported modules, or "".
    """

    path: str
    text: str
    right: str
    wrong: str
    imports: str = ""

    def write(self, folder: Path) -> None:
        """Write the file into the copy."""
        place = folder / self.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(self.text)

    def remove(self, folder: Path) -> None:
        """Remove the file from the copy."""
        (folder / self.path).unlink(missing_ok=True)

    def is_reported(self, report: TestReport) -> bool:
        """Return whether the report has one of its tests."""
        return any(self._mine(case) for case in report.cases)

    def holds(self, report: TestReport) -> str:
        """Return why its tests did not end as they must, or ""."""
        for name, state in ((self.right, TestState.PASSED), (self.wrong, TestState.FAILED)):
            ends = [case.state for case in report.cases if name in case.id]
            if not ends:
                return "the test program did not report a test that was added for this check"
            if ends != [state]:
                must = "pass" if state is TestState.PASSED else "fail"
                return f"a test that was added for this check, and must {must}, is reported as {ends[0]}"
        return ""

    def imported(self, report: TestReport) -> Mapping[str, str]:
        """Return the modules that were imported from outside of the copy, with their places."""
        case = next((c for c in report.cases if self.imports and self.imports in c.id), None)
        if case is None or not case.failing:
            return {}
        found = re.search(rf"{_IMPORTS}(\{{.*?\}})", f"{case.message}\n{case.text}")
        try:
            places: dict[str, str] = json.loads(found[1]) if found else {}
        except ValueError:
            places = {}
        # A report may cut the message off; the failure of this test is enough.
        return places or {"a module": "another folder"}

    def without(self, report: TestReport) -> TestReport:
        """Return the report without its tests."""
        return TestReport(
            tuple(case for case in report.cases if not self._mine(case)), report.problem
        )

    def _mine(self, case: TestCase) -> bool:
        names = (self.right, self.wrong, self.imports, PurePosixPath(self.path).name)
        return any(name and name in case.id for name in names)


def imports_outside(places: Mapping[str, str]) -> str:
    """Return the sentence on modules that a check imports from outside of the copy."""
    name, place = next(iter(sorted(places.items())))
    return (
        f"it imports {name} from {place} and not from the clean copy, so it would not test the files of the "
        "loop; name a command that installs the project into the copy with --setup (setup: in a document)"
    )


def plant(
    runner: Runner | None,
    tests: Sequence[str],
    read: Callable[[str], bytes],
    *,
    folder: Path,
    modules: Sequence[str] = (),
) -> Canary | None:
    """Return new canaries for a test program, or None for one without.

    Args:
        runner: the test program.
        tests: the paths of its test files.
        read: returns the content of one of them.
        folder: the copy.
        modules: the modules of the project whose places a test compares with the copy.
    """
    if runner is None:
        return None
    beside = _beside(tests)
    number = secrets.randbelow(10**6)
    names = [secrets.token_hex(8) for _ in range(4)]
    # The order and the names do not show which test must fail.
    fields = {
        "right": names[0],
        "wrong": names[1],
        "imports": names[2],
        "number": number,
        "parity": number % 2,
    }
    if runner.name == "pytest":
        last = any(PurePosixPath(path).stem.endswith("_test") for path in tests)
        first = any(PurePosixPath(path).name.startswith("test_") for path in tests)
        # A project may collect only the pattern that it uses.
        name = f"{names[3]}_test.py" if last and not first else f"test_{names[3]}.py"
        functions = _PYTEST_CANARY.format(**fields).split("\n\n\n")
        random.SystemRandom().shuffle(functions)
        text = "\n\n".join(functions)
        if modules:
            search = textwrap.indent(OUTSIDE, "    ")
            more = {
                "copy": str(folder),
                "modules": list(modules),
                "label": _IMPORTS,
                "search": search,
            }
            text += _PYTEST_IMPORTS.format(**fields, **more)
        return Canary(f"{beside}{name}", text, names[0], names[1], names[2] if modules else "")
    if runner.name == "node":
        text = _NODE_CANARY.format(**fields)
        # The suffix makes it CommonJS, whatever the `type` of the package is.
        return Canary(f"{beside}{names[3]}.test.cjs", text, names[0], names[1])
    if runner.name == "cargo":
        programs = [path for path in tests if re.fullmatch(r"(?:.*/)?tests/[^/]+\.rs", path)]
        if not programs:
            return None
        place = f"{_beside(programs)}z{names[3]}.rs"
        return Canary(place, _RUST.format(**fields), names[0], names[1])
    mine = next((path for path in tests if _folder(path) == beside and path.endswith(".go")), None)
    package = None if mine is None else _PACKAGE.search(read(mine))
    if package is None:
        return None
    text = _GO_CANARY.format(package=package[1].decode(), **fields)
    return Canary(f"{beside}z{names[3]}_test.go", text, names[0], names[1])


def _beside(tests: Sequence[str]) -> str:
    """Return the folder with the most test files, with a slash at the end."""
    counts: dict[str, int] = {}
    for path in tests:
        counts[_folder(path)] = counts.get(_folder(path), 0) + 1
    return min(counts, key=lambda folder: (-counts[folder], len(folder), folder), default="")


def _folder(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return head + slash


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
        watch: Receives the output as it comes, and may end the command.
    """

    __test__ = False  # pytest would collect a class of this name

    command: Sequence[str] | str
    report: str = "auto"
    timeout: float | None = 600
    env: Mapping[str, str] | None = None
    pass_env: Sequence[str] = ()
    sandbox: Sandbox = field(default_factory=Sandbox)
    watch: OnOutput | None = None

    @property
    def words(self) -> str:
        """The command as a person writes it."""
        return self.command if isinstance(self.command, str) else shlex.join(self.command)

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
        with temporary_folder("report") as scratch:
            place = scratch / secrets.token_hex(8)
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
            result = await run_check(step, "", ctx, self.watch)
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
