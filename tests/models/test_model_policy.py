"""What follows a failed attempt, as a table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.errors import ConfigurationError
from loopwright.models import KINDS, ModelError, Policy
from loopwright.models.errors import Tally, decide

POLICY = Policy()


@pytest.mark.parametrize(
    ("kind", "reason", "tally", "others", "too_long", "action"),
    [
        ("transient", "", Tally(), False, False, "wait"),
        ("transient", "", Tally(tries=3), False, False, "wait"),
        ("transient", "", Tally(tries=4), False, False, "fail"),
        ("transient", "", Tally(tries=4), True, False, "failover"),
        ("transient", "stream_incomplete", Tally(), False, False, "wait"),
        ("transient", "status_503", Tally(), False, True, "suspend"),
        ("transient", "format_unsupported", Tally(), False, False, "again"),
        ("transient", "format_unsupported", Tally(formats=3), False, False, "wait"),
        ("unknown_outcome", "", Tally(), True, False, "wait"),
        ("unknown_outcome", "", Tally(tries=4), True, False, "failover"),
        ("throttled", "", Tally(), True, False, "wait"),
        ("throttled", "", Tally(tries=4), False, False, "fail"),
        ("throttled", "", Tally(), True, True, "failover"),
        ("throttled", "", Tally(), False, True, "suspend"),
        ("quota", "", Tally(), True, False, "failover"),
        ("quota", "", Tally(), False, False, "suspend"),
        ("refused", "", Tally(), True, False, "failover"),
        ("refused", "", Tally(), False, False, "fail"),
        ("truncated", "", Tally(), True, False, "escalate"),
        ("truncated", "", Tally(escalations=1), True, False, "fail"),
        ("malformed", "", Tally(), True, False, "re_ask"),
        ("malformed", "", Tally(re_asks=1), True, False, "re_ask"),
        ("malformed", "", Tally(re_asks=2), True, False, "fail"),
        ("empty_output", "", Tally(), True, False, "wait"),
        ("empty_output", "", Tally(empties=1), True, False, "fail"),
        ("permanent", "context_too_long", Tally(), True, False, "failover"),
        ("permanent", "unauthorised", Tally(), True, False, "failover"),
        ("permanent", "context_too_long", Tally(), False, False, "fail"),
        ("cancelled", "", Tally(), True, False, "fail"),
    ],
)
def test_what_follows_a_fault(
    kind: str, reason: str, tally: Tally, others: bool, too_long: bool, action: str
) -> None:
    """The policy table, row by row."""
    fault = ModelError("x", kind=kind, reason=reason)
    assert decide(fault, tally, POLICY, others=others, too_long=too_long)[0] == action


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.booleans(), st.booleans()), min_size=40, max_size=40),
    st.integers(0, 3),
)  # fmt: skip
def test_every_call_ends(script: list[tuple[str, bool, bool]], targets: int) -> None:
    """Whatever fails in whatever order, a call ends after a bounded number of attempts."""
    tally = Tally()
    attempts = 0
    for kind, too_long, odd in script:
        attempts += 1
        reason = "format_unsupported" if odd else ""
        action, tally = decide(
            ModelError("x", kind=kind, reason=reason), tally, POLICY,
            others=tally.target < targets, too_long=too_long,
        )  # fmt: skip
        if action in ("fail", "suspend"):
            break
    assert attempts <= (targets + 1) * (POLICY.attempts + 3) + 4
    assert tally.target <= targets


@given(st.integers(1, 200), st.floats(0, 1, exclude_max=True))
def test_a_wait_is_between_nothing_and_its_cap(failures: int, chance: float) -> None:
    """Full jitter: uniform from 0 to the doubled delay, at most 30 s."""
    wait = POLICY.backoff(failures, chance)
    assert 0 <= wait <= min(30.0, 0.5 * 2.0 ** (failures - 1))


@pytest.mark.parametrize(
    "options", [{"attempts": 0}, {"re_asks": -1}, {"delay": -1}, {"whole": float("inf")}]
)
def test_a_policy_that_cannot_be_is_refused(options: dict[str, Any]) -> None:
    """Attempts are at least 1, nothing is negative, and no wait is infinite."""
    with pytest.raises(ConfigurationError, match="policy: "):
        Policy(**options)
