"""What every journal must do with the replies of model calls that it keeps."""

from __future__ import annotations

import asyncio
from typing import Any

from loopwright.journal import RunInfo
from loopwright.journal.call_cache import LARGEST

from .recording import Store


async def cache_of(journal: Any) -> Any:
    """The cache of a journal, which has a run: a journal in a file is made by its first one."""
    await journal.create([RunInfo("r", "n")])
    return journal.call_cache


class CacheContract:
    """A reply is kept by its key until a later one takes its place or it is deleted."""

    async def test_a_reply_comes_back(self, store: Store) -> None:
        """A value comes back as it was, with its time, in this process and in the next; another key has none."""
        cache = await cache_of(store.journal)
        assert await cache.get("k") is None
        assert await cache.kept(9.0) == (0, 0, 0.0)
        await cache.clear(9.0)
        value = {"text": "é \0 \ud800 \u2028", "n": [1, 2.5, None, True]}
        await cache.put("k", value, 5.25)
        for journal in (store.journal, await store.reopen()):
            cache = await cache_of(journal)
            assert await cache.get("k") == (5.25, value)
            assert await cache.get("K") is None

    async def test_the_later_reply_counts(self, store: Store) -> None:
        """Of two replies of one key, also from writers at the same time, one is there, and it is whole."""
        first, second = await cache_of(store.journal), await cache_of(store.journal)
        await first.put("k", "old", 1.0)
        await second.put("k", "new", 2.0)
        assert await first.get("k") == (2.0, "new")
        await asyncio.gather(
            *(cache.put("both", [n] * n, float(n)) for n, cache in enumerate([first, second] * 8))
        )
        at, value = await first.get("both")
        assert value == [at] * int(at)
        assert (await first.kept(100.0))[0] == 2

    async def test_old_replies_are_deleted(self, store: Store) -> None:
        """Those from before a time are counted and deleted, and no others."""
        cache = await cache_of(store.journal)
        for n in range(4):
            await cache.put(f"k{n}", "x" * n, float(n))
        assert await cache.kept(3.0) == (3, 2 + 3 + 4, 0.0)
        await cache.clear(2.0)
        assert await cache.kept(100.0) == (2, 4 + 5, 2.0)
        assert await cache.get("k1") is None
        assert await cache.get("k2") == (2.0, "xx")

    async def test_a_large_reply_is_not_kept(self, store: Store) -> None:
        """A reply above 1 MiB stays in its run only."""
        cache = await cache_of(store.journal)
        await cache.put("k", "x" * LARGEST, 1.0)
        assert await cache.get("k") is None
