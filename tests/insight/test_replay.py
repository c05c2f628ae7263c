"""Replay reproduces recorded stops, gives no estimate for censored runs, and finds what can be saved."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from insight.simulated_runs import recorded, writer
from loopwright import (
    Degrading,
    Evaluation,
    History,
    Iteration,
    Judged,
    Loop,
    MaxIterations,
    NoImprovement,
    OutputMatches,
    Passed,
    Reason,
    RepeatedOutput,
    ScoreAtLeast,
    Stop,
    Timeout,
    Workflow,
    run,
    step,
)
from loopwright.conditions import Budget, NoProgress
from loopwright.errors import ConfigurationError
from loopwright.insight import (
    Backtest,
    LeftOut,
    Recording,
    Recordings,
    StoppingPolicy,
    loop_named,
    policy_from_json,
    recordings_of,
    replay,
    selected,
)
from loopwright.journal import open_journal

LIMIT = MaxIterations(8)


def random_condition(chance: random.Random, depth: int = 2, *, budgets: bool = True):
    """Return a random tree of conditions."""
    if depth and chance.random() < 0.5:
        parts = [random_condition(chance, depth - 1, budgets=budgets) for _ in range(2)]
        return parts[0] | parts[1] if chance.random() < 0.6 else parts[0] & parts[1]
    limit = [Budget(calls=chance.randint(4, 14))] if budgets else []
    return chance.choice([
        ScoreAtLeast(round(chance.uniform(0.6, 0.95), 2), min_iterations=chance.randint(1, 3)),
        NoImprovement(chance.randint(1, 3), min_delta=chance.choice([0.0, 0.02])),
        MaxIterations(chance.randint(1, 8)), Degrading(rule="strict", window=2), Degrading(sigma=0.01),
        RepeatedOutput(), Passed(), OutputMatches("[35]"), NoProgress(2), Timeout(3600), *limit,
    ])  # fmt: skip


async def test_stops_of_random_trees_are_reproduced() -> None:
    chance = random.Random(11)
    for seed in range(40):
        until = random_condition(chance) | LIMIT
        data = await recorded(
            5, until, seed=seed, failing=0.15, on_failure="continue", max_failures=2,
            min_iterations=chance.randint(1, 3),
        )  # fmt: skip
        # A budget that refuses a call ends an iteration early, and such a run is left out.
        why = [one.why for one in data.left_out]
        assert all("cut short" in text or "budget" in text for text in why), why


async def test_policies_agree_with_the_decisions_of_the_loop() -> None:
    chance = random.Random(7)
    data = await recorded(30, LIMIT, failing=0.1, on_failure="continue", min_iterations=2)
    backtest = Backtest(data)
    assert data.left_out == []
    for _ in range(60):
        policy = StoppingPolicy(random_condition(chance) | MaxIterations(chance.randint(1, 8)))
        result = backtest.evaluate(policy)
        for pair, item in zip(result.pairs, data.items, strict=True):
            loop = policy.applied(item.loop)
            stops = (n for n, h in enumerate(item.prefixes, 1) if loop.decide(h))
            assert pair.iterations == next(stops, None)


async def test_a_policy_that_needs_an_answer_that_was_not_asked_is_censored() -> None:
    """A recorded answer decides; where no judge was asked, only bounds are known, unless the policy stops anyway."""

    @step(fingerprint="kind")
    def kind(output: str) -> bool:
        return output.endswith(("1", "3", "5"))

    asks = Judged("It is kind.", judge=kind)
    data = await recorded(40, (ScoreAtLeast(0.8) & asks) | LIMIT)
    assert data.left_out == []
    backtest = Backtest(data)
    censored = 0
    for threshold in (0.6, 0.7, 0.8, 0.9):
        policy = policy_from_json(
            [{"all_of": [{"score_at_least": threshold}, "It is kind."]}, {"max_iterations": 8}]
        )
        result = backtest.evaluate(policy)
        for pair, item in zip(result.pairs, data.items, strict=True):
            expected: int | None = None
            for number, history in enumerate(item.prefixes, start=1):
                said = history[-1].evaluation.verdicts.get("It is kind.")
                if history[-1].score >= threshold and said is None:
                    break  # unknown
                met = history[-1].score >= threshold and said["passed"]
                if met or number == 8:
                    expected = number
                    break
            assert pair.iterations == expected
            censored += expected is None
        if threshold >= 0.8:
            assert all(pair.low <= pair.high for pair in result.pairs)
    assert censored > 5


async def of_loop(loop: Loop, inputs) -> Recordings:
    """Return the recordings of a loop, one run for each input."""
    journal = open_journal("memory:")
    items = []
    for number, value in enumerate(inputs):
        await run(loop, value, journal=journal, run_id=f"r{number}")
        info = await journal.find(f"r{number}")
        items += recordings_of(info, await journal.entries(info.run_id), loop)
    return Recordings(loop.name, items)


async def test_a_policy_that_satisfies_fewer_runs_is_never_suggested() -> None:
    """Quality ignores the answers to sentences, so what satisfies the recorded loop counts beside it."""

    @step(fingerprint="late")
    def late(output: int) -> bool:
        return output >= 4

    asks = Judged("It is late.", judge=late)
    loop = Loop(lambda v, ctx: ctx.iteration, lambda v: 0.9, name="late", until=(ScoreAtLeast(0.8) & asks) | MaxIterations(5))  # fmt: skip
    policies = [
        StoppingPolicy(ScoreAtLeast(0.8) | MaxIterations(5)),
        StoppingPolicy(ScoreAtLeast(0.9) & asks | MaxIterations(4)),
    ]
    report = replay(await of_loop(loop, range(12)), policies)
    assert [one.satisfied for one in report.policies] == [(1.0, 1.0), (0.0, 1.0), (1.0, 1.0)]
    assert report.policies[1].difference == (0.0, 0.0, 0.0)
    assert (report.suggested, report.suggestions) == ("", [])
    assert report.to_json()["policies"][1]["satisfied"] == 0.0


@given(
    st.lists(st.floats(0.0, 1.0), min_size=2, max_size=12),
    st.sampled_from([1, 2]),
)
def test_intervals_stay_in_the_range_of_scores(scores: list[float], loops: int) -> None:
    """A quality is from 0 to 1, and so is its interval, also where one run has several executions."""
    loop = Loop(lambda v: v, lambda v: v, name="same", until=MaxIterations(1))
    items = [
        Recording(f"r{n // loops}", "same", loop, [History([Iteration(1, v, v, Evaluation(v))])],
                  Stop(Reason.MAX_ITERATIONS), stopped_at=1)
        for n, v in enumerate(scores)
    ]  # fmt: skip
    value, low, high = Backtest(Recordings("same", items)).recorded.quality
    assert 0 <= low <= value + 1e-9
    assert value - 1e-9 <= high <= 1


async def test_failed_runs_are_counted_apart() -> None:
    """An error of a step is no decision of a condition, but it is a part of every mean."""

    def draft(value: int) -> int:
        if value == 2:
            raise ValueError("no draft")
        return value

    loop = Loop(draft, lambda v: 0.9, name="draft", until=ScoreAtLeast(0.8) | MaxIterations(2))
    found = await of_loop(loop, range(3))
    assert (found.reproduced, len(found.items)) == ("2 of 2, 1 failed run", 3)
    assert replay(found).to_json()["reproduced"] == {"ok": 2, "of": 2, "failed": 1, "left_out": []}


async def test_recorded_policy_has_no_difference_to_itself() -> None:
    data = await recorded(30, ScoreAtLeast(0.8) | LIMIT)
    backtest = Backtest(data)
    again = backtest.evaluate(StoppingPolicy(ScoreAtLeast(0.8) | LIMIT))
    assert again.difference == (0.0, 0.0, 0.0)
    assert (again.calls, again.quality) == (backtest.recorded.calls, backtest.recorded.quality)


async def test_censored_pairs_have_bounds_and_never_an_estimate() -> None:
    data = await recorded(40, ScoreAtLeast(0.7) | LIMIT)
    result = Backtest(data).evaluate(StoppingPolicy(ScoreAtLeast(0.95) | LIMIT))
    assert result.censored > 2
    assert not result.judged
    assert (result.quality, result.difference, result.calls) == (None, None, None)
    assert result.needed == 200 - sum(len(item) == 8 for item in data.items)
    assert result.bounds is not None
    for pair, item in zip(result.pairs, data.items, strict=True):
        if pair.iterations is None:
            assert pair.quality is None
            assert (pair.low, pair.high) == (item.prefixes[-1].best.score, 1.0)
    assert "cannot" not in str(result.to_json())


async def test_lower_limit_is_suggested_and_a_higher_one_is_unknown() -> None:
    data = await recorded(60, MaxIterations(12), audit=True)
    report = replay(data, use_grid=True)
    assert data.quality == "audit score"
    [suggestion] = report.suggestions
    assert suggestion.key == "max_iterations"
    assert suggestion.old == 12
    assert suggestion.new < 12
    assert (
        report.unknown
        == "raising max_iterations: unknown. Set explore: 0.1 on the loop, and record more runs"
    )
    assert report.suggested
    recorded_result, *others = report.policies
    chosen = next(r for r in others if r.policy.title == report.suggested)
    assert chosen.calls < recorded_result.calls
    assert chosen.difference.low >= -0.005


async def test_price_selects_the_policy_and_is_in_the_report() -> None:
    """The price counts among compared policies, and a lower limit is suggested at any price."""
    data = await recorded(60, MaxIterations(12), audit=True)
    free, priced = (replay(data, use_grid=True, price=price) for price in (0.0, 0.0001))
    assert priced.to_json()["price"] == 0.0001
    assert priced.suggestions == free.suggestions

    def value(report, title):
        result = next(r for r in report.policies if r.policy.title == title)
        return result.quality.value - 0.0001 * result.calls

    assert priced.suggested != free.suggested
    assert value(priced, priced.suggested) > value(priced, free.suggested)


async def test_report_has_a_stable_shape_and_a_plot() -> None:
    report = replay(
        await recorded(20, LIMIT), [StoppingPolicy(ScoreAtLeast(0.8) | MaxIterations(4))]
    )
    data = report.to_json()
    assert list(data) == [
        "runs", "loop", "reproduced", "quality", "full_length", "price", "policies", "suggested",
        "suggestions", "unknown",
    ]  # fmt: skip
    assert data["reproduced"] == {"ok": 20, "of": 20, "failed": 0, "left_out": []}
    assert list(data["policies"][1]) == [
        "policy", "exact", "censored", "iterations", "calls", "usd", "quality", "difference", "bounds", "judged", "satisfied",
        "needed", "sample",
    ]  # fmt: skip
    assert list(data["policies"][1]["quality"]) == ["mean", "low", "high"]
    assert (
        report.pairs_csv().splitlines()[0] == "run,policy,state,iterations,calls,quality,low,high"
    )
    assert len(report.pairs_csv().splitlines()) == 41
    plot = ET.fromstring(report.frontier_svg())
    assert len(plot.findall(".//{http://www.w3.org/2000/svg}circle")) == 2


async def test_intervals_are_within_the_plot() -> None:
    """A point whose interval ends at an extreme of all values is complete."""
    report = replay(await recorded(20, LIMIT), [StoppingPolicy(MaxIterations(n)) for n in (1, 4)])
    plot = ET.fromstring(report.frontier_svg())
    space = "{http://www.w3.org/2000/svg}"
    height = float(plot.attrib["viewBox"].split()[3])
    rows = [float(text.attrib["y"]) for text in plot.findall(f"{space}text[@dy]")]
    intervals = [path.attrib["d"] for path in plot.findall(f"{space}g/{space}path")]
    assert len(intervals) == 3
    for interval in intervals:
        low, high = (float(value) for value in interval.split(" ")[1].split("V"))
        assert 0 < min(rows) <= high < low <= max(rows) < height


async def test_iterations_are_the_cost_of_a_loop_without_calls() -> None:
    """A policy with fewer iterations and the same quality is suggested there too."""
    loop = Loop(lambda v: v, lambda v: 0.8, until=MaxIterations(6), name="flat")
    report = replay(
        await of_loop(loop, range(20)), [StoppingPolicy(MaxIterations(n)) for n in (4, 2)]
    )
    assert report.policies[0].calls == 0
    assert report.suggested == "limit 2"


async def test_cancelled_and_unfinished_runs_are_left_out() -> None:
    journal = open_journal("memory:")
    loop = writer(1, LIMIT)
    await run(loop, "topic", journal=journal, run_id="a")
    entries = await journal.entries("a")
    info = await journal.find("a")
    end = next(i for i, entry in enumerate(entries) if entry.kind == "ended")
    [left_out] = recordings_of(info, entries[:end], loop)
    assert isinstance(left_out, LeftOut)
    assert "has not ended" in left_out.why
    [changed] = recordings_of(info, entries, writer(1, MaxIterations(3)))
    assert isinstance(changed, LeftOut)
    with pytest.raises(ConfigurationError, match="nothing can be replayed"):
        Backtest(Recordings("write", [], [left_out]))


async def test_inner_loops_have_a_recording_for_each_execution() -> None:
    journal = open_journal("memory:")
    inner = Loop(lambda v: v + 1, lambda v: v / 10, until=MaxIterations(2), name="inner")
    outer = Loop(inner, lambda v: v / 10, until=MaxIterations(3), name="outer")
    flow = Workflow("flow", {"outer": outer})
    await run(flow, 1, journal=journal, run_id="a")
    info, entries = await journal.find("a"), await journal.entries("a")
    assert loop_named(flow).name == "outer"
    assert len(list(recordings_of(info, entries, loop_named(flow, "inner")))) == 3
    with pytest.raises(ConfigurationError, match="did you mean 'inner'"):
        loop_named(flow, "iner")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"until": "passed", "kep": "best"}, "unknown key 'kep'"),
        ({"until": "passed", "on_stall": "fresh"}, "on_stall is not replayable"),
        ({"until": [{"score_at_lest": 0.9}]}, "unknown condition 'score_at_lest'"),
        ({"until": "passed", "keep": "worst"}, "keep: 'worst'"),
        ({"until": "passed", "name": [1]}, "name: [1] is not text"),
        ({"score_at_least": float("nan")}, "score_at_least"),
        ([], "there is no condition"),
        (5, "5 is not a condition"),
        ([{"timeout": "soon"}], "p.yaml:3:1: timeout: 'soon' is not a duration; write seconds"),
        ([{"a": 1, "b": None}], "{a: 1, b: null} is not a condition"),
        ({"until": "passed", "keep": True}, "keep: 'true' is not a rule"),
        ({"max_iterations": True}, "limit: true is not an integer"),
    ],
)
def test_wrong_policies_are_one_sentence_with_their_place(data, expected) -> None:
    with pytest.raises(ConfigurationError) as caught:
        policy_from_json(data, "p.yaml:3:1")
    assert str(caught.value).startswith("p.yaml:3:1: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "title"),
    [
        ([{"timeout": "5m"}, "passed"], "timeout 5m 00s | passed"),
        (
            {"score_at_least": {"threshold": 0.9, "min_iterations": 2}},
            "score ≥ 0.9 from iteration 2",
        ),
        ({"no_progress": 3}, "no_progress 3"),
        ({"budget": {"usd": 1.5, "calls": 3}}, "budget calls 3, usd 1.5"),
        (
            {"all_of": [{"score_at_least": 0.5}, {"any_of": ["passed", {"max_iterations": 3}]}]},
            "score ≥ 0.5 & (passed | limit 3)",
        ),
    ],
)
def test_titles_of_policies_have_the_form_of_documents(data, title) -> None:
    """A table of the command line or the page has no call of Python in it."""
    assert policy_from_json(data).title == title


async def test_selectors_refuse_mixed_documents_and_fingerprints() -> None:
    journal = open_journal("memory:")
    one = Loop(lambda v: v, until=MaxIterations(1), name="one")
    two = Loop(lambda v: v, until=MaxIterations(2), name="one")
    other = Loop(lambda v: v, until=MaxIterations(1), name="other")
    for name, loop in (("a", one), ("b", two), ("c", other)):
        await run(loop, 1, journal=journal, run_id=name)
    now = (await journal.find("a")).created
    assert [i.run_id for i in await selected(journal, ["name:other", "since:1d"], now=now)] == ["c"]
    assert len(await selected(journal, ["a", "b"], now=now, mix=True)) == 2
    for selectors, expected in (
        (["a", "c"], "2 documents"), (["a", "b"], r"2 fingerprints: fp:\w{8} \(1 run\), fp:\w{8} \(1 run\)\. Select one, or mix them$"), (["nme:x"], "did you mean 'name'"),
        (["since:soon"], "not an age"), (["name:none"], "no run is selected$"),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=expected):
            await selected(journal, selectors, now=now)


async def test_explored_runs_judge_a_later_stop() -> None:
    """A policy that most runs cannot show is judged by the explored runs, a random sample."""
    until = ScoreAtLeast(0.75) | MaxIterations(8)
    recordings = await recorded(120, until, explore=0.2)
    explored = [item for item in recordings.items if item.explored]
    assert recordings.reproduced == "120 of 120"
    assert all(len(item) == 8 for item in explored)
    assert any(item.stopped_at < 8 for item in explored)
    later = Backtest(recordings).evaluate(StoppingPolicy(MaxIterations(8)))
    assert (later.judged, later.sample) == (True, len(explored))
    assert later.iterations == 8
    without = await recorded(120, until)
    unjudged = Backtest(without).evaluate(StoppingPolicy(MaxIterations(8)))
    assert (unjudged.judged, unjudged.sample) == (False, 0)


async def test_the_recorded_policy_is_that_of_the_normal_end() -> None:
    """Exploration changes neither the recorded quality nor the recorded cost."""
    until = ScoreAtLeast(0.75) | MaxIterations(8)
    explored = Backtest(await recorded(60, until, explore=0.3)).recorded
    normal = Backtest(await recorded(60, until)).recorded
    assert explored.quality == normal.quality
    assert (explored.calls, explored.iterations) == (normal.calls, normal.iterations)


def test_durations_are_read_as_in_documents() -> None:
    """A wrong one is refused with its position."""
    assert policy_from_json([{"timeout": "5m"}]) == policy_from_json([{"timeout": 300}])
    assert policy_from_json({"until": [{"timeout": {"seconds": "90s"}}]}).until.seconds == 90
    with pytest.raises(ConfigurationError, match="--until: .*'5x' is not a duration"):
        policy_from_json([{"timeout": "5x"}], "--until")
    with pytest.raises(ConfigurationError, match="no imported module has the condition"):
        policy_from_json([{"python": "none:Condition"}])
