"""What is new in a run or a list, made once and told to every page that is open on it.

While pages listen to a topic, one task looks and makes the news of it. Each telling says from which
number to which it leads, so that a page that came later, or was too slow, notices the gap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .feed import Topic

__all__ = ["Channel", "Channels", "Listener", "Told"]

_KEPT = 64  # tellings that wait for a page that takes them up slowly; older ones are a gap


class Told(NamedTuple):
    """An event as it is sent: who knows all up to `before` knows all up to `last` by it."""

    before: int
    last: int
    event: bytes


class Listener:
    """An open page: what it was told and has not taken up yet."""

    def __init__(self) -> None:
        self._told: deque[Told] = deque(maxlen=_KEPT)
        self._news = asyncio.Event()
        self.over = False

    def hear(self, told: Told) -> None:
        """Take up a telling."""
        self._told.append(told)
        self._news.set()

    def end(self) -> None:
        """Take up that nothing more comes."""
        self.over = True
        self._news.set()

    async def next(self, seconds: float) -> Told | None:
        """Return the next telling; None if there was none in that time, or nothing more comes."""
        if not self._told and not self.over:
            self._news.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                return None
        return self._told.popleft() if self._told else None


class Channel:
    """The pages that listen to one topic; `number` is that of the last telling of a list."""

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()
        self.number = 0

    def tell(self, told: Told) -> None:
        """Tell all pages something."""
        for listener in self.listeners:
            listener.hear(told)


Making = Callable[[Topic, Channel], Awaitable[None]]


class Channels:
    """The topics that somebody listens to; `make` tells a channel what is new, until it is cancelled."""

    def __init__(self, make: Making) -> None:
        self._make = make
        self._open: dict[Topic, tuple[Channel, asyncio.Task[None]]] = {}

    @contextmanager
    def joined(self, topic: Topic) -> Iterator[tuple[Channel, Listener]]:
        """Listen to a topic."""
        if topic not in self._open:
            made = Channel()
            self._open[topic] = made, asyncio.create_task(self._made(topic, made))
        channel, task = self._open[topic]
        listener = Listener()
        channel.listeners.add(listener)
        try:
            yield channel, listener
        finally:
            channel.listeners.discard(listener)
            if not channel.listeners:
                task.cancel()
                self._close(topic, channel)

    async def _made(self, topic: Topic, channel: Channel) -> None:
        try:
            await self._make(topic, channel)
        finally:
            self._close(topic, channel)
            for listener in channel.listeners:
                listener.end()

    def _close(self, topic: Topic, channel: Channel) -> None:
        if topic in self._open and self._open[topic][0] is channel:
            del self._open[topic]

    def stop(self) -> None:
        """End all streams."""
        for _, task in self._open.values():
            task.cancel()
