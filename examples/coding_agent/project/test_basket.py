"""What basket.py should do."""

from basket import reduced, shown, subtotal


def test_quantities_count():
    assert subtotal([("tea", 300, 2), ("cup", 450, 1)]) == 1050


def test_an_empty_basket_costs_nothing():
    assert subtotal([]) == 0


def test_the_code_takes_off_a_tenth():
    assert reduced(1050, "TEN") == 945


def test_what_is_taken_off_is_rounded_down():
    assert reduced(1055, "TEN") == 950


def test_other_codes_do_nothing():
    assert reduced(1050, "ELEVEN") == 1050


def test_cents_have_two_digits():
    assert shown(1205) == "12.05"
