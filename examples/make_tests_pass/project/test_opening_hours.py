"""What opening_hours.py should do."""

import pytest
from opening_hours import clock, is_open, joined, minutes, parse, shown, total

DAY = [(540, 750), (840, 1080)]


@pytest.mark.parametrize(("text", "expected"), [("9", 540), ("9:30", 570), ("24", 1440)])
def test_minutes(text, expected):
    assert minutes(text) == expected


def test_parse():
    assert parse("9-12:30, 14-18") == DAY


def test_overlapping_spans_are_one():
    assert joined([(540, 700), (600, 750)]) == [(540, 750)]


def test_touching_spans_are_one():
    assert joined([(540, 600), (600, 750)]) == [(540, 750)]


def test_a_span_inside_another_changes_nothing():
    assert joined([(540, 750), (600, 660)]) == [(540, 750)]


def test_spans_come_in_order():
    assert joined([(840, 1080), (540, 750)]) == DAY


def test_spans_in_any_order_are_joined():
    assert joined([(700, 750), (540, 600), (600, 700)]) == [(540, 750)]


def test_total():
    assert total(DAY) == 450


def test_total_counts_a_minute_once():
    assert total([(540, 750), (600, 660)]) == 210


def test_open_in_the_middle():
    assert is_open(DAY, 600)


def test_open_in_the_first_minute():
    assert is_open(DAY, 540)


def test_closed_at_the_end():
    assert not is_open(DAY, 750)


def test_closed_in_between():
    assert not is_open(DAY, 800)


def test_a_clock_has_two_digits_of_minutes():
    assert clock(545) == "9:05"


def test_shown():
    assert shown(DAY) == "9:00-12:30, 14:00-18:00"


def test_shown_joined():
    assert shown(joined([(840, 1080), (540, 600), (600, 750)])) == "9:00-12:30, 14:00-18:00"
