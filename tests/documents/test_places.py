"""A native document made from another one is asked by its own paths and answers with theirs."""

from __future__ import annotations

import pytest

from loopwright.documents.yaml.reader import read, translated

TEXT = "name: x\nloops:\n  - name: l\n    until: done\n    with: {a: 1.10}\n"


@pytest.mark.parametrize(
    ("native", "line", "path"),
    [
        (("name",), 1, "name"),
        (("steps", 0), 3, "loops[0]"),
        (("steps", 0, "name"), 3, "loops[0].name"),
        (("steps", 0, "loop", "max_iterations"), 3, "loops[0]"),
        (("steps", 0, "loop", "evaluate", "judge", "criterion"), 4, "loops[0].until"),
        (("steps", 0, "loop", "execute", "with", "a"), 5, "loops[0].with.a"),
        (("steps", 7), 1, ""),
        (("other",), 1, ""),
    ],
)
def test_native_paths_lead_to_what_was_written(
    native: tuple[str | int, ...], line: int, path: str
) -> None:
    """By the longest path that is known; below it by the same names, as far as they exist."""
    places = {
        ("steps", 0): ("loops", 0),
        ("steps", 0, "loop"): ("loops", 0),
        ("steps", 0, "loop", "evaluate"): ("loops", 0, "until"),
        ("steps", 0, "loop", "execute", "with"): ("loops", 0, "with"),
    }
    source = translated(read(TEXT, "x.yaml"), places)
    problem = source.problem(native, "is odd")
    assert (problem.line, problem.path, source.position(native)[0]) == (line, path, line)


def test_texts_are_those_that_were_written() -> None:
    """What a scalar's text was is known by its native path too, and its key has a place."""
    source = translated(read(TEXT, "x.yaml"), {("steps", 0): ("loops", 0)})
    assert source.text(("steps", 0, "with", "a")) == "1.10"
    assert source.problem(("steps", 0, "until"), "x", key=True).column == 5
    assert source.problem((), "x", key=True).line == 1
