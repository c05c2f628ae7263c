"""Texts: figures read the same everywhere, and nothing breaks its column or the terminal."""

from __future__ import annotations

import json

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from loopwright import Criterion, Evaluation, Failure, Iteration, Usage
from loopwright.errors import ConfigurationError
from loopwright.journal.protocol import missing_run
from loopwright.ui import formatting as texts
from loopwright.ui.cli.output import error_text
from loopwright.ui.formatting import ASCII, UNICODE, Signs
from loopwright.ui.rows import Row
from loopwright.ui.web.render import sentence_of

SIGNS = st.sampled_from([UNICODE, ASCII])
SCORES = st.floats(0, 1)


@given(st.text(), st.integers(0, 40), SIGNS)
def test_a_fitted_text_is_never_wider_than_its_column(text: str, cells: int, signs: Signs) -> None:
    """`fit` and `fit_end` give at most the cells asked for, and the text itself where it fits."""
    for fitted in (texts.fit(text, cells, signs), texts.fit_end(text, max(3, cells), signs)):
        assert texts.width(fitted) <= max(3, cells)
    if texts.width(text) <= cells:
        assert texts.fit(text, cells, signs) == text


@given(st.text())
def test_a_cleaned_text_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    """No control but tab and newline survives, and cleaning twice changes nothing."""
    cleaned = texts.clean(text)
    assert all(c in "\t\n" or c.isprintable() or ord(c) >= 0xA0 for c in cleaned)
    assert texts.clean(cleaned) == cleaned
    assert "\n" not in texts.one_line(text)


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07after", r"\x1b]0;title\x07after"),
        ("\x1b]52;c;aGk=\x1b\\", "\\x1b]52;c;aGk=\\x1b\\"),
        ("\x9b2J a\x08b\x7f", r"\x9b2J a\x08b\x7f"),
        ("\u202eevil\u2066\u200f", r"\u202eevil\u2066\u200f"),
        ("line\r\nnext", "line\nnext"),
        ("over\rwritten", r"over\rwritten".replace(r"\r", r"\x0d")),
        ("tab\tstays", "tab\tstays"),
    ],
)
def test_sequences_and_controls_are_made_visible(given_text: str, shown: str) -> None:
    """Rule: what a terminal would obey is shown, not obeyed and not taken out."""
    assert texts.clean(given_text) == shown


def test_every_character_that_is_not_seen_is_escaped() -> None:
    """Default ignorables, format characters, tags, selectors, fillers and separators, wherever they stand in a word."""
    unseen = [
        character
        for character in map(chr, range(0x110000))
        if regex.match(r"\p{Default_Ignorable_Code_Point}|[\p{Cf}\p{Zl}\p{Zp}]", character)
    ]
    assert {"\u200b", "\u2060", "\u3164", "\U000e0041", "\ufe0f", "\u202e"} <= set(unseen)
    for character in unseen:
        code = ord(character)
        escaped = (
            f"\\x{code:02x}"
            if code < 0x100
            else f"\\u{code:04x}"
            if code < 0x10000
            else f"\\U{code:08x}"
        )
        assert texts.reveal(f"rm{character}x") == f"rm{escaped}x"
    assert (
        texts.one_line("\u26a0\ufe0f \U0001f469\u200d\U0001f4bb")
        == "\u26a0\ufe0f \U0001f469\u200d\U0001f4bb"
    )


@given(st.text(alphabet=st.sampled_from("a \n\t\r\u2028\u200b\x1b")))
def test_the_lines_of_a_command_are_numbered(text: str) -> None:
    """Several lines have their numbers; no line holds anything that starts another line on a terminal."""
    lines = texts.numbered(text)
    assert len(lines) == text.count("\n") + 1
    assert all(line.replace("\t", "").isprintable() for line in lines)
    if len(lines) > 1:
        assert [line.split("  ")[0] for line in lines] == [str(n + 1) for n in range(len(lines))]


@given(st.text())
def test_json_with_controls_escaped_means_the_same(text: str) -> None:
    """Rule: on a terminal JSON has no raw control either, and is the same JSON."""
    shown = texts.clean_json(json.dumps({"a": text}, ensure_ascii=False))
    assert json.loads(shown) == {"a": text}
    assert texts.clean(shown) == shown


@given(SCORES, st.integers(1, 30), SIGNS)
def test_a_bar_has_its_width_and_is_full_only_at_one(
    value: float, cells: int, signs: Signs
) -> None:
    """A bar has as many cells as asked; only a score of 1 fills all of them."""
    shown = texts.bar(value, cells, signs)
    assert len(shown) == cells
    assert (signs.empty not in shown) == (value == 1)


@given(st.lists(SCORES, min_size=1, max_size=300), st.integers(1, 60), SIGNS)
def test_a_sparkline_fits_and_shows_the_peak(scores: list[float], cells: int, signs: Signs) -> None:
    """It takes at most the cells asked for, and the highest score is one of its levels."""
    line = texts.sparkline(scores, cells, signs)
    assert 1 <= len(line) <= cells
    top = len(signs.levels) - 1
    assert max(signs.levels.index(c) for c in line) == min(top, int(max(scores) * (top + 1)))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, ""), (0.0, "0.00"), (0.85, "0.85"), (0.849, "0.849"), (1.0, "1.00"), (1 / 3, "0.333")],
)
def test_a_score_is_never_rounded_over_a_threshold(value: float | None, shown: str) -> None:
    """Two decimals, or three where two would make 0.849 look like 0.85."""
    assert texts.score(value) == shown


@pytest.mark.parametrize(
    ("usage", "short", "long"),
    [
        (Usage(), "", ""),
        (Usage(2), "2 calls", "2 calls"),
        (Usage(1, 10, 5, 0.0123), "$0.0123", "1 call, 15 tokens, $0.0123"),
        (Usage(3, 0, 0, 12.345), "$12.35", "3 calls, $12.35"),
        (Usage(1, 0, 0, 0.00001), "<$.0001", "1 call, <$.0001"),
        (Usage(2, 9, 0, 0, 1), "unknown", "2 calls, 9 tokens, cost unknown"),
        (
            Usage(2, 9, 0, 0.5, 1),
            "at least $0.5000",
            "2 calls, 9 tokens, at least $0.5000, 1 call without a known price",
        ),
    ],
)
def test_spending_is_told_in_the_unit_that_is_known(usage: Usage, short: str, long: str) -> None:
    """Dollars where there is a price, else calls; a call of unknown price is said."""
    assert (texts.cost(usage), texts.spent(usage)) == (short, long)


def test_scripted_replies_are_no_model_calls() -> None:
    """A run on scripted replies says so where another one says what it cost."""
    assert texts.cost(Usage(2), scripted=True) == "scripted"
    assert texts.spent(Usage(2, 9), scripted=True) == "2 scripted calls, 9 tokens"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 ms"), (0.25, "250 ms"), (1.25, "1.2 s"), (59.96, "1m 00s"), (200, "3m 20s"),
     (7500, "2h 05m")],
)  # fmt: skip
def test_durations_read_as_people_say_them(seconds: float, shown: str) -> None:
    """Milliseconds, seconds, minutes or hours, whichever is closest."""
    assert texts.duration(seconds) == shown


@pytest.mark.parametrize(
    ("item", "word"),
    [
        (Iteration(1), ""),
        (Iteration(1, evaluation=Evaluation(0.5)), ""),
        (Iteration(1, evaluation=Evaluation(passed=True)), "passed"),
        (Iteration(1, evaluation=Evaluation(0.5, False)), "not yet"),
        (Iteration(1, evaluation=Evaluation(undecided=True)), "undecided"),
        (Iteration(1, error=Failure("execute", "error", "x")), "failed"),
        (Iteration(1, error=Failure("execute", "interrupted", "x"), interrupted=True), "cut short"),
        (Iteration(1, evaluation=Evaluation(criteria=(Criterion("a", False),))), ""),
    ],
)
def test_every_verdict_has_its_word(item: Iteration, word: str) -> None:
    """Failed, cut short, undecided and not yet are four different facts."""
    assert Row("loop", item).verdict()[1] == word


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"score": 0.1 + 0.2, "votes": [True, None]}, '{"score": 0.3, "votes": [true, null]}'),
        ([1e-7, 2 / 3, 12345678.0, -0.0041], "[1e-07, 0.666667, 12345678.0, -0.0041]"),
        ("0.30000000000000004", "0.30000000000000004"),
        (None, ""),
    ],
)
def test_numbers_in_lines_have_few_digits(value: object, shown: str) -> None:
    """Numbers are rounded to six digits; texts are unchanged."""
    assert texts.value_line(value) == shown


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [("max_usd", 0.1 + 0.2, "0.3"), ("max_total_tokens", 2_500_000.0, "2500000"), ("timeout", 90.0, "1m 30s")],
)  # fmt: skip
def test_limits_have_few_digits(name: str, value: float, shown: str) -> None:
    """Counts in full, amounts without noise, times as elsewhere."""
    assert texts.limit_text(name, value) == shown


@pytest.mark.parametrize("code", ["list_runs", "mix_versions", "raise_limit", "path"])
def test_each_surface_writes_its_own_advice(code: str) -> None:
    """The message has neither; the command line adds a command or an option, the page its own control."""
    error = ConfigurationError("the problem", advice=code)
    assert str(error) == "the problem"
    on_line, on_page = error_text(error), sentence_of(error)
    assert on_line.startswith("loopwright: the problem")
    assert "--" in on_line or ": loopwright " in on_line
    assert on_page.startswith("the problem")
    assert len(on_page) > len("the problem")
    assert "--" not in on_page + sentence_of(missing_run("r"))
    assert "loopwright" not in on_page + sentence_of(missing_run("r"))
