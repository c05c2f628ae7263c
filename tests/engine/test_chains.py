"""Stalls, chains, parents and strategies: from where an iteration continues, and what its steps see."""

from __future__ import annotations

import asyncio
import importlib.util
import random
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import (
    Context,
    Criterion,
    Evaluation,
    Failure,
    History,
    Iteration,
    Loop,
    MaxIterations,
    MemoryJournal,
    Metric,
    NoProgress,
    OnStall,
    resume,
    run,
    run_sync,
    step,
)
from loopwright.coding.agents.program import session_key
from loopwright.conditions import progress
from loopwright.engine.plan import Policies, RefineFrom, next_plan
from loopwright.errors import ConfigurationError, ReplayMismatch
from loopwright.journal.questions import answer, pending
from loopwright.records import Origin, begin_at
from loopwright.templates.variables import loop_variables

from .kept_files import TextSource
from .support import DyingJournal, crashed_after, entries_of, play

SCORES = (0.3, 0.2, 0.25, 0.5, 0.4, 0.6, 0.1)
BASELINE = 0.4
# The parents of the iterations, with | before a new chain, by where a stall begins one, the rule for the parent, and
# whether there is a baseline, which is better than the first three iterations, and an objective.
PARENTS = {
    ("best", "last", "", ""): "0 1 2 | 1 4 5 6",
    ("best", "last", "", "objective"): "0 1 2 | 1 4 5 6",
    ("best", "last", "baseline", ""): "0 1 | 1 3 4 5 6",
    ("best", "last", "baseline", "objective"): "0 1 | 0 3 4 5 6",
    ("best", "best", "", ""): "0 1 1 | 1 4 4 6",
    ("best", "best", "", "objective"): "0 1 1 | 1 4 4 6",
    ("best", "best", "baseline", ""): "0 0 | 1 1 4 4 6",
    ("best", "best", "baseline", "objective"): "0 0 | 0 0 4 4 6",
    ("last", "last", "", ""): "0 1 2 | 3 4 5 6",
    ("last", "last", "", "objective"): "0 1 2 | 3 4 5 6",
    ("last", "last", "baseline", ""): "0 1 | 2 3 4 5 6",
    ("last", "last", "baseline", "objective"): "0 1 | 2 3 4 5 6",
    ("last", "best", "", ""): "0 1 1 | 3 4 4 6",
    ("last", "best", "", "objective"): "0 1 1 | 3 4 4 6",
    ("last", "best", "baseline", ""): "0 0 | 2 3 4 4 6",
    ("last", "best", "baseline", "objective"): "0 0 | 2 3 4 4 6",
    ("fresh", "last", "", ""): "0 1 2 | 0 4 5 6",
    ("fresh", "last", "", "objective"): "0 1 2 | 0 4 5 6",
    ("fresh", "last", "baseline", ""): "0 1 | 0 3 4 5 6",
    ("fresh", "last", "baseline", "objective"): "0 1 | 0 3 4 5 6",
    ("fresh", "best", "", ""): "0 1 1 | 0 4 4 6",
    ("fresh", "best", "", "objective"): "0 1 1 | 0 4 4 6",
    ("fresh", "best", "baseline", ""): "0 0 | 0 0 4 4 6",
    ("fresh", "best", "baseline", "objective"): "0 0 | 0 0 4 4 6",
    ("", "last", "", ""): "0 1 2 3 4 5 6",
    ("", "last", "", "objective"): "0 1 2 3 4 5 6",
    ("", "last", "baseline", ""): "0 1 2 3 4 5 6",
    ("", "last", "baseline", "objective"): "0 1 2 3 4 5 6",
    ("", "best", "", ""): "0 1 1 1 4 4 6",
    ("", "best", "", "objective"): "0 1 1 1 4 4 6",
    ("", "best", "baseline", ""): "0 0 0 0 4 4 6",
    ("", "best", "baseline", "objective"): "0 0 0 0 4 4 6",
}
# A person who goes on does so from the best one, and `stop` ends there. Of a rule that draws, the parents are on record.
PARENTS |= {("ask", *key[1:]): row for key, row in PARENTS.items() if key[0] == "best"}
PARENTS |= {
    ("stop", *key[1:]): row.split(" |")[0] for key, row in PARENTS.items() if key[0] == "best"
}
PARENTS |= {
    (then, rule, *key[2:]): ""
    for then in ("", "ask", "stop")
    for rule in ("sample", "pareto")
    for key in PARENTS
}


class Seen:
    """A loop with given scores, and what the execution of each iteration saw."""

    def __init__(self, *, scores: tuple[float, ...] = SCORES, files: bool = False) -> None:
        self.scores, self.rows = scores, list[dict[str, Any]]()
        self.source = TextSource() if files else None

    def execute(self, value: str, ctx: Context) -> str:
        fields = loop_variables(ctx.scope)
        text = None if self.source is None else self.source.text
        self.rows.append({
            "input": value,
            "files": text and text.now,
            "parent": ctx.parent and ctx.parent.number,
            "last": ctx.last and ctx.last.number,
            "template": (fields["parent"].fields["iteration"] if ctx.parent is None else fields["parent"]["iteration"]),
            "feedback": fields["feedback"],
            "outputs": fields["outputs"],
            "chain": fields["chain"],
            "chains": [row["iteration"] for row in fields["chains"]],
            "strategy": ctx.strategy,
            "history": len(ctx.history),
            "session": session_key("loop", ctx, "agent"),
        })  # fmt: skip
        if text is not None:
            text.now = f"files {ctx.iteration}"
        return f"output {ctx.iteration}"

    def evaluate(self, output: str) -> Evaluation:
        number = int(output.rpartition(" ")[2]) if output.startswith("output") else 0
        score = self.scores[number - 1] if number else BASELINE
        return Evaluation(
            score,
            metrics={"value": score, "other": -number},
            feedback=f"feedback {number}",
            criteria=tuple(Criterion(f"case {n}", number % 3 == n) for n in range(3)),
        )

    def loop(self, **options: Any) -> Loop[Any, Any]:
        several = options.get("refine_from") == "pareto"
        evaluate: Any = step(self.evaluate, name="evaluate")
        if options.pop("objective", False):
            options["metrics"] = {"value": "maximise", **({"other": "maximise"} if several else {})}
            options["objective"] = list(options["metrics"])
        elif several:
            evaluate.has_cases = True  # as an evaluator over a data set
        return Loop(
            self.execute,
            evaluate,
            lambda last: f"after {last.number}",
            options.pop("until", MaxIterations(len(self.scores))),
            name="l",
            workspace=self.source,
            **options,
        )


def parents_in(history: Any) -> str:
    words = []
    for item in history:
        parent = item.number - 1 if item.parent is None else item.parent
        new = item.number > 1 and item.chain not in [
            one.chain for one in history[: item.number - 1]
        ]
        words.append(f"| {parent}" if new else f"{parent}")
    return " ".join(words)


@pytest.mark.parametrize("files", [False, True], ids=["without", "workspace"])
@pytest.mark.parametrize(("then", "rule", "baseline", "objective"), PARENTS)
def test_each_iteration_continues_from_its_parent(
    then: str, rule: str, baseline: str, objective: str, files: bool
) -> None:
    """The parents are those of the table, and input, files, feedback, last iteration and session fit them."""
    seen = Seen(files=files)
    options: dict[str, Any] = {"on_stall": then} if then else {}
    if rule != "last":
        options["refine_from"] = rule
    loop = seen.loop(baseline=bool(baseline), objective=bool(objective), **options)
    journal = MemoryJournal()
    result = run_sync(loop, "input", journal=journal, run_id="r", seed=3)
    while result.status.value == "suspended":
        result = answered(loop, journal)
    parents = PARENTS[then, rule, baseline, objective]
    assert parents_in(result.history) == (parents or parents_in(result.history))
    assert parents or all(
        not row["parent"] or result.history[row["parent"] - 1].eligible for row in seen.rows
    )
    sessions: dict[str, int] = {}
    for item, row in zip(result.history, seen.rows, strict=True):
        before = result.history[: item.number - 1]
        own = [one for one in before if one.chain == item.chain]
        parent = item.number - 1 if item.parent is None else item.parent
        last = own[-1].number if own else parent
        assert row["input"] == ("input" if not own and not parent else f"after {parent}")
        assert row["files"] == (None if not files else f"files {parent}" if parent else "start")
        assert (row["parent"] or 0, row["template"], row["last"] or 0) == (parent, parent, last)
        told = f"feedback {last}" if last else "feedback 0" if baseline else ""
        assert row["feedback"] == told
        expected = [f"output {one.number}" for one in own] or (
            [f"output {parent}"] if parent else []
        )
        assert row["outputs"] == expected
        assert (row["chain"], row["history"]) == (item.chain, item.number - 1)
        assert len(row["chains"]) == len({one.chain for one in before} - {item.chain})
        # A session goes on if its last iteration is the parent.
        assert sessions.get(row["session"], 0) == (parent if own and parent == last else 0)
        sessions[row["session"]] = item.number


def answered(loop: Loop[Any, Any], journal: MemoryJournal) -> Any:
    """Answer the question whether to begin a new chain, and go on."""

    async def go() -> Any:
        (question,) = await pending(journal, "r")
        await answer(journal, "r", question.path, {"approve": True})
        return await resume(loop, "r", journal=journal)

    return asyncio.run(go())


def plans(journal: MemoryJournal) -> dict[int, Any]:
    """Return the recorded plans by the number of their iteration."""
    found = [entry for entry in entries_of(journal, "r") if entry.kind == "planned"]
    return {int(entry.path.split("/")[1]): entry.value for entry in found}


def test_a_plan_is_recorded_from_the_second_iteration_on() -> None:
    """It says the parent, the chain, the strategy and why; a loop without the keys records none, and no new fields."""
    journal, strategies = (
        MemoryJournal(),
        {"careful": "the smallest change", "rewrite": {"temperature": 1}},
    )
    seen = Seen()
    result = run_sync(
        seen.loop(on_stall="fresh", strategies=strategies), "input", journal=journal, run_id="r"
    )
    found = plans(journal)
    assert list(found) == [2, 3, 4, 5, 6, 7]
    assert found[4] == {
        "parent": 0,
        "chain": 2,
        "strategy": "rewrite",
        "why": "2 iterations without progress",
    }
    assert [item.strategy for item in result.history] == [*["careful"] * 3, *["rewrite"] * 4]
    assert [row["strategy"] for row in seen.rows] == [
        *["the smallest change"] * 3,
        *[{"temperature": 1}] * 4,
    ]
    journal = MemoryJournal()
    plain = run_sync(Seen().loop(), "input", journal=journal, run_id="r")
    assert plans(journal) == {}
    assert {"parent", "chain", "strategy"}.isdisjoint(
        key for item in plain.history for key in item.to_json()
    )


RULES: list[dict[str, Any]] = [
    {"on_stall": OnStall("fresh", restarts=2)},
    {"on_stall": "best", "refine_from": "best", "strategies": {"a": 1, "b": 2}, "baseline": True},
    {"refine_from": {"rule": "sample", "power": 0.5, "fresh_share": 0.3}},
    {"on_stall": OnStall("last"), "until": NoProgress(3) | MaxIterations(7)},
]


@pytest.mark.parametrize(
    ("options", "files"),
    list(zip(RULES, (True, False, False, True), strict=True)),
    ids=["fresh", "strategies", "sample", "last"],
)
def test_a_run_killed_at_any_write_goes_on_alike(options: dict[str, Any], files: bool) -> None:
    """The resumed run has the same parents, chains and plans, and its steps saw the same."""
    first = Seen(scores=SCORES[:5], files=files)
    journal = DyingJournal()
    whole = play(first.loop(**options), "input", journal=journal, run_id="r", seed=4)
    expected = [(item.to_json() | {"seconds": 0}) for item in whole.history]
    for at in range(2, journal.appended):
        seen, dying = Seen(scores=SCORES[:5], files=files), DyingJournal(at)
        crashed_after(dying, seen.loop(**options), at, "input")
        again = play(seen.loop(**options), "input", journal=dying, run_id="r", seed=4)
        assert [(item.to_json() | {"seconds": 0}) for item in again.history] == expected
        assert plans(dying) == plans(journal)
        assert {str(row) for row in seen.rows} == {str(row) for row in first.rows}
        assert again.reason is whole.reason


def test_sample_draws_by_rank_and_children() -> None:
    """The shares are those of rank ** -power / (1 + children), and a fresh start has its own; the seed decides."""
    items = [
        Iteration(n, evaluation=Evaluation(score)) for n, score in enumerate((0.2, 0.9, 0.5), 1)
    ]
    items.append(Iteration(4, evaluation=Evaluation(0.1), parent=2))
    history = History([*items, Iteration(5, error=Failure("execute", "error", "no"), parent=2)])
    policies = Policies(refine_from=RefineFrom("sample", fresh_share=0.25))
    found = [next_plan(history, policies, f"{seed} l/6/plan") for seed in range(4000)]
    counts = Counter(plan.parent for plan in found)
    # Ranks: 2, 3, 1, 4. Children: 1 has 2, 2 has 3, 4 and 5, 3 has 4 only as a missing parent says.
    weights = {2: 1 / 4, 3: 1 / 2, 1: (1 / 3) / 2, 4: 1 / 4}
    for number, weight in weights.items():
        share = 0.75 * weight / sum(weights.values())
        assert abs(counts[number] / len(found) - share) < 0.025
    assert abs(counts[0] / len(found) - 0.25) < 0.025
    assert {plan.chain for plan in found if plan.parent} == {1}
    assert {(plan.chain, plan.why) for plan in found if not plan.parent} == {
        (2, "a fresh start was drawn")
    }
    assert found[7] == next_plan(history, policies, "7 l/6/plan")


def test_pareto_draws_those_that_are_best_somewhere() -> None:
    """A dominated iteration is never drawn, and the others in proportion to the cases on which they are best."""
    cases = {1: (1, 1, 0, 0), 2: (1, 0, 0, 0), 3: (0, 0, 1, 0), 4: (1, 1, 0, 0)}
    history = History(
        Iteration(number, evaluation=Evaluation(0.5, criteria=tuple(
            Criterion(f"case {case}", bool(met)) for case, met in enumerate(row)
        )))
        for number, row in cases.items()
    )  # fmt: skip
    policies = Policies(refine_from=RefineFrom("pareto"))
    found = Counter(next_plan(history, policies, f"{seed} p").parent for seed in range(3000))
    # On the last case all are equal, so each of the three counts it.
    assert set(found) == {1, 3, 4}
    assert abs(found[3] / 3000 - 2 / 8) < 0.03


def test_a_sampled_chain_goes_on_in_its_own_session() -> None:
    """An iteration belongs to the chain of its parent, and sees the latest iteration of that chain."""
    seen = Seen(scores=tuple(random.Random(1).random() for _ in range(30)))
    rule = {"rule": "sample", "fresh_share": 0.3}
    result = run_sync(seen.loop(refine_from=rule), "input", seed=3)
    chains = {item.number: item.chain for item in result.history}
    assert len(set(chains.values())) > 3
    sessions: dict[str, int] = {}
    for item, row in zip(result.history, seen.rows, strict=True):
        parent = item.number - 1 if item.parent is None else item.parent
        assert not parent or chains[parent] == item.chain
        own = [one for one, chain in chains.items() if chain == item.chain and one < item.number]
        assert (row["last"] or 0) == (own[-1] if own else 0)
        assert sessions.get(row["session"], 0) in (0, parent)
        assert (sessions.get(row["session"], 0) == parent) == (
            (bool(own) and parent == own[-1]) or not parent
        )
        sessions[row["session"]] = item.number


@given(
    st.lists(st.sampled_from([0.1, 0.2, 0.3, None]), min_size=1, max_size=9),
    st.integers(1, 3),
    st.sampled_from([None, 0.1, 0.2]),
)
def test_no_progress_is_the_rule_of_on_stall(
    scores: list[float | None], patience: int, baseline: float | None
) -> None:
    """Alone it ends a loop where `on_stall: stop` does."""
    ends = []
    for options in (
        {"until": NoProgress(patience) | MaxIterations(len(scores))},
        {"until": MaxIterations(len(scores)), "on_stall": OnStall("stop", patience)},
    ):
        replies = iter(scores if baseline is None else [baseline, *scores])
        loop: Loop[Any, Any] = Loop(
            lambda _: 0,
            partial(lambda found, _: next(found), replies),
            baseline=baseline is not None,
            **options,
        )
        result = run_sync(loop, 0)
        ends.append((result.reason, result.iterations))
    assert ends[0] == ends[1]


def evaluations(*given_evaluations: Evaluation, origin: Evaluation | None = None) -> History:
    history = History(Iteration(n, evaluation=one) for n, one in enumerate(given_evaluations, 1))
    if origin is not None:
        begin_at(history, Origin(origin, origin.standing))
    return history


def checked(text: str) -> Evaluation:
    """Return the evaluation of a command of which only the exit code is known."""
    return Evaluation(
        0.0, False, f"check exited with 1\n{text}", criteria=(Criterion("check", False, "1"),)
    )


def report(*failing: str) -> Evaluation:
    return Evaluation(0.5, False, "no", details={"tests": {"failing": list(failing)}})


def judge(text: str) -> Evaluation:
    return Evaluation(0.5, False, text, votes=({"verdict": "no"},))


@pytest.mark.parametrize(
    ("history", "stalls"),
    [
        (evaluations(judge("too long"), judge("too short"), judge("no title")), (3,)),
        (evaluations(Evaluation(0.5, feedback="a"), Evaluation(0.5, feedback="b"), Evaluation(0.5)), (3,)),
        (evaluations(report("a"), report("b"), report("b"), report("b")), (4,)),
        (evaluations(checked("in 0.1 s: a"), checked("in 0.2 s: a"), checked("in 9 s: a")), (3,)),
        (evaluations(checked("a is wrong"), checked("b is wrong"), checked("c is wrong")), ()),
        (evaluations(report("a"), report("a"), origin=report("a")), (2,)),
        (evaluations(report("a"), report("a"), origin=report("b")), ()),
        (evaluations(Evaluation(0.5), Evaluation(undecided=True), Evaluation(0.5), Evaluation(0.5)), (4,)),
        (evaluations(Evaluation(passed=False), Evaluation(passed=True), Evaluation(passed=False)), ()),
    ],
)  # fmt: skip
def test_what_is_progress(history: History, stalls: tuple[int, ...]) -> None:
    """Other failing tests are, and another text of a check that only passes or fails; the words of a judge never are."""
    assert progress(history, 2).ends == stalls


def test_the_smallest_difference() -> None:
    """`min_delta` of the policy is one of scores; with an objective, that of its metric counts, in its unit."""
    small = Seen(scores=(0.5, 0.52, 0.54, 0.56))
    result = run_sync(small.loop(on_stall=OnStall("stop", min_delta=0.05)), "")
    assert (result.reason.value, result.iterations) == ("no_progress", 3)
    metrics = {"value": Metric("maximise", min_delta=0.05)}
    again = Seen(scores=(0.5, 0.52, 0.54, 0.56))
    result = run_sync(again.loop(on_stall="stop", metrics=metrics), "")
    assert (result.reason.value, result.iterations) == ("no_progress", 3)


def test_restarts_end_the_loop() -> None:
    """After so many new chains the next stall ends the loop, and the best iteration of all chains is the result."""
    seen = Seen(scores=(0.2, 0.9, 0.1, 0.1, 0.3, 0.1, 0.1, 0.4, 0.4))
    result = run_sync(seen.loop(on_stall=OnStall("fresh", patience=2, restarts=1)), "")
    assert (result.reason.value, result.iterations, result.output) == ("no_progress", 7, "output 2")
    assert result.detail.endswith("for 2 iterations (stall 2)")
    assert {number: item.number for number, item in result.chains.items()} == {1: 2, 2: 5}
    assert result.to_json()["chains"] == [{"chain": 1, "best": 2}, {"chain": 2, "best": 5}]


async def test_what_is_explored_stays_in_its_chain() -> None:
    """After its normal end a loop that explores begins no new chain."""
    seen = Seen(scores=(0.5, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1))
    loop = seen.loop(on_stall=OnStall("fresh", restarts=1), explore=1.0)
    result = await run(loop, "", journal=MemoryJournal(), run_id="r")
    assert (result.reason.value, result.iterations, result.explored_iterations) == (
        "no_progress",
        6,
        1,
    )
    assert [row["chain"] for row in seen.rows] == [1, 1, 1, 2, 2, 2, 2]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"strategies": {"a": 1}}, "strategies: each new chain takes the next one"),
    ({"strategies": ["a"], "on_stall": "best"}, "no mapping"),
    ({"on_stall": "later"}, "later"),
    ({"on_stall": "fresh", "refine_from": "sample"}, "use ask or stop"),
    ({"refine_from": "pareto"}, "pareto needs several values"),
    ({"refine_from": "accepted"}, "none of last, best, sample, pareto"),
    ({"refine_from": {"rule": "best", "power": 2}}, "power is of the rule sample"),
    ({"refine_from": {"rule": "sample", "share": 2}}, "no rule"),
    ({"on_stall": OnStall(patience=3), "patience": 3}, "use more than 3"),
    ({"on_stall": OnStall(min_delta=0.1), "metrics": {"value": "maximise"}}, "the one of the metric value counts"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_options_that_contradict_each_other(options: dict[str, Any], message: str) -> None:
    """Each is an error that names the key and what to write."""
    with pytest.raises(ConfigurationError, match=message):
        Loop(lambda value: value, lambda output: 0.5, max_iterations=3, **options)


class EarlierJournal(DyingJournal):
    """A journal as an earlier version wrote it: without plans."""

    async def open(self, info: Any, **options: Any) -> Any:
        log = await super().open(info, **options)
        write = log.append
        log.append = lambda entry: None if entry.kind == "planned" else write(entry)
        return log


def test_the_earlier_meaning_of_fresh_is_refused() -> None:
    """A run that was recorded before chains is resumed with `last`, which is what it did, and not with `fresh`."""
    journal = EarlierJournal()
    crashed_after(journal, Seen().loop(on_stall=OnStall("fresh", restarts=1)), 20, "input")
    assert [item.kind for item in entries_of(journal, "r")].count("iteration") == 3
    with pytest.raises(ReplayMismatch, match="write then: last"):
        play(
            Seen().loop(on_stall=OnStall("fresh", restarts=1)), "input", journal=journal, run_id="r"
        )
    result = play(
        Seen().loop(on_stall=OnStall("last", restarts=1)), "input", journal=journal, run_id="r"
    )
    assert parents_in(result.history) == PARENTS["last", "last", "", ""]


def test_the_default_of_restarts_resumes_what_an_earlier_version_recorded() -> None:
    """Before, the default was one new chain, and the policy of such a run is still that of the program."""
    journal = EarlierJournal()
    crashed_after(journal, Seen().loop(on_stall=OnStall("best", restarts=1)), 20, "input")
    assert (
        play(Seen().loop(on_stall=OnStall("best")), "input", journal=journal, run_id="r").iterations
        == 7
    )


def test_fresh_chains_need_fewer_calls() -> None:
    """A sample of `benchmarks/search/restarts.py`, which has the full figure: 70 % of the calls of a patience of 2."""
    file = Path(__file__).parents[2] / "benchmarks" / "search" / "restarts.py"
    spec = importlib.util.spec_from_file_location("simulated_restarts", file)
    assert spec is not None
    assert spec.loader is not None
    simulated = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = simulated
    spec.loader.exec_module(simulated)
    for noise in simulated.NOISES:
        _, share = simulated.simulate(noise, 100)
        assert share < 0.8


def test_the_order_of_strategies_is_learned_once(tmp_path: Path) -> None:
    """Past runs of the journal decide it at the start, a resume keeps it, and without a journal it is refused."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    options: dict[str, Any] = {
        "on_stall": OnStall("fresh", patience=1), "strategies": {"careful": 1, "rewrite": 2},
        "strategy_order": "learned",
    }  # fmt: skip
    scores = (0.2, 0.1, 0.8, 0.1)  # the second chain, of `rewrite`, is the better one
    orders = []
    for number in range(4):
        seen = Seen(scores=scores)
        result = run_sync(seen.loop(**options), "", journal=url, run_id=f"r{number}")
        orders.append([item.strategy for item in result.history])
    assert orders[0] == ["careful", "careful", "rewrite", "rewrite"]
    assert orders[1][0] == "rewrite"
    again = run_sync(Seen(scores=scores).loop(**options), "", journal=url, run_id="r0")
    assert [item.strategy for item in again.history] == orders[0]
    with pytest.raises(ConfigurationError, match="strategy_order: learned needs a journal"):
        run_sync(Seen().loop(**options), "")
