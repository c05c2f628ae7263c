"""No fingerprint changes by accident: recorded runs would not be resumed."""

from __future__ import annotations

import pytest

from golden.fingerprints import documents, fingerprint, recorded, steps

RECORDED = recorded()
STEPS = steps()


@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_step_keeps_its_fingerprint(name: str) -> None:
    """A built-in step with the same options has the fingerprint that was recorded."""
    assert STEPS[name].fingerprint == RECORDED["steps"][name]


def test_every_document_keeps_its_fingerprint() -> None:
    """Each document of the corpora, of the examples and of the golden journals has the fingerprint that was recorded."""
    found = {name: digest for name, files in documents() if (digest := fingerprint(files))}
    again = "record them again: PYTHONPATH=tests python -m golden.fingerprints"
    assert found.keys() == RECORDED["documents"].keys(), f"documents were added or edited; {again}"
    assert found == RECORDED["documents"]
