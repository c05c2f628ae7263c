"""What a basket costs."""


def subtotal(items):
    """Return the sum of price times quantity, in cents; an item is (name, price, quantity)."""
    return sum(price * quantity for _, price, quantity in items)


def reduced(total, code):
    """Return a total in cents after a code: TEN takes off 10 %, rounded down; others do nothing."""
    if code == "TEN":
        return total - total // 10
    return total


def shown(cents):
    """Return cents as text: 1234 is 12.34."""
    return f"{cents // 100}.{cents % 100:02}"
