"""`until: [{python: "module:Class", …}]`: conditions of a document's author (issue 11, section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loopwright import History, Reason, Stop, run_sync
from loopwright.conditions import AllOf, Condition, MaxIterations, from_json
from loopwright.documents import Loaded, Settings, load
from loopwright.errors import ConfigurationError, DocumentError

MODULE = '''
from dataclasses import dataclass
from loopwright import Reason, Stop
from loopwright.conditions import Condition

@dataclass(frozen=True)
class Words(Condition):
    """Satisfied once the output has so many words."""
    least: int
    mark: str = ""

    def check(self, history):
        last = history.last
        if last is None or len(str(last.output).split()) < self.least:
            return None
        return Stop(Reason.CONDITION_MET, f"{self.least} words")

class Never(Condition):
    def check(self, history):
        raise ValueError("not today")

def no_class(history): ...

def more(value, ctx):
    return "word " * ctx.iteration
'''

HEAD = "schema: loopwright/1\nname: x\nsteps:\n  - name: refine\n    loop:\n      execute: {python: own:more}\n"


def loaded(folder: Path, rest: str, **settings: Any) -> Loaded:
    """Load a document of one loop, beside a module with conditions."""
    (folder / "own.py").write_text(MODULE)
    (folder / "document.yaml").write_text(HEAD + rest)
    return load(folder / "document.yaml", Settings(**settings))


@pytest.mark.parametrize(
    ("rest", "reason", "count"),
    [
        ('      until: [{python: "own:Words", least: 3}]\n', Reason.CONDITION_MET, 3),
        ('      until: {python: "own:Words", least: 3}\n', Reason.CONDITION_MET, 3),
        ('      until:\n        all_of: [{python: "own:Words", least: 2}, {python: "own:Words", least: 4}]\n',
         Reason.CONDITION_MET, 4),
        ('      until: [{max_iterations: 5}]\n      guards: [{python: "own:Words", least: 2}]\n', Reason.CONDITION_MET, 2),
        ('      until: [{python: "own:Words", least: 9}, {max_iterations: 2}]\n', Reason.MAX_ITERATIONS, 2),
    ],
)  # fmt: skip
def test_a_document_names_a_condition_of_its_own(
    tmp_path: Path, rest: str, reason: Reason, count: int
) -> None:
    """Rule: `{python: "module:Class", ...}` stands wherever a condition does, arguments beside it."""
    result = run_sync(loaded(tmp_path, rest).step)
    assert (result.loops["refine"].reason, result.loops["refine"].iterations) == (reason, count)


def test_one_that_raises_fails_the_run_with_its_traceback(tmp_path: Path) -> None:
    """Rule: its failure is the run's, with the frames of the author's file."""
    result = run_sync(loaded(tmp_path, '      until: [{python: "own:Never"}]\n').step)
    assert result.status.value == "failed"
    assert result.detail == "x/refine: the condition Never failed: ValueError: not today"
    error = result.loops["refine"].error
    assert error is not None and "own.py" in error.traceback and error.exception == "ValueError"


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ('{python: "own:Wrods", least: 3}', "own.py has no 'Wrods'; did you mean 'Words'?"),
        ('{python: "own:no_class"}', "it is not a condition class"),
        ('{python: "own:Words", lest: 3}', "unknown field 'lest'; did you mean 'least'?"),
        ('{python: "own:Words"}', "own:Words: needs least"),
        ('{python: "own:Never", least: 3}', "it cannot be created with least: TypeError"),
        ("{python: 3}", "3 is not a class reference; write package.module:Class"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(tmp_path: Path, condition: str, message: str) -> None:
    """Rule: bad input never produces a traceback; the message says what was expected."""
    with pytest.raises(DocumentError) as caught:
        loaded(tmp_path, f"      until: [{condition}]\n")
    assert message in str(caught.value) and "document.yaml:7:" in str(caught.value)


def test_a_condition_is_listed_before_it_runs_and_is_not_imported_by_check(tmp_path: Path) -> None:
    """Rule: consent covers it as it covers other Python; a check imports nothing."""
    (tmp_path / "own.py").write_text("raise SystemExit('it was run')\n" + MODULE)
    rest = '      until: [{python: "own:Words", least: 3, max_iterations: 2}]\n      guards: [{python: "own:Never"}]\n'
    (tmp_path / "document.yaml").write_text(HEAD + rest)
    found = load(tmp_path / "document.yaml", Settings(execute=False))
    assert found.plan()["python"] == ["own:Words", "own:Never", "own:more"]
    loop = found.step.steps["refine"]
    assert '{"python": "own:Words", "least": 3, "max_iterations": 2}' in str(loop.bounds).replace(
        "'", '"'
    )


@dataclass(frozen=True)
class Least(Condition):
    """A condition of this test."""

    count: int

    def check(self, history: History) -> Stop | None:
        """Return a stop at a count of rounds."""
        return Stop(Reason.CONDITION_MET, "") if len(history) >= self.count else None


def test_a_condition_of_a_users_goes_to_json_and_back() -> None:
    """Rule: also inside of others; nothing is imported, and an unknown one is a clear error."""
    data = {"python": f"{__name__}:Least", "count": 3}
    assert Least(3).to_json() == data and from_json(data) == Least(3)
    both = AllOf((Least(3), MaxIterations(5)))
    assert from_json(both.to_json()) == both
    with pytest.raises(
        ConfigurationError, match="no imported module has the condition .away:Least."
    ):
        from_json({"python": "away:Least"})
