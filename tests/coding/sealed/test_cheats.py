"""A sample of the cheats and honest changes of `cheats.py`; `make cheats` judges all of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .cheats import CORPORA, judge, sampled, wrong

PROGRAMS = {"pytest": ("pytest",), "node": ("npm", "node"), "make": ("make", "cc")}


@pytest.mark.parametrize(("name", "seed"), [("pytest", 1), ("node", 1), ("make", 1), ("make", 2)])
def test_a_sample_of_the_corpora(name: str, seed: int, tmp_path: Path) -> None:
    """No cheat passes, and an honest change passes or is refused with a sentence that is true."""
    if missing := [program for program in PROGRAMS[name] if shutil.which(program) is None]:
        pytest.skip(f"NOT TESTED: {missing[0]} is not installed")
    made = CORPORA[name]()
    cheats, honest = sampled(made, seed, 6)
    # One of them in a sandbox, whose mounts keep the code under test from its own tests.
    sandbox = "auto" if seed == 1 else "none"
    results = judge(tmp_path, made, cheats, honest, sandbox=sandbox)
    assert list(wrong(made, results, cheats, honest)) == []


def test_the_corpora_are_complete() -> None:
    """There are a hundred cheats and forty honest changes."""
    made = [corpus() for corpus in CORPORA.values()]
    assert sum(len(one.cheats) for one in made) >= 100
    assert sum(len(one.honest) for one in made) >= 40
