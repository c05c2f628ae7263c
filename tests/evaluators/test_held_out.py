"""Both corpora of replies hold the bounds of the design: 95 % right, no wrong value, no forged verdict."""

from __future__ import annotations

import pytest

from evaluators.reply_corpora import CORPORA, Read, held_out, main


@pytest.fixture(scope="module")
def rows() -> list[Read]:
    """Both corpora, read once."""
    return [row for corpus in CORPORA.values() for row in corpus()]


def test_the_corpora_are_large_and_half_of_them_is_held_out(rows: list[Read]) -> None:
    """At least 300 replies of which half were written before their author read the reader."""
    held = list(held_out())
    assert len(rows) >= 300
    assert len(held) >= max(160, len(rows) / 2)
    assert len({(r.kind, r.group, r.reply) for r in held}) == len(held)


def test_no_reply_gives_a_wrong_value_or_a_forged_verdict(rows: list[Read]) -> None:
    """A reply is read as expected or asked for again."""
    assert [r for r in rows if r.wrong or r.forged] == []


@pytest.mark.parametrize("name", CORPORA)
def test_at_least_95_percent_are_read(name: str) -> None:
    """Each corpus on its own holds the share."""
    own = list(CORPORA[name]())
    assert sum(r.right for r in own) >= 0.95 * len(own)


def test_the_program_prints_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """It returns 0 where all bounds hold."""
    assert main() == 0
    assert capsys.readouterr().out.count("0 wrong values, 0 forged verdicts") == 2
