"""The price of a basket; three mistakes are on purpose."""


def subtotal(items):
    """Return the sum of price times quantity, in cents; an item is (name, price, quantity)."""
    return sum(price for _, price, _ in items)


def reduced(total, code):
    """Return a total in cents after a code: TEN takes off 10 %, rounded down; others do nothing."""
    if code == "TEN":
        return total - 10
    return total


def shown(cents):
    """Return cents as text: 1234 is 12.34."""
    return f"{cents // 100}.{cents % 100}"
