"""Sentences of `until`: which are asked, in which order, what the loop then does, and what is recorded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import (
    AllOf,
    AnyOf,
    Condition,
    Evaluation,
    Judged,
    Loop,
    MaxIterations,
    MemoryJournal,
    NoImprovement,
    OutputMatches,
    Passed,
    Reason,
    ScoreAtLeast,
    Undecided,
    resume,
    run,
    step,
)
from loopwright.conditions import from_json
from loopwright.errors import ConfigurationError
from loopwright.evaluators import gates, judge
from loopwright.journal.questions import answer, pending
from loopwright.models import Models, ScriptedModel

from .support import DyingJournal, examples, play

TEXTS = ("It is short.", "It is kind.", "It is true.")
LIMIT = 4


@dataclass(frozen=True)
class Round:
    """What one iteration gets: a score, a verdict of the check, and the answers by sentence."""

    score: float | None
    passed: bool | None
    answers: tuple[bool | None, ...]


rounds = st.builds(
    Round,
    st.sampled_from([None, 0.3, 0.9]),
    st.sampled_from([None, True, False]),
    st.tuples(*[st.sampled_from([True, False, False, None]) for _ in TEXTS]),
)
leaves = st.one_of(
    st.sampled_from(TEXTS).map(lambda text: ("sentence", text)),
    st.sampled_from([("score", 0.8), ("passed", None), ("limit", 2), ("limit", 3)]),
)
trees = st.recursive(
    leaves,
    lambda inner: st.tuples(
        st.sampled_from(["any", "all"]), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=7,
)


def condition(tree: Any) -> Condition:
    """Return a tree as a condition."""
    kind, value = tree
    if kind in ("any", "all"):
        return (AnyOf if kind == "any" else AllOf)(tuple(map(condition, value)))
    return {
        "sentence": Judged,
        "score": ScoreAtLeast,
        "limit": MaxIterations,
        "passed": lambda _: Passed(),
    }[kind](value)


# The truth table, written without the code that it checks: what a tree is worth follows from every way in which
# the open sentences could be answered.


def sentences_of(tree: Any) -> Iterator[str]:
    """Iterate over the sentences of a tree in document order."""
    kind, value = tree
    if kind == "sentence":
        yield value
    for inner in value if kind in ("any", "all") else ():
        yield from sentences_of(inner)


def limits_of(tree: Any) -> list[int]:
    """Return the limits of a tree at any depth: they also act alone."""
    kind, value = tree
    if kind in ("any", "all"):
        return [limit for inner in value for limit in limits_of(inner)]
    return [value] if kind == "limit" else []


def has_goal(tree: Any) -> bool:
    """Return whether a tree has a condition of success; a loop without one ends when it passes."""
    kind, value = tree
    return any(map(has_goal, value)) if kind in ("any", "all") else kind != "limit"


def worth(tree: Any, number: int, this: Round, answers: dict[str, bool]) -> int:
    """Return 2 for a success, 1 for an end without success, 0 for neither."""
    kind, value = tree
    if kind == "sentence":
        return 2 * answers[value]
    if kind == "score":
        return 2 * (this.score is not None and this.score >= value)
    if kind == "passed":
        return 2 * (this.passed is True)
    if kind == "limit":
        return int(number >= value)
    inner = [worth(member, number, this, answers) for member in value]
    return max(inner) if kind == "any" else (0 if 0 in inner else max(inner))


def outcomes(tree: Any, number: int, this: Round, known: dict[str, bool | None]) -> set[int]:
    """Return the worths of a tree over every answer to its open sentences."""
    free = [text for text in TEXTS if known.get(text) is None]
    given = {text: passed for text, passed in known.items() if passed is not None}
    ways = itertools.product([True, False], repeat=len(free))
    return {
        worth(tree, number, this, {**given, **dict(zip(free, way, strict=True))}) for way in ways
    }


def next_question(tree: Any, number: int, this: Round, known: dict[str, bool | None]) -> str:
    """Return the first sentence to ask: not below an "and" with a refused member or a satisfied "or"."""
    kind, value = tree
    if kind == "sentence":
        return "" if value in known else value
    if kind not in ("any", "all"):
        return ""
    inner = [outcomes(member, number, this, known) for member in value]
    if kind == "any" and {2} in inner:
        return ""
    if kind == "all" and {0} in inner:
        return ""
    found = (next_question(member, number, this, known) for member in value)
    return next((text for text in found if text), "")


def expected(tree: Any, given: list[Round], least: int) -> tuple[list[tuple[int, str]], str, int]:
    """Return the questions in their order, the reason for the end, and the number of iterations."""
    asked, row = [], 0
    if not has_goal(tree):
        tree = ("any", [tree, ("passed", None)])
    limit = min([*limits_of(tree), LIMIT])
    for number, this in enumerate(given, start=1):
        known: dict[str, bool | None] = {}
        while this.passed is not False and (text := next_question(tree, number, this, known)):
            asked.append((number, text))
            known[text] = this.answers[TEXTS.index(text)]
        answered = {text: known.get(text) is True for text in TEXTS}
        success = worth(tree, number, this, answered) == 2
        is_open = (
            not success
            and None in known.values()
            and 2
            in outcomes(
                tree,
                number,
                this,
                {text: known.get(text, False) for text in TEXTS},
            )
        )
        row = row + 1 if is_open else 0
        if row == 2:
            return asked, "evaluator_unusable", number
        if success and number >= least:
            return asked, "condition_met", number
        if number == limit:
            return asked, "max_iterations", number
    raise AssertionError("the limit ends every loop")


def with_questions(given: list[Round], asked: list[tuple[int, str]], **options: Any) -> Any:
    """Return how to make a loop of a tree whose sentences are answered by a script; questions go to `asked`."""

    def answering(text: str) -> Any:
        @step(fingerprint=f"answer {text}", inline=True)
        def answer_of(number: int) -> Evaluation:
            asked.append((number, text))
            passed = given[number - 1].answers[TEXTS.index(text)]
            return Evaluation(passed=passed, undecided=passed is None, feedback=f"reason {number}")

        return answer_of

    @step(fingerprint="number", inline=True)
    def execute(_: Any, ctx: Any) -> int:
        return ctx.iteration

    @step(fingerprint="evaluate", inline=True)
    def evaluate(number: int) -> Evaluation:
        this = given[number - 1]
        return Evaluation(this.score, this.passed)

    def made(tree: Any) -> Loop:
        def judged(part: Any) -> Condition:
            kind, value = part
            if kind in ("any", "all"):
                return (AnyOf if kind == "any" else AllOf)(tuple(map(judged, value)))
            return Judged(value, judge=answering(value)) if kind == "sentence" else condition(part)

        until = judged(tree) | MaxIterations(LIMIT)
        return Loop(execute, evaluate, until=until, name="w", **options)

    return made


@given(
    tree=trees,
    given_rounds=st.lists(rounds, min_size=LIMIT, max_size=LIMIT),
    least=st.integers(1, 2),
)
def test_what_is_asked_and_how_the_loop_ends_are_those_of_the_truth_table(
    tree: Any, given_rounds: list[Round], least: int
) -> None:
    """Depth first while an answer could make the tree succeed; no limit closes a question, a failed check closes all."""
    asked: list[tuple[int, str]] = []
    loop = with_questions(given_rounds, asked, min_iterations=least)(tree)
    result = play(loop, 0)
    questions, reason, iterations = expected(tree, given_rounds, least)
    assert (asked, result.reason.value, result.iterations) == (questions, reason, iterations)
    for item in result.history:
        said = {text for number, text in asked if number == item.number}
        if loop.sentences:
            assert set(item.evaluation.verdicts) == said
        # A sentence is never a score or a verdict.
        assert (item.score, item.passed) == (
            given_rounds[item.number - 1].score, given_rounds[item.number - 1].passed,
        )  # fmt: skip


@examples(0.15)
@given(tree=trees, given_rounds=st.lists(rounds, min_size=LIMIT, max_size=LIMIT))
def test_a_run_killed_at_any_write_asks_nothing_again(tree: Any, given_rounds: list[Round]) -> None:
    """A resumed run ends as an uninterrupted one; only the call in flight is repeated."""
    asked: list[tuple[int, str]] = []
    loop = with_questions(given_rounds, asked)(tree)
    journal = DyingJournal()
    whole = play(loop, 0, journal=journal, run_id="r")
    paid = list(asked)
    for at in range(1, journal.appended + 1):
        asked.clear()
        dying = DyingJournal(at)
        assert _live(loop, dying) is None
        dying.at = 0
        again = _live(loop, dying)
        assert again is not None
        assert _told(again) == _told(whole)
        repeated = [pair for pair in paid if asked.count(pair) > 1]
        assert len(repeated) <= 1
        assert sorted({*asked}) == sorted(paid)


def _live(loop: Loop, journal: Any) -> Any:
    import asyncio

    from loopwright.errors import OwnershipLost

    try:
        return play(loop, 0, journal=journal, run_id="r")
    except (asyncio.CancelledError, OwnershipLost):
        return None


def _told(result: Any) -> Any:
    rows = [(i.number, i.output, i.evaluation.to_json()) for i in result.history]
    return result.reason, result.detail, result.output, rows


def test_a_list_of_sentences_is_or() -> None:
    """`["It names a colour.", "It names a number."]` with no and yes ends at once, with both answers on record."""
    asked: list[tuple[int, str]] = []
    made = with_questions([Round(None, None, (False, True, None))], asked)
    tree = ("any", [("sentence", TEXTS[0]), ("sentence", TEXTS[1])])
    loop = Loop(lambda v: v + 1, until=made(tree).until)
    result = play(loop, 0)
    assert (result.reason, result.iterations) == (Reason.CONDITION_MET, 1)
    evaluation = result.history[0].evaluation
    assert evaluation is not None
    assert {text: v["passed"] for text, v in evaluation.verdicts.items()} == {
        TEXTS[0]: False, TEXTS[1]: True,
    }  # fmt: skip
    assert (evaluation.score, evaluation.passed) == (None, None)
    assert evaluation.feedback == "It is short: reason 1"


def test_a_sentence_beside_a_score_keeps_the_score() -> None:
    """The answer of a judge replaces neither the score nor the verdict of the evaluator."""
    models = Models(ScriptedModel([{"replies": [{"json": {"verdict": "no", "score": 10}}]}]))
    until = AnyOf((Judged("It names a colour."), ScoreAtLeast(0.8), MaxIterations(2)))
    result = play(
        Loop(str, lambda _: 0.5, until=until),
        "x",
        resources={"models": models, "model": "openai:m"},
    )
    assert [item.score for item in result.history] == [0.5, 0.5]


def test_one_sentence_without_an_evaluator_is_the_judge_of_the_loop() -> None:
    """It has the fingerprint, the score and the verdict of `evaluate=judge(sentence)` with `Passed`."""
    loop = Loop(str, until=Judged("It is good."), name="w")
    same = Loop(str, judge("It is good."), until=Passed(), name="w")
    assert loop.fingerprint == same.fingerprint
    assert (loop.sentences, str(loop.until)) == ({}, "passed()")


def test_equal_sentences_are_one_question() -> None:
    """The same text twice is asked once; with two models it is refused."""
    asked: list[tuple[int, str]] = []
    tree = ("all", [("any", [("sentence", TEXTS[0]), ("score", 0.8)]), ("sentence", TEXTS[0])])
    play(with_questions([Round(0.3, None, (True, None, None))], asked)(tree), 0)
    assert asked == [(1, TEXTS[0])]
    with pytest.raises(ConfigurationError, match="has two models"):
        Loop(str, str, until=Judged("a b") & Judged("a b", model="openai:x"))


def test_a_sentence_among_the_guards_is_refused() -> None:
    """Guards are checked before each step, and a sentence is asked after an iteration."""
    with pytest.raises(ConfigurationError, match="move it to until"):
        Loop(str, str, guards=Judged("It is good."))


@given(st.sampled_from(TEXTS), st.sampled_from(["", "openai:gpt-4o"]))
def test_a_sentence_goes_to_json_and_back(text: str, model: str) -> None:
    """`{"judged": sentence}` is the condition, with the model if it has one."""
    made = Judged(text, model=model)
    assert from_json(made.to_json()) == made
    assert from_json({"judged": text}) == Judged(text)


def test_a_record_of_an_earlier_version_answers_with_its_verdict() -> None:
    """Without `verdicts`, every sentence has the answer `passed`; with `{}` none has one."""
    assert Evaluation(passed=True).answer("any") is True
    assert Evaluation(passed=True, verdicts={}).answer("any") is None


@pytest.mark.parametrize(
    ("evaluate", "questions"),
    [
        (lambda _: False, 0),  # a check that refused the output closes every sentence
        (lambda _: 0.1, 1),  # a score alone closes nothing
        (gates(lambda _: True, judge("It is good.")), 1),  # a refusal by a judge does not either
        (gates(lambda _: False, judge("It is good.")), 0),
    ],
)
def test_a_check_cannot_be_overruled(evaluate: Any, questions: int) -> None:
    """No sentence is asked of an output that a deterministic evaluator refused, and none holds."""
    asked: list[tuple[int, str]] = []
    made = with_questions([Round(None, None, (True, True, True))], asked)
    models = Models(ScriptedModel([{"replies": [{"json": {"verdict": "no", "score": 10}}]}]))
    until = made(("sentence", TEXTS[0])).sentences[TEXTS[0]]
    loop = Loop(
        lambda v: v + 1, evaluate, until=Judged(TEXTS[0], judge=until) | MaxIterations(1), name="w"
    )
    result = play(loop, 0, resources={"models": models, "model": "openai:m"})
    assert len(asked) == questions
    assert result.satisfied == bool(questions)


# Undecided.

UNSURE = Round(0.5, True, (None, True, True))


def undecided(policy: Undecided, tree: Any, *given_rounds: Round) -> tuple[Any, Loop]:
    """Return the questions and a loop with a policy."""
    asked: list[tuple[int, str]] = []
    rows = [*given_rounds, *[given_rounds[-1]] * LIMIT]
    return asked, with_questions(rows, asked, undecided=policy)(tree)


def test_an_undecided_sentence_leaves_a_valid_score() -> None:
    """The iteration is not satisfied and counts as undecided; its score may be the best one."""
    _, loop = undecided(Undecided(2), ("sentence", TEXTS[0]), UNSURE)
    result = play(loop, 0)
    assert (result.reason, result.iterations) == (Reason.EVALUATOR_UNUSABLE, 2)
    assert result.best is not None
    assert (result.best.number, result.best.score) == (1, 0.5)
    assert "reason 2" in result.detail


@pytest.mark.parametrize(
    ("policy", "passed", "satisfied"),
    [("reject", True, False), ("accept_check", True, True), ("accept_check", None, False)],
)
def test_policies_decide_a_sentence(policy: str, passed: bool | None, satisfied: bool) -> None:
    """`reject` counts no; `accept_check` counts yes only if a deterministic evaluator passed."""
    given_round = Round(0.5, passed, (None, None, None))
    _, loop = undecided(Undecided(1, policy), ("sentence", TEXTS[0]), given_round)
    result = play(loop, 0)
    assert result.satisfied is satisfied
    assert result.reason in (Reason.CONDITION_MET, Reason.MAX_ITERATIONS)


def test_accept_check_needs_a_check() -> None:
    """Without a deterministic evaluator the policy is refused when the loop is declared."""
    with pytest.raises(ConfigurationError, match="accept_check needs a deterministic evaluator"):
        Loop(str, until=Judged("a b") | Judged("c d"), undecided=Undecided(1, "accept_check"))


async def _asked_and_answered(loop: Loop, reply: Any) -> Any:
    journal = MemoryJournal()
    first = await run(loop, 0, journal=journal, run_id="r")
    (question,) = await pending(journal, "r")
    assert (first.status.value, question.path) == ("suspended", "w/1/verdict-1")
    assert question.request["sentence"] == TEXTS[0]
    with pytest.raises(ConfigurationError, match="is true or not"):
        await answer(journal, "r", question.path, {"score": 0.9})
    await answer(journal, "r", question.path, reply)
    return await resume(loop, "r", journal=journal)


@pytest.mark.parametrize(("passed", "iterations"), [(True, 1), (False, 2)])
def test_a_person_decides_a_sentence(passed: bool, iterations: int) -> None:
    """`pause` asks for the sentence, takes no score, and the questions before it are not asked again."""
    from loopwright.testing import run_virtual

    tree = ("all", [("sentence", TEXTS[1]), ("sentence", TEXTS[0])])
    rows = [Round(0.5, None, (None, True, True)), Round(0.5, None, (True, True, True))]
    asked, loop = undecided(Undecided(1, "pause"), tree, *rows)
    # The numbers are those of the document: the second sentence of TEXTS is the first here.
    loop = Loop(
        loop.execute,
        loop.evaluate,
        until=AllOf((loop.until.members[0].members[1], loop.until.members[0].members[0]))
        | MaxIterations(LIMIT),
        name="w",
        undecided=Undecided(1, "pause"),
    )
    result = run_virtual(_asked_and_answered(loop, {"passed": passed, "reason": "seen"}))
    assert (result.satisfied, result.iterations) == (True, iterations)
    assert len(asked) == len(set(asked))
    verdict = result.history[0].evaluation.verdicts[TEXTS[0]]
    assert (verdict["passed"], verdict["feedback"]) == (passed, "seen")


def test_an_error_of_a_sentence_fails_the_iteration() -> None:
    """A judge that cannot be called is no answer; the stage is named."""

    @step(fingerprint="broken")
    def broken(_: Any) -> Evaluation:
        raise ValueError("no connection")

    loop = Loop(str, str, until=Judged("a b", judge=broken) | MaxIterations(2), name="w")
    result = play(Loop(str, lambda _: 0.5, until=loop.until, name="w"), "x")
    assert (result.reason, result.history[0].error.stage) == (Reason.ERROR, "until")


def test_the_input_is_decided_by_the_same_tree() -> None:
    """With `baseline`, `passed` alone does not satisfy a loop that asks for a sentence too."""
    asked: list[tuple[int, str]] = []

    @step(fingerprint="answer")
    def no(value: Any) -> Evaluation:
        asked.append((0, str(value)))
        return Evaluation(passed=str(value) == "better")

    until = (Passed() & Judged("a b", judge=no)) | MaxIterations(2)
    loop = Loop(lambda _: "better", lambda _: True, until=until, baseline=True)
    result = play(loop, "input")
    assert (result.reason, result.iterations) == (Reason.CONDITION_MET, 1)
    assert asked == [(0, "input"), (0, "better")]
    done = play(Loop(str, lambda _: True, until=until, baseline=True), "better")
    assert (done.reason, done.iterations) == (Reason.ALREADY_SATISFIED, 0)
    # A condition on the output cannot hold before there is one.
    text = OutputMatches("input") | MaxIterations(1)
    assert play(Loop(str, lambda _: True, until=text, baseline=True), "input").iterations == 1


def test_sentences_do_not_count_as_progress() -> None:
    """`no_improvement` and `no_progress` read the evaluation, not the answers."""
    rows = [Round(0.5, None, (False, bool(n % 2), False)) for n in range(LIMIT)]
    asked: list[tuple[int, str]] = []
    tree = ("all", [("sentence", TEXTS[1]), ("sentence", TEXTS[0])])
    until = with_questions(rows, asked)(tree)
    loop = Loop(until.execute, until.evaluate, until=until.until | NoImprovement(2), name="w")
    assert play(loop, 0).reason is Reason.NO_IMPROVEMENT


def test_a_deadline_between_evaluate_and_a_sentence_keeps_the_score() -> None:
    """The iteration is recorded as interrupted, with what `evaluate` said and without an answer."""

    @step(fingerprint="slow")
    async def slow(_: Any, ctx: Any) -> bool:
        await ctx.sleep(60)
        return True

    until = (ScoreAtLeast(0.4) & Judged("a b", judge=slow)) | MaxIterations(3)
    result = play(Loop(str, lambda _: 0.5, until=until, timeout=5, name="w"), "x")
    (item,) = result.history
    assert (result.reason, item.interrupted, item.score) == (Reason.TIMEOUT, True, 0.5)
    assert item.evaluation.verdicts is None


def test_an_explored_run_asks_on() -> None:
    """After its normal end, a run that explores records the answers that a replay needs."""
    asked: list[tuple[int, str]] = []
    rows = [Round(0.9, None, (True, True, True))] * LIMIT
    made = with_questions(rows, asked, explore=1.0)
    tree = ("all", [("score", 0.8), ("sentence", TEXTS[0])])
    result = play(made(tree), 0, journal=MemoryJournal(), run_id="r")
    assert (result.iterations, result.explored_iterations) == (1, LIMIT - 1)
    assert [number for number, _ in asked] == [1, 2, 3, 4]
