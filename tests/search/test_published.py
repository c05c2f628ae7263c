"""Samples of `benchmarks/published`, which `make bench-search` runs at full size."""

from __future__ import annotations

import asyncio
import importlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that imports a program of the published benches."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(ROOT))
    yield lambda name: importlib.import_module(f"benchmarks.published.{name}")
    # Other tests do not see the names that a bench adds to the path of modules.
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("benchmarks", "packing"):
            del sys.modules[name]


def test_a_run_without_effects_claims_nothing_and_a_large_effect_is_kept(bench: Any) -> None:
    """Of the no-op contest: with confirm the loop claims only what is there; a loop without a test claims noise."""
    contest = bench("noop_contest")
    contest.PROPOSALS = 20
    nothing = asyncio.run(contest.ours(0.0, 2, 0))
    assert (nothing.runs, nothing.claims, nothing.offered) == (2, 0, 0)
    some = asyncio.run(contest.ours(3.0, 1, 0))
    assert some.kept / some.offered >= 0.9
    assert contest.by_rule(contest.better_than_the_best, 0.0, 20).claims >= 10
    assert len(contest.peers()) == len(contest.PEERS.read_text().splitlines())


def test_a_search_on_a_test_function_is_a_function_of_its_seed(bench: Any) -> None:
    """Of the ten functions: equal seeds give equal results, through a hand-over, and a longer search is never worse."""
    evalset = bench("evalset")
    evalset.PATIENCE = 2
    found = [evalset.search("tripod", seed, 6) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert 0 <= evalset.search("tripod", 1, 9) <= found[0]


def test_a_verdict_over_seeds_needs_agreement(bench: Any) -> None:
    """The signed ranks of ten equal signs have p = 2 / 1024; with ten functions Holm still calls that better."""
    evalset = bench("evalset")
    assert evalset.p_value([-float(n) for n in range(1, 11)]) == pytest.approx(2 / 1024)
    ours, theirs = {n: 0.1 * n for n in range(10)}, {n: 0.1 * n + 1 + n for n in range(10)}
    names = [f"f{n}" for n in range(10)]
    said = evalset.verdicts(
        {name: ours if name == "f0" else theirs for name in names}, dict.fromkeys(names, theirs)
    )
    assert said["f0"].startswith("better")
    assert all(said[name].startswith("equal") for name in names[1:])


def test_a_packing_with_an_overlap_of_one_unit_in_the_last_place_has_no_value(bench: Any) -> None:
    """The verifier of the circles computes exactly."""
    pytest.importorskip("scipy")
    circles = bench("circle_packing")
    grid = [[0.125 + 0.125 * (n % 7), 0.125 + 0.125 * (n // 7), 0.0625] for n in range(26)]
    assert circles.verify(grid).metrics == {"sum_of_radii": 26 * 0.0625}
    grid[3][2] = math.nextafter(0.0625, 1)
    assert circles.verify(grid).passed is False


def test_a_rule_is_not_better_than_itself_on_short_lists(bench: Any) -> None:
    """Of bin packing: the paired interval of Best Fit against itself is 0, so it is refused as better."""
    packing = bench("bin_packing")
    kind = next(iter(packing.KINDS))
    first, second = (packing.on_short(packing.BEST_FIT, kind) for _ in range(2))
    assert first.compared(second).baseline["low"] == 0
    assert 5 < first.metrics["excess"] < 12


def test_rows_of_other_engines_name_their_versions() -> None:
    """Each kept row says which version it is of."""
    peers = ROOT / "benchmarks" / "published" / "peers"
    for row in map(json.loads, (peers / "noop.jsonl").read_text().splitlines()):
        assert row["engine"].split()[1][0].isdigit()
        assert row["date"] > "2026"
    for row in map(json.loads, (peers / "evalset.jsonl").read_text().splitlines()):
        assert row["versions"]
