"""Every fault of an endpoint, on the wire."""

from __future__ import annotations

import pytest
from faults_case import Case
from faults_table import cases
from model_worlds import CANARIES, everything, facts, outcome

CASES = cases()


@pytest.mark.usefixtures("loopback")
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_whatever_an_endpoint_does_is_a_reply_or_a_fault(case: Case) -> None:
    """One request is made; what comes of it has the kind, reason and bill of the table, and no key."""
    found, requests = await outcome(case)
    assert facts(found) == (case.kind, case.reason, case.billed, case.text, case.told)
    assert requests == 1
    assert not any(canary in everything(found) for canary in CANARIES)


def test_the_names_of_the_table_are_its_own() -> None:
    """No two cases of the table share a name."""
    assert len({case.name for case in CASES}) == len(CASES) >= 100
