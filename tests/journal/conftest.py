"""What the tests of stores are given: a journal in a file of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loopwright.journal.sqlite import SqliteJournal


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    """A journal in a fresh folder."""
    async with SqliteJournal(tmp_path / "runs.db", synchronous="normal") as made:
        yield made
