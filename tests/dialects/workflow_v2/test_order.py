"""The order of steps and loops: document order, moved later by what is needed, and never by chance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.dialects.workflow_v2.steps import (
    DependencyCycle,
    TranslatedStep,
    in_order,
    written_order,
)
from loopwright.documents.yaml.reader import read


def elements(needs: list[list[int]]) -> list[TranslatedStep]:
    """Return elements named by their number, each needing others by number."""
    return [
        TranslatedStep(str(i), ("steps", i), needs=dict.fromkeys(map(str, of)))
        for i, of in enumerate(needs)
    ]


graphs = st.integers(1, 8).flatmap(
    lambda n: st.lists(
        st.lists(st.integers(0, n - 1), max_size=3, unique=True), min_size=n, max_size=n
    )
)


@given(graphs)
def test_everything_needed_comes_first(needs: list[list[int]]) -> None:
    """Either all run once, after what they need, or a circle is named that is one."""
    given_ = elements(needs)
    try:
        order = [int(e.name) for e in in_order(given_)]
    except DependencyCycle as circle:
        names = [int(name) for name in circle.names]
        assert names[0] == names[-1]
        assert all(after in needs[before] for before, after in zip(names, names[1:], strict=False))
        return
    assert sorted(order) == list(range(len(needs)))
    place = {name: i for i, name in enumerate(order)}
    assert all(place[n] < place[i] for i, of in enumerate(needs) for n in of)


@given(graphs)
def test_document_order_is_kept_where_it_can_be(needs: list[list[int]]) -> None:
    """What comes before an earlier one in the document is needed, by it or by one that waits."""
    try:
        order = [int(e.name) for e in in_order(elements(needs))]
    except DependencyCycle:
        return
    done: set[int] = set()
    for chosen in order:
        ready = [i for i, of in enumerate(needs) if i not in done and set(of) <= done]
        assert chosen == min(ready)
        done.add(chosen)


def test_nothing_needed_is_document_order() -> None:
    """Without needs the order is that of the document."""
    assert [e.name for e in in_order(elements([[], [], []]))] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("steps: [a, b]\nloops: [c]", [("steps", 0), ("steps", 1), ("loops", 0)]),
        ("loops: [c]\nsteps: [a]", [("loops", 0), ("steps", 0)]),
        (
            "steps: [a]\nloops: [b]\nsteps: [c]\nloops: [d]",
            [("steps", 0), ("loops", 0), ("steps", 1), ("loops", 1)],
        ),
        ("steps: []\nloops: [b]", [("loops", 0)]),
        ("name: x", []),
    ],
)
def test_blocks_are_read_as_written(text: str, order: list[tuple[str, int]]) -> None:
    """A1: the blocks of repeated keys are stages, in the order in which they stand."""
    source = read(text, "x.yaml", repeatable=frozenset({"steps", "loops"}))
    assert list(written_order(source)) == order
