"""Several candidates in one iteration: which one is chosen, what is recorded, and what each failure does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Budget,
    Candidate,
    Candidates,
    Combine,
    Context,
    Duel,
    Evaluation,
    Judged,
    Loop,
    MaxIterations,
    MemoryJournal,
    MetricAtMost,
    OnStall,
    Passed,
    Result,
    ScoreAtLeast,
    Timeout,
    Usage,
    resume,
    run,
    signal,
    step,
)
from loopwright.errors import ConfigurationError, LoopwrightWarning, StepError
from loopwright.journal import open_journal
from loopwright.records.evaluation import Tampering
from loopwright.search import Optimise
from loopwright.testing import run_virtual

from .support import entries_of, inline, play

SCORES = [0.2, 0.9, 0.9, 0.4]


def drafts(scores: Any = SCORES, *, delay: Any = lambda number: 0.0, **options: Any) -> Loop:
    """Return a loop of one iteration whose candidate k has the k-th score; an exception is raised."""

    async def write(value: Any, ctx: Context) -> str:
        await asyncio.sleep(delay(ctx.candidate))
        score = scores[ctx.candidate - 1]
        if isinstance(score, BaseException):
            raise score
        return f"{ctx.candidate}: {ctx.vary}"

    def judge(output: str) -> Any:
        return scores[int(output.partition(":")[0]) - 1]

    candidates = options.pop("candidates", None) or Candidates(
        len(scores), **options.pop("several", {})
    )
    options.setdefault("until", MaxIterations(1))
    return Loop(write, inline(judge), candidates=candidates, name="l", **options)


def states(result: Result, number: int = 1) -> list[str]:
    """Return the states of the candidates of an iteration."""
    return [one.state for one in result.history[number - 1].candidates]


def test_the_best_candidate_becomes_the_output_and_all_are_on_record() -> None:
    """The score decides, on ties the lower number; each row has what was judged, and what differed."""
    result = play(drafts(several={"vary": ["plain", {"tone": "bold"}]}), "in")
    item = result.history[0]
    assert (result.output, item.candidate, item.score) == ("2: {'tone': 'bold'}", 2, 0.9)
    assert states(result) == ["lost", "chosen", "lost", "lost"]
    assert [one.score for one in item.candidates] == SCORES
    assert [one.vary for one in item.candidates] == ["plain", {"tone": "bold"}] * 2
    assert item.candidates[2].path == "l/1/candidate-3"
    assert result.iterations == 1


def test_all_candidates_have_the_input_that_adapt_made_once() -> None:
    """Adapt runs once in an iteration, and its output is the input of each candidate and of the record."""
    adapted = []

    def adapt(last: Any) -> int:
        adapted.append(last.number)
        return int(last.output) + 10

    def add(value: int, ctx: Context) -> int:
        return value + ctx.candidate

    loop = Loop(
        add,
        inline(lambda n: n / 100),
        inline(adapt),
        candidates=3,
        until=MaxIterations(3),
        name="l",
    )
    result = play(loop, 1)
    assert (result.output, adapted) == (30, [1, 2])
    assert [item.input for item in result.history] == [1, 14, 27]


def test_the_first_iteration_can_have_more() -> None:
    """`first` counts in the first iteration; with one candidate, paths and record are those without the option."""

    async def write(value: Any, ctx: Context) -> str:
        return f"{max(ctx.candidate, 1)}: {ctx.candidate}"

    loop = Loop(write, candidates=Candidates(1, first=4), name="l", until=MaxIterations(2))
    journal = MemoryJournal()
    result = play(loop, "in", journal=journal, run_id="r")
    assert [len(item.candidates) for item in result.history] == [4, 0]
    paths = {entry.path for entry in entries_of(journal, "r")}
    assert "l/1/candidate-4/execute" in paths
    assert "l/2/execute" in paths


def test_one_candidate_changes_nothing() -> None:
    """With n = 1 the fingerprint, the entries and the result are those without the option."""
    plain = Loop(str.upper, name="l", until=MaxIterations(2))
    one = Loop(str.upper, name="l", until=MaxIterations(2), candidates=1)
    assert plain.fingerprint == one.fingerprint
    found = []
    for loop in (plain, one):
        journal = MemoryJournal()
        result = play(loop, "a", journal=journal, run_id="r")
        entries = [(e.kind, e.path, e.value) for e in entries_of(journal, "r")]
        found.append((result.to_json(), entries))
    assert found[0] == found[1]
    assert Loop(str.upper, name="l", until=MaxIterations(2), candidates=2).fingerprint != one.fingerprint  # fmt: skip


def test_the_first_that_passes_ends_the_others() -> None:
    """Candidates in flight are stopped at what they may have cost, and those that never began are skipped."""

    async def write(value: Any, ctx: Context) -> int:
        ctx.spend(Usage(calls=1))
        await asyncio.sleep(0.0 if ctx.candidate == 2 else 5.0)
        return ctx.candidate

    paid = step(write, reserve=Usage(calls=3))
    several = Candidates(5, at_once=3, pick="first_pass")
    loop = Loop(paid, inline(lambda n: n == 2), candidates=several, until=Budget(calls=99) | MaxIterations(1), name="l")  # fmt: skip
    result = play(loop, "in", journal=MemoryJournal())
    assert states(result) == ["stopped", "chosen", "stopped", "skipped", "skipped"]
    assert result.output == 2
    assert [one.usage.calls for one in result.history[0].candidates] == [3, 1, 3, 0, 0]
    assert result.usage.calls == result.history[0].usage.calls == 7


def test_of_several_that_passed_the_lowest_number_wins() -> None:
    """`first_pass` does not ask which one was faster, if both had ended; without a pass, merit decides."""
    both = [Evaluation(0.3, passed=True), Evaluation(0.9, passed=True)]
    assert play(drafts(both, several={"pick": "first_pass"}), "in").history[0].candidate == 1
    none = [Evaluation(0.3, passed=False), Evaluation(0.9, passed=False)]
    assert play(drafts(none, several={"pick": "first_pass"}), "in").history[0].candidate == 2


@pytest.mark.parametrize(
    ("rule", "scores", "expected"),
    [
        (ScoreAtLeast(0.5), [0.1, 0.6, 0.9], ["lost", "chosen", "skipped"]),
        (MetricAtMost("ms", 5), [Evaluation(0.9, metrics={"ms": 4}), 0.1, 0.2], ["chosen", "skipped", "skipped"]),
        (None, [0.1, 0.6, 0.9], ["lost", "lost", "chosen"]),
    ],
)  # fmt: skip
def test_stop_rest_is_a_condition(rule: Any, scores: Any, expected: list[str]) -> None:
    """Any condition of success can end the others."""
    result = play(drafts(scores, several={"stop_rest": rule, "at_once": 1}), "in")
    assert states(result) == expected


def test_what_passed_comes_before_a_higher_score() -> None:
    """Merit: passed first, then the score; a candidate without a score comes last."""
    marks = [Evaluation(passed=False), Evaluation(0.9, passed=False), Evaluation(0.2, passed=True)]
    assert play(drafts(marks), "in").history[0].candidate == 3
    assert play(drafts(marks[:2]), "in").history[0].candidate == 2


def test_a_candidate_without_the_objective_comes_last() -> None:
    """The objective orders the candidates in its direction, and its absence is worse than any value."""
    marks = [Evaluation(passed=True), *(Evaluation(metrics={"loss": loss}) for loss in (3.0, 2.0))]
    result = play(drafts(marks, metrics={"loss": "minimise"}), "in")
    assert result.history[0].candidate == 3
    assert result.history[0].accepted is True


def test_the_failure_of_a_candidate_is_its_own() -> None:
    """Others go on; with fewer eligible ones than `min_ok` the iteration fails, and names each error once."""
    some = [StepError("no ink"), 0.3, StepError("no ink")]
    result = play(drafts(some), "in")
    assert (result.output, states(result)) == ("2: None", ["failed", "chosen", "failed"])
    assert result.history[0].candidates[0].error.message == "no ink"
    result = play(drafts(some, several={"min_ok": 2}), "in")
    assert result.status.value == "failed"
    assert result.error.kind == "candidates_failed"
    assert result.error.message == (
        "1 of 3 candidates are eligible, and at least 2 must be; candidates 1, 3: no ink"
    )
    assert states(result) == ["failed", "lost", "failed"]


def test_failures_of_iterations_follow_on_failure() -> None:
    """`continue` goes on with the next iteration, and adapt gets the error; `retry` applies to the steps."""
    calls: list[int] = []

    def write(value: Any, ctx: Context) -> int:
        calls.append(ctx.candidate)
        if len(calls) <= 2:
            raise ValueError("not yet")
        return len(calls)

    def loop(**options: Any) -> Loop:
        calls.clear()
        return Loop(inline(write), candidates=2, name="l", until=MaxIterations(2), **options)

    result = play(loop(on_failure="continue"), "in")
    assert [item.error and item.error.kind for item in result.history] == [
        "candidates_failed",
        None,
    ]
    result = play(loop(on_failure="retry", retry_delay=0), "in")
    assert [item.error for item in result.history] == [None, None]
    assert states(result) == ["chosen", "lost"]


def test_without_headroom_a_candidate_is_skipped() -> None:
    """Each candidate reserves for itself: what does not fit is skipped, and the others count."""

    async def write(value: Any, ctx: Context) -> int:
        ctx.spend(Usage(calls=2))
        return ctx.candidate

    paid = step(write, reserve=Usage(calls=2))
    loop = Loop(paid, inline(lambda n: n / 10), candidates=4, until=Budget(calls=5) | MaxIterations(1), name="l")  # fmt: skip
    result = play(loop, "in")
    assert states(result) == ["lost", "chosen", "skipped", "skipped"]
    assert result.history[0].candidates[3].error.kind == "budget"
    # Without any, the loop ends as one without candidates does.
    result = play(Loop(paid, candidates=4, until=Budget(calls=1) | MaxIterations(3), name="l"), "in")  # fmt: skip
    assert (result.reason.value, result.iterations) == ("budget", 1)
    assert result.history[0].interrupted

    # Also if the budget of the loop ends between two steps of the candidates.
    async def slow(value: Any, ctx: Context) -> int:
        await asyncio.sleep(1)
        return await write(value, ctx)

    judge = step(lambda n: n / 10, reserve=Usage(calls=1))
    paid = step(slow, reserve=Usage(calls=2))
    result = play(Loop(paid, judge, candidates=2, until=Budget(calls=4) | MaxIterations(3), name="l"), "in")  # fmt: skip
    assert (result.reason.value, states(result)) == ("budget", ["failed", "failed"])


def test_a_candidate_has_a_budget_of_its_own() -> None:
    """A candidate that needs more than its budget fails alone."""

    async def write(value: Any, ctx: Context) -> int:
        for call in range(ctx.candidate):
            await ctx.call(f"part-{call}", paid, call)
        return ctx.candidate

    async def part(value: Any, ctx: Context) -> int:
        ctx.spend(Usage(usd=0.1))
        return value

    paid = step(part, reserve=Usage(usd=0.1))
    several = Candidates(3, budget=Budget(usd=0.2))
    result = play(Loop(write, candidates=several, name="l", until=MaxIterations(1)), "in")
    assert states(result) == ["chosen", "lost", "failed"]
    assert result.history[0].candidates[2].error.kind == "budget"
    result = play(Loop(write, candidates=Candidates(3, budget=Budget(usd=0.01)), name="l", until=MaxIterations(1)), "in")  # fmt: skip
    assert result.error.kind == "candidates_failed"


def test_a_deadline_keeps_the_best_finished_candidate() -> None:
    """The iteration is cut, and its output is that of the best candidate that had ended."""
    late = drafts(
        [0.1, 0.5, 0.9], delay=lambda number: 100.0 if number == 3 else 1.0,
        until=Timeout(10) | MaxIterations(1),
    )  # fmt: skip
    result = play(late, "in", journal=MemoryJournal())
    assert (result.reason.value, result.output) == ("timeout", "2: None")
    item = result.history[0]
    assert (item.interrupted, item.candidate, item.score) == (True, 2, 0.5)
    assert states(result) == ["lost", "chosen", "stopped"]


def test_the_judge_of_a_duel_decides_if_it_is_consistent() -> None:
    """Equal answers in both orders decide; a judge that follows the position leaves the choice to merit."""

    def shorter(pair: Any) -> str:
        return "first" if pair["first"] < pair["second"] else "second"

    several = {"pick": Duel(inline(lambda pair: "second" if shorter(pair) == "first" else "first"))}
    result = play(drafts([0.5, 0.4, 0.1], several=several), "in")
    assert result.history[0].candidate == 2
    for answer in ("first", "second", "tie", {"winner": None}):
        several = {"pick": Duel(inline(lambda pair, answer=answer: answer))}
        assert play(drafts([0.4, 0.5, 0.1], several=several), "in").history[0].candidate == 2
    wrong = {"pick": Duel(inline(lambda pair: "left"))}
    result = play(drafts([0.4, 0.5], several=wrong), "in")
    assert "expected first, second or tie" in result.error.message


def test_a_judge_that_follows_the_position_is_named() -> None:
    """After ten pairs, of which more than half turn with the order, a warning says so, once."""
    several = {"pick": Duel(inline(lambda pair: "first"))}
    for rounds, warned in ((9, False), (12, True)):
        result = play(drafts([0.4, 0.5], several=several, until=MaxIterations(rounds)), "in")
        assert any("the judge follows the position" in text for text in result.warnings) == warned
        assert all(item.candidate == 2 for item in result.history)


def test_a_refusal_by_a_check_cannot_be_outvoted() -> None:
    """No judge and no function chooses what a deterministic evaluator refused."""
    marks = [Evaluation(0.9, passed=False), Evaluation(0.1, passed=True)]
    picks = (Duel(inline(lambda pair: "first")), lambda rows: max(rows, key=lambda row: row.score).number)  # fmt: skip
    for pick in picks:
        assert play(drafts(marks, several={"pick": pick}), "in").history[0].candidate == 2


def test_a_combination_is_one_more_candidate() -> None:
    """It gets the eligible ones, best first, is judged like them, and never chosen if it is worse."""
    seen: list[Any] = []

    def combine(parts: Any) -> str:
        seen.append([(part["number"], part["score"]) for part in parts])
        return "4: both"

    marks = [0.3, StepError("no"), 0.5, 0.9]
    several = Candidates(3, pick=Combine(inline(combine)))
    result = play(drafts(marks, candidates=several), "in")
    assert seen == [[(3, 0.5), (1, 0.3)]]
    assert (result.output, result.history[0].candidate) == ("4: both", 4)
    assert states(result) == ["lost", "failed", "lost", "chosen"]
    assert [one.combined for one in result.history[0].candidates] == [False, False, False, True]
    result = play(drafts([*marks[:3], 0.1], candidates=several), "in")
    assert (result.output, states(result)[3]) == ("3: None", "lost")
    # Two are needed.
    result = play(drafts([0.3, StepError("no"), StepError("no")], candidates=several), "in")
    assert (states(result), len(seen)) == (["chosen", "failed", "failed"], 2)


def test_a_function_chooses_by_the_rows() -> None:
    """It gets the eligible candidates and returns a number; another value fails the iteration."""

    def cheapest(rows: list[Candidate]) -> int:
        return min(rows, key=lambda row: row.score).number

    assert play(drafts(several={"pick": cheapest}), "in").history[0].candidate == 1
    result = play(drafts(several={"pick": lambda rows: 9}), "in")
    assert result.error.kind == "bad_choice"
    result = play(drafts(several={"pick": lambda rows: rows[9]}), "in")
    assert "IndexError" in result.error.message


def test_undecided_candidates_are_not_eligible() -> None:
    """One that was judged is chosen; with none, the rules for undecided evaluations apply."""
    unsure = Evaluation(undecided=True, feedback="no answer")
    assert play(drafts([unsure, 0.1]), "in").history[0].candidate == 2
    result = play(drafts([unsure, unsure], until=MaxIterations(5)), "in")
    assert (result.reason.value, result.iterations) == ("evaluator_unusable", 2)


def test_a_question_of_one_suspends_when_the_others_have_ended() -> None:
    """The others run to their end first, and none of them runs again after the answer."""
    ran: list[int] = []

    async def write(value: Any, ctx: Context) -> int:
        ran.append(ctx.candidate)
        if ctx.candidate == 1:
            return int(ctx.ask("size", {}, "how many?"))
        await asyncio.sleep(1)
        return ctx.candidate

    loop = Loop(write, inline(lambda n: n / 10), candidates=3, name="l", until=MaxIterations(1))
    journal = MemoryJournal()
    assert play(loop, "in", journal=journal, run_id="r").status.value == "suspended"
    assert sorted(ran) == [1, 2, 3]
    run_virtual(journal_answer(journal, "l/1/candidate-1/execute/size", 7))
    result = run_virtual(resume(loop, "r", journal=journal))
    assert (result.output, sorted(ran)) == (7, [1, 1, 2, 3])


async def test_a_wait_of_one_leaves_when_the_others_have_ended(tmp_path: Path) -> None:
    """With `leave`, the run is suspended then, and goes on with the event."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    ran: list[int] = []

    async def write(value: Any, ctx: Context) -> int:
        if ctx.candidate == 1:
            return int((await ctx.wait("w", event="done"))["value"])
        ran.append(ctx.candidate)
        return ctx.candidate

    loop = Loop(write, inline(lambda n: n / 10), candidates=3, name="l", until=MaxIterations(1))
    result = await run(loop, "in", journal=journal, run_id="r", on_wait="leave")
    assert (result.reason.value, ran) == ("waiting", [2, 3])
    await signal("done", 9, key="r", journal=journal)
    result = await resume(loop, "r", journal=journal)
    assert (result.output, ran) == (9, [2, 3])


def test_a_thousand_candidates_are_on_record() -> None:
    """One iteration can have as many, and all of them are in its record and in the journal."""
    journal = MemoryJournal()
    loop = Loop(inline(lambda value, ctx: ctx.candidate), inline(lambda n: n % 997 / 997), name="l", candidates=1000, until=MaxIterations(1))  # fmt: skip
    result = play(loop, "in", journal=journal, run_id="r")
    item = result.history[0]
    assert (item.candidate, len(item.candidates)) == (996, 1000)
    assert run_virtual(journal.result("r")).history == result.history


def test_what_changed_its_own_check_does_not_count() -> None:
    """A rejected candidate is never chosen; with none left, the rules for tampering apply."""
    forged = Evaluation(
        passed=False, tampered=Tampering("forged", ("test_a.py",), "it wrote the report")
    )
    assert forged.tampered is not None
    assert forged.tampered.rejected
    assert play(drafts([forged, 0.1]), "in").history[0].candidate == 2
    result = play(drafts([forged, forged], until=MaxIterations(5)), "in")
    assert result.reason.value == "tampered"


async def journal_answer(journal: MemoryJournal, path: str, value: Any) -> None:
    """Answer a question of the run."""
    from loopwright.journal.questions import answer

    await answer(journal, "r", path, value)


def test_hooks_see_the_chosen_one_only() -> None:
    """`on_iteration` is called once in an iteration, with the chosen output."""
    seen: list[Any] = []
    loop = drafts(
        until=Passed() | MaxIterations(2), on_iteration=lambda item: seen.append(item.candidate)
    )
    play(loop, "in")
    assert seen == [2, 2]


def test_an_inner_loop_belongs_to_its_candidate() -> None:
    """Each candidate has an inner loop of its own, and its result is that of the name."""
    inner = Loop(lambda n, ctx: n + 1, name="inner", until=MaxIterations(2), adapt=lambda last: last.output)  # fmt: skip
    result = play(Loop(inner, lambda n: n / 10, candidates=2, name="l", until=MaxIterations(1)), 1)
    assert (result.output, list(result.loops)) == (3, ["inner", "l"])


def test_the_first_iteration_of_each_chain_can_have_more() -> None:
    """After a stall a chain begins, and its first iteration has `first` candidates."""

    async def write(value: Any, ctx: Context) -> int:
        return ctx.candidate

    loop = Loop(
        write, inline(lambda n: 0.5), candidates=Candidates(2, first=4), name="l",
        on_stall=OnStall("fresh", patience=2), until=MaxIterations(5),
    )  # fmt: skip
    result = play(loop, "in")
    assert [item.chain for item in result.history] == [1, 1, 1, 2, 2]
    assert [len(item.candidates) for item in result.history] == [4, 2, 2, 4, 2]


def test_a_sentence_is_asked_about_the_chosen_output_only() -> None:
    """A judge of `until` sees one output in each iteration."""
    asked: list[Any] = []

    def agrees(output: str) -> bool:
        asked.append(output)
        return output.startswith("2")

    sentence = Judged("it is good", judge=inline(agrees))
    result = play(drafts(until=sentence | MaxIterations(3)), "in")
    assert (asked, result.satisfied) == (["2: None"], True)


@dataclass
class Draft:
    """A declared type of an output."""

    text: str
    words: int = 0


def test_values_keep_their_declared_types() -> None:
    """Each candidate, the combination and a resume give the types that `execute` declares."""

    async def write(value: Draft, ctx: Context) -> Draft:
        return Draft(f"{value.text}{ctx.candidate}", ctx.candidate)

    def join(parts: list[dict[str, Any]]) -> Any:
        return {"text": parts[0]["output"]["text"] + "+", "words": 9}

    def adapt(last: Any) -> Draft:
        assert type(last.output) is Draft
        return last.output  # type: ignore[no-any-return]

    loop = Loop(
        write, inline(lambda draft: draft.words / 10), inline(adapt), name="l", until=MaxIterations(2),
        candidates=Candidates(2, pick=Combine(inline(join))),
    )  # fmt: skip
    journal = MemoryJournal()
    result = play(loop, Draft("a"), journal=journal, run_id="r")
    assert [item.output for item in result.history] == [Draft("a2+", 9), Draft("a2+2+", 9)]
    again = run_virtual(resume(loop, "r", journal=journal))
    assert again.history == result.history
    bad = Candidates(2, pick=Combine(inline(lambda parts: {"wrong": 1})))
    result = play(replace_candidates(loop, bad), Draft("a"))
    assert [row.state for row in result.history[0].candidates] == ["lost", "chosen", "failed"]
    error = result.history[0].candidates[2].error
    assert error is not None
    assert "the combination is not a" in error.message


def replace_candidates(loop: Loop, candidates: Candidates) -> Loop:
    """Return a loop with other candidates."""
    return Loop(loop.execute, loop.evaluate, loop.adapt, loop.until, name=loop.name, candidates=candidates)  # fmt: skip


def test_each_candidate_has_a_proposal_of_its_own() -> None:
    """An optimiser proposes one set of parameters for each; the record has the input of the chosen one."""
    loop = Loop(
        inline(lambda given: given), inline(lambda given: given["x"]), candidates=3, name="l",
        optimise=Optimise({"x": {"float": [0.0, 1.0]}}, by="random"), until=MaxIterations(2),
    )  # fmt: skip
    result = play(loop, {"y": 1})
    for item in result.history:
        scores = [row.score for row in item.candidates]
        assert len(set(scores)) == 3
        assert item.input == {"y": 1, "x": max(scores)}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n": 0}, "candidates: n: 0 is too small"),
        ({"n": 1025}, "candidates: n: 1025 is above the ceiling of 1024"),
        ({"n": 2, "min_ok": 3}, "min_ok: 3 is above the 2 candidates"),
        ({"n": 2, "pick": "best"}, "pick: 'best' is none of"),
        ({"n": 2, "pick": 5}, "pick: 5 is not a function"),
        ({"n": 2, "vary": "ab"}, "vary: 'ab' is not a list"),
        ({"n": 2, "stop_rest": MaxIterations(2)}, "is not a condition of success"),
        ({"n": 2, "budget": 3}, "budget: 3 is not a Budget"),
    ],
)
def test_a_wrong_declaration_is_refused(options: dict[str, Any], said: str) -> None:
    """Each message names the field, the value and what is expected."""
    with pytest.raises(ConfigurationError) as caught:
        Candidates(**options)
    assert said in str(caught.value)
    with pytest.raises(ConfigurationError, match="candidates: 'four' is not a number"):
        Loop(str, candidates="four")


pytestmark = pytest.mark.filterwarnings(f"ignore::{LoopwrightWarning.__module__}.LoopwrightWarning")
