"""The signature test, sampled: kill -9 at journal writes, resume, the same result. All points: `make torture`."""

from __future__ import annotations

from pathlib import Path

import pytest

from crash.harness import POSITIONS, crash, reference

SAMPLE = (1, 2, 9, 20, 33)


@pytest.mark.slow
@pytest.mark.parametrize("position", POSITIONS)
def test_a_killed_run_resumes_to_the_same_result(tmp_path: Path, position: str) -> None:
    """I35, I36: any crash gives the result of the undisturbed run, and re-pays only what was in flight."""
    expected = reference(tmp_path / "reference")
    for point in SAMPLE:
        assert not crash(tmp_path / f"{position}-{point}", position, point, expected)
