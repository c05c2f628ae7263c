"""Tests that the agent cannot read: other values of the same rules."""

from basket import reduced, shown, subtotal


def test_three_items():
    assert subtotal([("tea", 300, 2), ("cup", 450, 1), ("pot", 1999, 3)]) == 7047


def test_less_than_ten_cents_are_not_reduced():
    assert reduced(9, "TEN") == 9


def test_euros_without_cents():
    assert shown(700) == "7.00"
