"""The voting rule of a judge and its exact error rates.

Votes are requested one at a time until one side leads by enough. A judge is mostly consistent when it
sees the same output again, so votes remove only a part of its error. The other part is the persistent
share, `icc`, the intraclass correlation: 0 if votes are independent, 1 if every vote repeats the first.
Votes on one output are then beta-binomial: after y yes and n no the next vote is a yes with probability
(a + y) / (a + b + y + n), where a = mean * (1 - icc) / icc and b = (1 - mean) * (1 - icc) / icc.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import ConfigurationError
from ...records import codec

__all__ = [
    "ErrorRates",
    "Votes",
    "VotingRule",
    "best_rule",
    "error_of_lead",
    "error_rates",
    "unattainable",
    "votes_of",
]

MOST_REJECTED = 0.5  # a rule that rejects more good outputs is of no use


@dataclass(frozen=True, slots=True)
class Votes:
    """The voting rule.

    If no side leads by enough after `most` votes, the answer is no. An unsure vote and an unreadable one
    count for neither side.

    Args:
        accept: The lead of votes for yes that accepts.
        reject: The lead of votes for no that rejects.
        most: The maximum number of votes.

    Raises:
        ConfigurationError: For a number below 1, or a lead above the number of votes.
    """

    # The names of these fields are part of recorded fingerprints, by `repr` in `Judge`.
    accept: int = 1
    reject: int = 1
    most: int = 1

    def __post_init__(self) -> None:
        for name in ("accept", "reject", "most"):
            codec.integer(f"votes: {name}", getattr(self, name), minimum=1)
        if max(self.accept, self.reject) > self.most:
            raise ConfigurationError(
                f"votes: a lead of {max(self.accept, self.reject)} needs at least as many votes, "
                f"not {self.most}. Raise max_votes or lower the lead."
            )

    def decided(self, lead: int, asked: int) -> bool:
        """Whether voting ends after `asked` votes with this lead of yes over no.

        It also ends if too few votes are left for yes to lead by enough.
        """
        left = self.most - asked
        return lead >= self.accept or -lead >= self.reject or lead + left < self.accept


def votes_of(most: int | None, accept: int, reject: int, confirm: bool) -> Votes:
    """Return the voting rule. `confirm` requires two yes. `most` defaults to the larger lead."""
    accept = max(accept, 2) if confirm else accept
    enough = max(accept, reject)
    return Votes(accept, reject, enough if most is None or (confirm and most == 1) else most)


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """The effect of a voting rule on one output: the probability of acceptance and the mean votes."""

    accept: float
    votes: float


def error_rates(yes: float, votes: Votes, icc: float = 0.0) -> ErrorRates:
    """Return the exact rates for an output that one vote accepts with probability `yes`.

    A dynamic programme over (votes for yes, votes for no) in O(most^2).

    Raises:
        ConfigurationError: For a probability or a share outside 0 to 1.

    Example:
        >>> error_rates(0.15, Votes(3, 1, 7)).accept < 0.005
        True
    """
    _check_share("yes", yes)
    _check_share("icc", icc)
    # States of the vote that are still undecided, with their probabilities.
    open_: dict[tuple[int, int], float] = {(0, 0): 1.0}
    accepted = expected = 0.0
    for asked in range(1, votes.most + 1):
        after: defaultdict[tuple[int, int], float] = defaultdict(float)
        # Every undecided state costs one more vote.
        for (y, n), chance in open_.items():
            expected += chance
            again = _next_yes(yes, icc, y, n)
            after[y + 1, n] += chance * again
            after[y, n + 1] += chance * (1 - again)
        open_ = {}
        for (y, n), chance in after.items():
            if y - n >= votes.accept:
                accepted += chance
            elif not votes.decided(y - n, asked):
                open_[y, n] = chance
    return ErrorRates(accepted, expected)


def _next_yes(mean: float, icc: float, yes: int, no: int) -> float:
    """Return the probability that the next vote on the same output is a yes."""
    asked = yes + no
    if icc == 0 or asked == 0:
        return mean
    # The formula of the module, multiplied by icc, so that icc = 1 needs no special case.
    return (mean * (1 - icc) + yes * icc) / (1 - icc + asked * icc)


def error_of_lead(accuracy: float, lead: int) -> tuple[float, float]:
    """Return the error rate and the mean votes of a lead, without a maximum of votes.

    For independent votes of a judge with accuracy p for good and bad outputs: error 1 / (1 + (p/(1-p))^lead),
    votes lead * (1 - 2 * error) / (2p - 1). Source: Wald, "Sequential Analysis" (1947).

    Raises:
        ConfigurationError: If the accuracy is not above 0.5 and below 1.
    """
    if not 0.5 < accuracy < 1:
        raise ConfigurationError(
            f"error_of_lead: accuracy: {accuracy!r} is not above 0.5 and below 1. Measure the judge."
        )
    error = 1 / (1 + (accuracy / (1 - accuracy)) ** lead)
    return error, lead * (1 - 2 * error) / (2 * accuracy - 1)


@dataclass(frozen=True, slots=True)
class VotingRule:
    """A voting rule with its exact rates for one judge."""

    votes: Votes
    false_accept: float
    false_reject: float


def best_rule(
    sensitivity: float, specificity: float, icc: float, *, alpha: float = 0.05, most: int = 7
) -> VotingRule | None:
    """Return the voting rule with the fewest false rejects among those that keep `alpha`.

    It tries every rule of up to `most` votes with the exact programme. None if no rule keeps `alpha` and
    accepts half of the good outputs: the judge is then `unattainable`. Of rules with equal false rejects,
    the one with the fewest votes on a good output is returned.

    Args:
        sensitivity: The probability that one vote accepts a good output.
        specificity: The probability that one vote rejects a bad output.
        icc: The persistent share of the error.
        alpha: The accepted share of bad outputs that pass. Default: 0.05.
        most: The maximum number of votes. Default: 7.

    Raises:
        ConfigurationError: For a probability outside 0 to 1, or fewer votes than 1.

    Example:
        >>> best_rule(0.85, 0.85, 0.0).votes
        Votes(accept=2, reject=3, most=6)
        >>> best_rule(0.85, 0.85, 0.8) is None
        True
    """
    names = ("sensitivity", "specificity", "icc", "alpha")
    for name, value in zip(names, (sensitivity, specificity, icc, alpha), strict=True):
        _check_share(name, value)
    codec.integer("votes: most", most, minimum=1)
    best: tuple[tuple[float, float], VotingRule] | None = None
    for votes in _rules(most):
        accepted = error_rates(1 - specificity, votes, icc).accept
        if accepted > alpha:
            continue
        good = error_rates(sensitivity, votes, icc)
        # Without this limit a judge that guesses would reach any `alpha`, by rejecting almost everything.
        if 1 - good.accept > MOST_REJECTED:
            continue
        key = 1 - good.accept, good.votes
        if best is None or key < best[0]:
            best = key, VotingRule(votes, accepted, 1 - good.accept)
    return None if best is None else best[1]


def _rules(most: int) -> Iterator[Votes]:
    for count in range(1, most + 1):
        for accept in range(1, count + 1):
            for reject in range(1, count + 1):
                yield Votes(accept, reject, count)


def unattainable(
    sensitivity: float, specificity: float, icc: float, *, alpha: float = 0.05, most: int = 7
) -> str:
    """Return why a judge cannot keep false accepts at `alpha` in `most` votes, or "" if it can.

    The arguments and the bound are those of `best_rule`.
    """
    if best_rule(sensitivity, specificity, icc, alpha=alpha, most=most) is not None:
        return ""
    return (
        f"no rule of up to {most} votes keeps false accepts at {alpha:.3g} and accepts half of the good "
        "outputs, however often this judge is asked: use a second judge, a checklist, or a deterministic check"
    )


def _check_share(name: str, value: float) -> None:
    if not 0 <= codec.number(f"votes: {name}", value, minimum=0) <= 1:
        raise ConfigurationError(f"votes: {name}: {value!r} is above 1. Use a share from 0 to 1.")
