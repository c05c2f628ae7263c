"""Hostile documents: a sample of what `python tests/documents/fuzz.py` reads by the thousand."""

from __future__ import annotations

import pytest

from documents.fuzz import fuzz


@pytest.mark.slow
def test_no_document_crashes_hangs_or_raises() -> None:
    """Each of 500 mutations loads or is refused with its problems."""
    report = fuzz(500, seed=7)
    assert not report.wrong, "\n".join(report.wrong)
    assert report.outcomes["loads"] + report.outcomes["refused"] == 500
