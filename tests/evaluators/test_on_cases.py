"""Data sets as evaluators of loops: feedback, minibatches, and cases that are held out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.support import DyingJournal, crashed_after, entries_of, play
from loopwright import (
    Case,
    Context,
    Dataset,
    Iteration,
    Loop,
    MemoryJournal,
    Workspace,
    on_cases,
    run,
    sequence,
)
from loopwright.errors import ConfigurationError, ReplayMismatch
from loopwright.evaluators import Minibatch, gates
from loopwright.records import Result
from loopwright.testing import run_virtual

SPLIT = {"train": 50, "validation": 25, "test": 25}
WORDS = Dataset((Case(f"word-{n}", n, id=f"c{n}") for n in range(120)), split=SPLIT, name="words")


def length(factor: Any, ctx: Context) -> Any:
    """Return a guess by the output of the loop, which is right from 3 on."""
    assert ctx.case is not None
    return int(str(ctx.case.inputs).split("-")[1]) + max(0, 3 - factor)


def close(guess: int, ctx: Context) -> dict[str, Any]:
    """Return a score for the distance to the expected number."""
    assert ctx.case is not None
    distance = abs(guess - ctx.case.expected)
    return {
        "score": 1 - distance / 10,
        "passed": distance == 0,
        "feedback": f"{ctx.case.inputs} is off by {distance}" if distance else "",
        "metrics": {"distance": distance},
    }


def counting_up(evaluate: Any, seen: list[Any] | None = None, **options: Any) -> Loop:
    """Return a loop whose outputs are 1, 2, 3, …; `seen` gets what adapt reads."""

    def adapt(last: Iteration) -> Any:
        if seen is not None:
            seen.append(last.to_json())
        return last.output

    options.setdefault("max_iterations", 6)
    return Loop(lambda n: n + 1, evaluate, adapt, name="loop", **options)


def played(loop: Loop, **options: Any) -> Result:
    return run_virtual(run(loop, 0, **options))


def test_the_evaluation_has_the_mean_the_cases_and_their_metrics() -> None:
    """The score is the mean, the criteria are the cases, the metrics their means; all cases passed is a verdict."""
    cases = [Case(f"word-{n}", n, id=f"c{n}") for n in range(8)]
    result = played(counting_up(on_cases(length, cases, close)))
    first, last = result.history[0].evaluation, result.history[-1].evaluation
    assert first is not None
    assert last is not None
    assert (first.score, first.passed, first.metrics) == (0.8, None, {"distance": 2.0})
    assert [item.name for item in first.criteria] == [f"c{n}" for n in range(8)]
    assert "c0 0.80 inputs: word-0 | output: 2 | feedback: word-0 is off by 2" in first.feedback
    assert first.details["samples"]["score"] == {f"c{n}": 0.8 for n in range(8)}
    assert (last.score, last.passed, result.iterations) == (1.0, True, 3)


def test_feedback_shows_training_cases_only() -> None:
    """With splits, an author reads the worst training cases, and of the others only numbers."""
    seen: list[Any] = []
    evaluator = on_cases(length, WORDS, close, show=3)
    played(counting_up(evaluator, seen))
    shown = [line.split()[1] for line in seen[0]["feedback"].splitlines() if line.startswith("- ")]
    assert len(shown) == 3
    assert set(shown) <= set(WORDS.use("train").ids)
    hidden = {case.inputs for case in WORDS.use("validation")}
    texts = str(seen)
    assert not any(f'"{word}"' in texts or f"{word} is off" in texts for word in hidden)


def test_held_out_cases_reach_nothing_before_the_end() -> None:
    """No effect before the final scoring has a text of the split `test`; then both are scored once."""
    journal, read = MemoryJournal(), set[str]()

    def reading(factor: Any, ctx: Context) -> Any:
        assert ctx.case is not None
        assert "/end/" in ctx.path or str(ctx.case.inputs) not in held_out
        read.add(f"{ctx.case.inputs} {factor}")
        return length(factor, ctx)

    held_out = {str(case.inputs) for case in WORDS.use("test")}
    loop = counting_up(on_cases(reading, WORDS, close), baseline=True)
    result = played(loop, journal=journal, run_id="r")
    assert {
        word for word in held_out for factor in (0, 3) if f"{word} {factor}" in read
    } == held_out
    assert not any(f"{word} 1" in read or f"{word} 2" in read for word in held_out)
    entries = run_virtual(journal.entries("r"))
    before = [entry.to_json() for entry in entries if "/end/" not in entry.path and entry.path]
    before = [entry for entry in before if entry["kind"] != "ended"]
    texts = str(before)
    assert not any(f'"{word}"' in texts or f"'{word}'" in texts for word in held_out)
    assert result.held_out is not None
    figures = result.held_out["dataset"]
    assert (figures["passing"], figures["total"]) == (len(held_out), len(held_out))
    assert figures["beginning"]["mean"] == pytest.approx(0.7)
    assert figures["difference"]["difference"] == pytest.approx(0.3)
    assert figures["dataset"]["looks"] == 1
    # A second run looks again, and a resume of the first one does not.
    assert played(loop, journal=journal).held_out["dataset"]["dataset"]["looks"] == 2  # type: ignore[index]
    run_virtual(journal.rewind("r", "loop/ended"))
    again = played(loop, journal=journal, run_id="r")
    assert again.held_out == result.held_out
    assert run_virtual(journal.result("r")).held_out == result.held_out


def test_held_out_cases_are_scored_on_the_files_of_their_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a workspace, the beginning is scored on the files of the start, and the result on those that remain."""
    monkeypatch.chdir(tmp_path)  # where the copies are
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "factor").write_text("1")

    def write(number: int, ctx: Context) -> int:
        assert ctx.folder is not None
        (ctx.folder / "factor").write_text(str([2, 3, 7][ctx.iteration - 1]))
        return ctx.iteration

    def used(_: Any, ctx: Context) -> Any:
        assert ctx.folder is not None
        return length(int((ctx.folder / "factor").read_text()), ctx) + 3 * (
            (ctx.folder / "factor").read_text() == "7"
        )

    evaluator = on_cases(used, WORDS, close)
    space = Workspace(tmp_path / "files", kind="snapshot", merge="none")
    loop = Loop(
        write,
        evaluator,
        name="loop",
        max_iterations=3,
        min_iterations=3,
        baseline=True,
        workspace=space,
    )
    result = asyncio.run(run(loop, 0, journal=MemoryJournal()))
    assert not result.error, result.detail
    assert [item.score for item in result.history] == [0.9, 1.0, 0.7]
    assert result.held_out is not None
    figures = result.held_out["dataset"]
    assert figures["beginning"]["mean"] == pytest.approx(0.8)
    assert figures["result"]["mean"] == 1.0


def test_a_failed_look_at_held_out_cases_is_a_warning() -> None:
    """The loop has ended as it did, and the warning says why there are no figures."""

    def broken(factor: Any, ctx: Context) -> Any:
        if "/end/" in ctx.path:
            raise OSError("no network")
        return length(factor, ctx)

    result = played(counting_up(on_cases(broken, WORDS, close)))
    assert result.satisfied
    assert result.held_out is None
    assert any("not_held_out" in warning and "no network" in warning for warning in result.warnings)


def test_a_minibatch_compares_parent_and_candidate_on_the_same_cases() -> None:
    """Only an output whose mean is not lower is scored on the split `then`; epochs go through all cases."""
    scored: dict[str, set[str]] = {}

    def noting(factor: Any, ctx: Context) -> Any:
        assert ctx.case is not None
        scored.setdefault(ctx.path.split("/cases/")[0], set()).add(ctx.case.id)
        return length(factor, ctx)

    order = iter([2, 1, 3])
    evaluator = on_cases(noting, WORDS, close, minibatch=Minibatch(10))
    loop = Loop(
        lambda _: next(order), evaluator, lambda last: last.output, name="loop", max_iterations=3
    )
    result = played(loop, seed=5)
    assert [item.score for item in result.history] == [0.9, None, 1.0]
    worse = result.history[1].evaluation
    assert worse is not None
    assert worse.passed is False
    assert "the mean of 10 cases of the minibatch is 0.100 lower" in worse.feedback
    batches = [scored[f"loop/{n}/evaluate/minibatch"] for n in (1, 2, 3)]
    assert scored["loop/2/evaluate/minibatch-parent"] == batches[1]
    assert "loop/2/evaluate" not in scored
    assert set.union(*batches) <= set(WORDS.use("train").ids)
    assert len(set.union(*batches)) == 30
    again = iter([2, 1, 3])
    order = again
    before = dict(scored)
    scored.clear()
    played(loop, seed=5)
    assert scored == before


def test_a_minibatch_belongs_to_its_iteration() -> None:
    """The evaluation of the input is the same in a resume and within another loop; a judgement at the end has none."""
    data = Dataset(list(WORDS)[:40], split={"train": 50, "validation": 50})
    evaluator = on_cases(length, data, close, minibatch=Minibatch(8))
    loop = counting_up(evaluator, baseline=True, rejudge=1)
    journal = DyingJournal()
    whole = play(loop, 1, journal=journal, run_id="r", seed=3)
    paths = [entry.path for entry in entries_of(journal, "r")]
    assert any(path.startswith("loop/0/evaluate/minibatch/") for path in paths)
    assert not any("rejudge/1/evaluate/minibatch" in path for path in paths)
    ended = [entry.kind for entry in entries_of(journal, "r")].index("iteration") + 2
    dying = DyingJournal()
    crashed_after(dying, loop, ended, 1)
    again = play(loop, 1, journal=dying, run_id="r")
    assert [item.output for item in again.history] == [item.output for item in whole.history]
    outer = Loop(loop, lambda n: n / 10, name="outer", max_iterations=2)
    play(outer, 1, journal=(journal := MemoryJournal()), run_id="r")
    paths = [entry.path for entry in entries_of(journal, "r")]
    assert not any("/0/evaluate/minibatch-parent" in path for path in paths)


def test_a_changed_case_of_a_loop_is_named() -> None:
    """Of the split that scores and of a minibatch, with other data sets in the run."""
    data, other = (
        list(WORDS)[:60],
        on_cases(lambda n: n, list(WORDS)[:3], lambda n: 0.5, name="other"),
    )
    minibatch, before = Minibatch(8), Loop(lambda n: n + 1, other, max_iterations=1, name="before")

    def program(cases: list[Case]) -> Any:
        loop = counting_up(
            on_cases(length, Dataset(cases, split=SPLIT), close, minibatch=minibatch)
        )
        return sequence(before, loop, name="both")

    journal = DyingJournal()
    play(program(data), 0, journal=journal, run_id="r", seed=3)
    paths = [entry.path for entry in entries_of(journal, "r")]
    for split, at in (("train", "1/evaluate/minibatch"), ("validation", "1/evaluate")):
        place = f"both/loop/{at}/cases/s0000/"
        changed = (
            next(path for path in paths if path.startswith(place))
            .removeprefix(place)[:3]
            .rstrip("/")
        )
        assert changed in Dataset(data, split=SPLIT).use(split).ids
        again = [Case(c.inputs, -1, id=c.id) if c.id == changed else c for c in data]
        dying = DyingJournal()
        crashed_after(dying, program(data), len(paths) - 30, 0)
        with pytest.raises(ReplayMismatch, match=f"the case '{changed}' was changed"):
            play(program(again), 0, journal=dying, run_id="r")


def test_looks_count_the_held_out_cases_not_the_file() -> None:
    """Further training cases begin no new count, and other held-out cases do."""
    held_out = {case.id for case in WORDS.use("test")}
    train = WORDS.use("train").ids
    journal = MemoryJournal()

    def looks(cases: list[Case]) -> Any:
        data = Dataset(cases, split=SPLIT)
        result = played(
            counting_up(on_cases(length, data, close), max_iterations=1), journal=journal
        )
        assert result.held_out is not None
        return result.held_out["dataset"]["dataset"]["looks"]

    cases = list(WORDS)
    assert looks(cases) == 1
    assert looks([case for case in cases if case.id != train[0]]) == 2
    first = next(case.id for case in cases if case.id in held_out)
    assert looks([case for case in cases if case.id != first]) == 1


def test_cases_among_several_evaluators_have_a_front() -> None:
    """After a check too, the iterations of a data set are compared case by case."""
    several = gates(lambda factor: factor > 1, on_cases(length, list(WORDS)[:4], close))
    result = played(counting_up(several, refine_from="pareto", max_iterations=2))
    assert result.history[1].evaluation is not None
    assert len(result.history[1].evaluation.details["samples"]["score"]) == 4


def test_a_small_minibatch_warns() -> None:
    """Fewer than 8 cases say little."""
    evaluator = on_cases(length, WORDS, close, minibatch=4)
    result = played(counting_up(evaluator))
    assert any(warning.startswith("small_minibatch") for warning in result.warnings)


def test_too_many_errors_are_an_error_of_the_evaluation() -> None:
    """Above `most_errors` the iteration fails as `cases_failed`, and the loop follows its policy."""

    def failing(factor: Any, ctx: Context) -> Any:
        if factor == 1:
            raise ValueError("no answer")
        return length(factor, ctx)

    result = played(counting_up(on_cases(failing, WORDS, close), on_failure="continue"))
    assert result.history[0].error is not None
    assert result.history[0].error.kind == "cases_failed"
    assert result.satisfied


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"use": ["test"]}, "'test' is held out"),
        ({"use": ["dev"]}, "there is no split 'dev'"),
        ({"minibatch": 0}, "minibatch: size"),
        ({"minibatch": 8, "use": ["train"]}, "its `then` names the split"),
        ({"at_once": 0}, "at_once"),
        ({"most_errors": 2}, "most_errors"),
    ],
)
def test_a_wrong_option_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    """A wrong option is refused before anything runs, by its name."""
    make: Callable[..., Any] = on_cases
    with pytest.raises(ConfigurationError, match=sentence):
        make(length, WORDS, close, **options)
