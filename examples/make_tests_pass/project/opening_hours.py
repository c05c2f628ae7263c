"""Opening hours of one day as spans of minutes since midnight; six mistakes are on purpose."""

from __future__ import annotations

Span = tuple[int, int]


def minutes(clock: str) -> int:
    """Return the minutes since midnight of `9`, `9:30` or `24`."""
    hours, _, rest = clock.partition(":")
    return int(hours) * 60 + int(rest or 0)


def parse(text: str) -> list[Span]:
    """Return the spans of a text such as `9-12:30, 14-18`, as written."""
    spans = []
    for part in text.split(","):
        start, _, end = part.partition("-")
        spans.append((minutes(start), minutes(end)))
    return spans


def joined(spans: list[Span]) -> list[Span]:
    """Return the spans in order of time; those that overlap or touch are one."""
    found: list[Span] = []
    for start, end in spans:
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def total(spans: list[Span]) -> int:
    """Return how many minutes are open; a minute in two spans counts once."""
    return sum(end - start for start, end in spans)


def is_open(spans: list[Span], minute: int) -> bool:
    """Return whether a minute lies in a span; its first minute does, its end does not."""
    return any(start <= minute <= end for start, end in spans)


def shown(spans: list[Span]) -> str:
    """Return spans as text, such as `9:00-12:30, 14:00-18:00`."""
    return ", ".join(f"{clock(start)}-{clock(end)}" for start, end in spans)


def clock(minute: int) -> str:
    """Return a minute of the day as `9:05`."""
    return f"{minute // 60}:{minute % 60}"
