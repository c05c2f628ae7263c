"""The last lines of running agents: bounded, cleaned, and gone after the call."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from loopwright.journal.views import LINES, LiveLines


def test_the_last_lines_are_kept_and_deleted_at_the_end(tmp_path: Path) -> None:
    """The first line is written at once, later ones together; another reader sees the last of them, cleaned."""
    ours, theirs = LiveLines(tmp_path / "live"), LiveLines(tmp_path / "live")

    async def call() -> None:
        with ours.writer(
            "run", "fix/1", "Agent", lambda text: text.replace("secret", "***")
        ) as live:
            assert theirs.read("run", "fix/1") is None
            live.add("a secret", "")
            first = theirs.read("run", "fix/1")
            assert first is not None
            assert (first.agent, first.session, first.lines) == ("Agent", "", ("a ***",))
            version = theirs.version("run")
            for number in range(100):
                live.add(f"line {number}", "session-1")
            async with asyncio.timeout(10):
                while theirs.version("run") == version:
                    await asyncio.sleep(0.01)
            last = theirs.read("run", "fix/1")
            assert last is not None
            assert last.session == "session-1"
            assert last.lines == tuple(f"line {number}" for number in range(100 - LINES, 100))
            live.add("never written", "session-1")
        assert theirs.read("run", "fix/1") is None

    asyncio.run(call())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"agent": 1}', b"\xff", b'{"lines": 7}'])
def test_a_damaged_file_has_no_lines(tmp_path: Path, content: bytes) -> None:
    """A reader of a file that is not complete shows nothing."""
    lines = LiveLines(tmp_path)

    async def call() -> None:
        with lines.writer("run", "fix/1", "Agent", str) as live:
            live.add("text", "")
            (file,) = tmp_path.glob("*/*.json")
            file.write_bytes(content)
            assert lines.read("run", "fix/1") is None

    asyncio.run(call())


def test_nothing_is_written_without_a_folder_or_on_a_full_disk(tmp_path: Path) -> None:
    """A journal in memory has no lines, and a folder that cannot be made does not end the call."""
    (tmp_path / "file").write_text("")

    async def call() -> None:
        for lines in (LiveLines(), LiveLines(tmp_path / "file" / "live")):
            with lines.writer("run", "fix/1", "Agent", str) as live:
                live.add("text", "")
                assert lines.read("run", "fix/1") is None
                assert lines.version("run") == 0

    asyncio.run(call())
