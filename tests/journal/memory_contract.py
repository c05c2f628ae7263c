"""What every memory must do: one suite, run for each kind of store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright.memory import Memory, MemoryEntry, Space, entry


class Store(Protocol):
    """A memory under test, and what the next process sees of it."""

    memory: Memory

    async def reopen(self) -> Memory:
        """Let go of it; return the memory as the next process sees it."""

    async def close(self) -> None:
        """Let go of it for good."""


def note(value: Any, key: str = "", *, space: str = "s", run: str = "") -> MemoryEntry:
    """A note."""
    return entry(space, "note", value, at=1.5, key=key, run=run)


async def values(memory: Memory, space: str = "s", **options: Any) -> list[Any]:
    """The values of a space."""
    return [item.value for item in await memory.entries(space, **options)]


class MemoryContract:
    """The suite; a subclass says which store with `opened`."""

    @pytest.fixture
    def opened(self) -> Callable[[Callable[[Store], Coroutine[Any, Any, Any]]], Any]:
        raise NotImplementedError

    def test_entries_come_back_in_order(self, opened: Any) -> None:
        """What was appended comes back as it was, in the order and with the numbers it was given."""

        async def play(store: Store) -> None:
            made = [note({"text": "é\n", "n": i}, f"k{i}", run="r1") for i in range(5)]
            numbers = [*await store.memory.append(*made[:3]), *await store.memory.append(*made[3:])]
            for memory in (store.memory, await store.reopen()):
                found = await memory.entries("s")
                assert [item.seq for item in found] == numbers == sorted(numbers)
                assert [(e.value, e.at, e.run, e.key) for e in found] == [
                    (e.value, e.at, e.run, e.key) for e in made
                ]

        opened(play)

    def test_a_key_is_there_once(self, opened: Any) -> None:
        """Appending a key again, at once or in a later process, is one row, whose number is given."""

        async def play(store: Store) -> None:
            first = await store.memory.append(note("a", "k"))
            again = await store.memory.append(note("a", "k"), note("b", "k"))
            later = await (await store.reopen()).append(note("c", "k"))
            assert [*first, *first, *first] == [*again, *later]
            assert await values(store.memory) == ["a"]
            await store.memory.append(note("d", "k", space="other"))
            assert await values(store.memory, "other") == ["d"]

        opened(play)

    def test_entries_without_a_key_are_all_kept(self, opened: Any) -> None:
        """No key is no key: equal entries stay apart."""

        async def play(store: Store) -> None:
            await store.memory.append(note("a"), note("a"))
            assert await values(store.memory) == ["a", "a"]

        opened(play)

    def test_spaces_kinds_and_the_latest(self, opened: Any) -> None:
        """A reader sees one space, the kinds it names, what comes after a number, the latest few."""

        async def play(store: Store) -> None:
            memory = store.memory
            assert await memory.spaces() == {} and await memory.entries("s") == []
            await memory.append(note(1), note(2), note(3), note("x", space="t"))
            (seq,) = await memory.append(entry("s", "cleared", None, at=2.0))
            assert await memory.spaces() == {"s": 4, "t": 1}
            assert await values(memory, kinds=("note",)) == [1, 2, 3]
            assert await values(memory, kinds=("note",), latest=2) == [2, 3]
            assert await values(memory, latest=2) == [3, None]
            assert await values(memory, after=seq - 1) == [None]
            assert await values(memory, "S") == []

        opened(play)

    def test_concurrent_runs_lose_nothing(self, opened: Any) -> None:
        """K runs that append M entries each leave K times M, each run's in its own order (I46)."""

        async def play(store: Store) -> None:
            async def one(run: int) -> None:
                space = Space(store.memory, "s", run=f"r{run}")
                for number in range(20):
                    await space.note([run, number], at=float(number), key=f"{run}/{number}")

            await asyncio.gather(*(one(run) for run in range(10)))
            found = await values(store.memory)
            assert len(found) == 200
            for run in range(10):
                assert [n for r, n in found if r == run] == list(range(20))

        opened(play)

    def test_the_same_key_from_many_at_once(self, opened: Any) -> None:
        """Many that append the same key at a time leave one row, and all are told its number."""

        async def play(store: Store) -> None:
            numbers = await asyncio.gather(
                *(store.memory.append(note(i, "same")) for i in range(30))
            )
            assert len({tuple(n) for n in numbers}) == 1
            assert len(await values(store.memory)) == 1

        opened(play)

    def test_what_is_read_is_a_copy(self, opened: Any) -> None:
        """Changing what was appended or read changes nothing that is kept."""

        async def play(store: Store) -> None:
            given = {"list": [1]}
            await store.memory.append(note(given))
            given["list"].append(2)
            (found,) = await values(store.memory)
            found["list"].append(3)
            assert await values(store.memory) == [{"list": [1]}]

        opened(play)

    def test_any_value_survives(self, opened: Any) -> None:
        """Any JSON value and any text come back as they were appended."""
        atoms = (
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
        )
        json = st.recursive(
            atoms | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
            ),
            max_leaves=8,
        )

        @settings(max_examples=20, deadline=None)
        @given(st.lists(st.tuples(json, st.text(min_size=1, max_size=5)), max_size=5))
        def check(given_: list[tuple[Any, str]]) -> None:
            async def play(store: Store) -> None:
                made = [entry("any", "note", v, at=0.0, run=run) for v, run in given_]
                await store.memory.append(*made)
                found = await (await store.reopen()).entries("any")
                assert [item.value for item in found] == [item.value for item in made]

            opened(play)

        check()
