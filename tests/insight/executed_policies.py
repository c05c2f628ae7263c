"""Programs of loops that are recorded, and executed again with other policies.

Seeded programs of loops are recorded with a random tree of conditions, and executed again with others: with
retried calls, failed iterations, verdicts that are unreadable or impossible, loops inside loops, and lists. The replies of
the model depend on the item and the iteration alone, so both runs see the same drafts.

`PYTHONPATH=tests python -m insight.executed_policies 60` compares 60 seeds of each program.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from insight.test_replay import random_condition
from loopwright import (
    Loop,
    MaxIterations,
    MemoryJournal,
    Undecided,
    Workflow,
    for_each,
    judge,
    prompt,
    run,
)
from loopwright.insight import (
    Backtest,
    Recording,
    Recordings,
    StoppingPolicy,
    loop_named,
    recordings_of,
)
from loopwright.journal.replay import RecordedRun
from loopwright.models import Models, ScriptedModel
from loopwright.testing import run_virtual

LIMIT = 6
ITEMS = ("a", "b", "c")
MODEL = "openai:any"


def replies(seed: int) -> list[dict[str, Any]]:
    """Return what the model says of each draft: calls fail, once or for good, and verdicts are unreadable."""
    chance, rules = random.Random(seed), []
    for item in ITEMS:
        for number in range(1, LIMIT + 1):
            text = f"text {item}{number}"
            fate = chance.random()
            drafts: list[Any] = [text]
            if fate < 0.2:
                drafts = [{"error": "transient"}, text]
            elif fate < 0.35:
                drafts = [{"error": "permanent"}]
            word = chance.choices(["no", "yes", "impossible"], weights=[60, 25, 15])[0]
            score = 0 if word == "impossible" else chance.randint(40, 98)
            verdict = {"verdict": word, "score": score, "reason": "r"}
            verdicts = ["hm"] if chance.random() < 0.2 else [{"json": verdict}]
            rules.append({"prompt": f"draft {number} of {item}$", "replies": drafts})
            rules.append({"prompt": text, "replies": verdicts})
    return rules


def refining(until: Any, chance: random.Random) -> Loop:
    """Return a loop that asks for a draft and for its verdict."""
    return Loop(
        prompt("draft {{ loop.iteration }} of {{ loop.initial }}"),
        judge("It is good.", impossible=True),
        until=until,
        name="write",
        on_failure="continue",
        max_failures=chance.choice([1, 2, 6]),
        min_iterations=chance.choice([1, 1, 2]),
        keep=chance.choice(["best", "last"]),
        undecided=Undecided(chance.choice([1, 2, 3]), chance.choice(["fail", "reject"])),
    )


def alone(loop: Loop) -> Any:
    return loop


def second_of_a_workflow(loop: Loop) -> Any:
    return Workflow("flow", {"first": lambda _: "a", "write": loop})


def inside_a_loop(loop: Loop) -> Any:
    def next_item(last: Any) -> str:
        return ITEMS[last.number]

    # The outer loop reads no output of the inner one, so its iterations do not depend on the policy.
    return Loop(
        loop, lambda _: 0.5, adapt=next_item, until=MaxIterations(3), name="outer", on_failure="continue"
    )  # fmt: skip


def for_a_list(loop: Loop) -> Any:
    return for_each(loop, items=lambda _: list(ITEMS), name="all", at_once=2, on_failure="continue")


PROGRAMS = [alone, second_of_a_workflow, inside_a_loop, for_a_list]


def executed(
    program: Callable[[Loop], Any], loop: Loop, seed: int
) -> tuple[Recordings, dict[str, Any]]:
    """Execute a program in virtual time; return the recordings of its loop, and the outputs by path."""

    async def record() -> tuple[Recordings, dict[str, Any]]:
        journal = MemoryJournal()
        resources = {"models": Models(ScriptedModel(replies(seed))), "model": MODEL}
        step = program(loop)
        await run(step, "a", journal=journal, run_id="r", resources=resources)
        info, entries = await journal.find("r"), await journal.entries("r")
        rows = list(recordings_of(info, entries, loop_named(step, "write")))
        kept = [row for row in rows if isinstance(row, Recording)]
        left_out = [row for row in rows if not isinstance(row, Recording)]
        ends = {path: end["output"] for path, end in RecordedRun(entries).ended.items()}
        return Recordings("write", kept, left_out), ends

    return run_virtual(record())


def scores(seed: int) -> dict[str, float]:
    """Return the score of each text whose verdict can be read."""
    return {
        rule["prompt"]: rule["replies"][0]["json"]["score"] / 100
        for rule in replies(seed)
        if isinstance(rule["replies"][0], dict) and "json" in rule["replies"][0]
    }


def comparisons(program: Callable[[Loop], Any], seed: int, policies: int = 3) -> Iterator[bool]:
    """Compare each pair with the executed policy; iterate over whether it was exact.

    An exact pair has the iterations, the calls and the quality of the returned output. The executed policy
    of a censored pair continues after the record, and its quality is within the bounds.
    """
    chance = random.Random(seed)
    loop = refining(random_condition(chance, budgets=False) | MaxIterations(LIMIT), chance)
    data, _ = executed(program, loop, seed)
    assert not data.left_out, data.left_out
    backtest, known = Backtest(data), scores(seed)
    for _ in range(policies):
        until = random_condition(chance, budgets=False) | MaxIterations(chance.randint(1, LIMIT))
        policy = StoppingPolicy(until, keep=chance.choice(["", "best", "last"]))
        really, outputs = executed(program, policy.applied(loop), seed)
        assert not really.left_out, really.left_out
        by_path = {item.path: item for item in really.items}
        for pair in backtest.evaluate(policy).pairs:
            recording = data.items[pair.recording]
            run_of_policy = by_path[recording.path]
            quality = known.get(outputs[recording.path], 0.0)
            where = f"{program.__name__}, seed {seed}, {recording.path}: {policy.title}"
            calls = run_of_policy.prefixes[-1].usage.calls
            if pair.iterations is None:
                assert pair.quality is None, where
                assert len(run_of_policy) > len(recording), where
                assert calls >= pair.calls, where
                assert pair.low <= quality <= pair.high, where
            else:
                expected = len(run_of_policy), calls, quality
                assert (pair.iterations, pair.calls, pair.quality) == expected, where
            yield pair.iterations is not None


def main() -> None:
    """Compare many seeds, and print the number of exact and censored pairs."""
    seeds = int(sys.argv[1])
    for program in PROGRAMS:
        exact = [one for seed in range(seeds) for one in comparisons(program, seed)]
        print(
            f"{program.__name__:24} {sum(exact):5} exact and {len(exact) - sum(exact):5} censored pairs "
            "agree with the executed policy"
        )


if __name__ == "__main__":
    main()
