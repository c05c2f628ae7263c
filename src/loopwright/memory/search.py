"""What is found by words: the more words a text shares with a query, and the rarer, the earlier."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["ranked"]

_WORDS = re.compile(r"[^\W_]{2,}")
T = TypeVar("T")


def ranked(
    query: str,
    items: Sequence[T],
    text: Callable[[T], str],
    *,
    limit: int,
    weight: Callable[[T], float] = lambda _: 1.0,
) -> list[T]:
    """Return the items whose text shares most words with a query, the latest first on ties.

    A word counts 1 / n where n texts have it, times the item's `weight`. Without a word in common an
    item is not found; without a word in the query the latest are, oldest last.
    """
    asked = frozenset(_WORDS.findall(query.casefold()))
    if not asked:
        return list(items[::-1][:limit])
    words = [frozenset(_WORDS.findall(text(item).casefold())) for item in items]
    common = Counter(word for each in words for word in each)
    scores = [
        weight(item) * sum(1 / common[word] for word in each & asked)
        for item, each in zip(items, words, strict=True)
    ]
    order = sorted(range(len(items)), key=lambda i: (scores[i], i), reverse=True)
    return [items[i] for i in order[:limit] if scores[i] > 0]
