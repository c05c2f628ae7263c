"""What to do after a failed attempt: a pure function of what failed so far.

====================================  ======================================================
fault                                 next
====================================  ======================================================
transient, unknown_outcome            wait and try again, 5 attempts at each endpoint
throttled                             the same, but never before `retry_after`
throttled for longer than may wait    another endpoint, else suspend the run, else fail
quota                                 another endpoint, else suspend the run, else fail
truncated                             by on_cutoff: once more with double the cap on tokens, or fail
malformed                             twice more with the problem quoted, then fail
empty_output                          once more, then fail
refused                               another endpoint, else fail
a format the endpoint does not know   at once, in the next format it may know
permanent                             another endpoint, else fail
cancelled                             fail
====================================  ======================================================

A judge moves to another endpoint only where the first one refuses every question, as with a wrong key or an unknown
model: else its scores would stop being comparable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ..records import codec
from .errors import ModelError

__all__ = ["OF_ALL", "Action", "Policy", "Tally", "decide"]

Action = Literal["wait", "again", "escalate", "re_ask", "failover", "suspend", "fail"]

FORMATS = 3  # ways of structured output after the first
# Refusals of every question at an endpoint: whoever moves on there has all questions answered by the same next one.
OF_ALL = frozenset({"unauthorised", "forbidden", "not_found", "configuration"})


@dataclass(frozen=True, slots=True)
class Policy:
    """How often and how long a call is tried; times in seconds.

    Args:
        attempts: at each endpoint, for what may pass (transient, throttled, unknown outcome).
        re_asks: with the problem quoted, for an answer in the wrong format.
        escalations: with double the cap on tokens, where on_cutoff is retry.
        empty_retries: when nothing was written.
        delay, longest_delay: the wait after failure k is uniform(0, min(longest, delay * 2^(k-1))).
        longest_told: a `retry_after` above it is not waited for.
        whole: the most that one call waits in all.

    Raises:
        ConfigurationError: for a number below its least.
    """

    attempts: int = 5
    re_asks: int = 2
    escalations: int = 1
    empty_retries: int = 1
    delay: float = 0.5
    longest_delay: float = 30.0
    longest_told: float = 120.0
    whole: float = 300.0

    def __post_init__(self) -> None:
        codec.whole("policy: attempts", self.attempts, least=1)
        for name in ("re_asks", "escalations", "empty_retries"):
            codec.whole(f"policy: {name}", getattr(self, name), least=0)
        for name in ("delay", "longest_delay", "longest_told", "whole"):
            codec.number(f"policy: {name}", getattr(self, name), least=0)

    def backoff(self, failures: int, chance: float) -> float:
        """Return the wait after that many failures, full jitter; `chance` is in [0, 1)."""
        return chance * min(self.longest_delay, self.delay * 2.0 ** min(failures - 1, 60))


@dataclass(frozen=True, slots=True)
class Tally:
    """What failed so far in one call; `tries` counts at the present endpoint only."""

    tries: int = 0
    formats: int = 0
    re_asks: int = 0
    escalations: int = 0
    empties: int = 0
    target: int = 0

    def moved(self) -> Tally:
        """Return the tally at the next endpoint."""
        return replace(self, tries=0, formats=0, target=self.target + 1)


def decide(
    fault: ModelError, tally: Tally, policy: Policy, *, others: bool, too_long: bool
) -> tuple[Action, Tally]:
    """Return what to do after a fault, and the tally with it.

    `others` says that there is another endpoint to move to, `too_long` that this one asked for a
    longer wait than may be.
    """
    elsewhere: tuple[Action, Tally] = ("failover", tally.moved())
    match fault.kind:
        case "transient" if fault.reason == "format_unsupported" and tally.formats < FORMATS:
            return "again", replace(tally, formats=tally.formats + 1)
        case "transient" | "throttled" | "unknown_outcome":
            tried = replace(tally, tries=tally.tries + 1)
            if too_long:
                return elsewhere if others else ("suspend", replace(tally, tries=0))
            if tried.tries < policy.attempts:
                return "wait", tried
            return elsewhere if others else ("fail", tried)
        case "quota":
            return elsewhere if others else ("suspend", replace(tally, tries=0))
        case "refused" | "permanent":
            return elsewhere if others else ("fail", tally)
        case "truncated" if tally.escalations < policy.escalations:
            return "escalate", replace(tally, escalations=tally.escalations + 1)
        case "malformed" if tally.re_asks < policy.re_asks:
            return "re_ask", replace(tally, re_asks=tally.re_asks + 1)
        case "empty_output" if tally.empties < policy.empty_retries:
            return "wait", replace(tally, empties=tally.empties + 1)
        case _:
            return "fail", tally
