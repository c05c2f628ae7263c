"""Votes of a judge: the rule that decides, and what it does to the judge's errors, exactly.

Votes are asked one at a time until one side leads by enough. Asked again about the same output, a
judge is mostly consistent with itself, so only a part of its error is noise that votes can remove.
The other part is the persistent share, `icc`, from 0 (every vote is a fresh coin) to 1 (every vote
repeats the first). Votes on one output are then beta-binomial: after y times yes and n times no the
next is a yes with probability (a + y) / (a + b + y + n), where a = mean * (1 - icc) / icc and
b = (1 - mean) * (1 - icc) / icc.

The votes on one criterion, and the evaluation that they give together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

from ...errors import ConfigurationError
from ...records import Criterion, Evaluation, codec
from ...records.codec import Json
from .questions import Vote

__all__ = [
    "CriterionVotes",
    "Outlook",
    "Votes",
    "lead_error",
    "outlook",
    "unattainable",
    "votes_of",
]


@dataclass(frozen=True, slots=True)
class Votes:
    """How often a judge is asked: `accept` and `reject` are the leads that decide, `most` ends it.

    With a lead of votes neither way after `most`, the answer counts as no. A vote of unsure, and
    one that cannot be read, counts for neither side.

    Raises:
        ConfigurationError: for a number below 1, or a lead that so few votes cannot give.
    """

    accept: int = 1
    reject: int = 1
    most: int = 1

    def __post_init__(self) -> None:
        for name in ("accept", "reject", "most"):
            codec.whole(f"votes: {name}", getattr(self, name), least=1)
        if max(self.accept, self.reject) > self.most:
            raise ConfigurationError(
                f"votes: a lead of {max(self.accept, self.reject)} needs at least as many votes, "
                f"not {self.most}; raise max_votes or lower the lead"
            )

    def decided(self, lead: int, asked: int) -> bool:
        """Whether a lead of votes for yes over votes for no, after so many, ends the look.

        It does too when so few votes are left that yes can no longer lead by enough.
        """
        left = self.most - asked
        return lead >= self.accept or -lead >= self.reject or lead + left < self.accept


def votes_of(most: int | None, accept: int, reject: int, confirm: bool) -> Votes:
    """Return the voting rule; `confirm` asks for a second yes; `most` defaults to the larger lead."""
    accept = max(accept, 2) if confirm else accept
    enough = max(accept, reject)
    return Votes(accept, reject, enough if most is None or (confirm and most == 1) else most)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a voting rule does to one output: the chance that it is accepted, and the mean votes."""

    accept: float
    votes: float


def outlook(yes: float, votes: Votes, icc: float = 0.0) -> Outlook:
    """Return the exact outlook for an output to which one vote says yes with probability `yes`.

    A dynamic programme over (votes for yes, votes for no): O(most^2).

    >>> outlook(0.15, Votes(3, 1, 7)).accept < 0.005
    True

    Raises:
        ConfigurationError: for a probability or a share outside 0 to 1.
    """
    _share("yes", yes)
    _share("icc", icc)
    open_: dict[tuple[int, int], float] = {(0, 0): 1.0}
    accepted = expected = 0.0
    for asked in range(1, votes.most + 1):
        after: defaultdict[tuple[int, int], float] = defaultdict(float)
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
    return Outlook(accepted, expected)


def _next_yes(mean: float, icc: float, yes: int, no: int) -> float:
    """Return the chance that the next vote is a yes, after what was said of the same output."""
    asked = yes + no
    if icc == 0 or asked == 0:
        return mean
    # The formula of the module, multiplied by icc, so that icc = 1 needs no case of its own.
    return (mean * (1 - icc) + yes * icc) / (1 - icc + asked * icc)


def lead_error(accuracy: float, lead: int) -> tuple[float, float]:
    """Return the error and the mean votes of "lead by so many", asked without end.

    For a judge as good at yes as at no, and independent votes: error 1 / (1 + (p/(1-p))^lead),
    votes lead * (1 - 2 * error) / (2p - 1) (Wald's sequential test).

    Raises:
        ConfigurationError: if the accuracy is not above a half and below 1.
    """
    if not 0.5 < accuracy < 1:
        raise ConfigurationError(
            f"lead_error: accuracy: {accuracy!r} is not above 0.5 and below 1; measure the judge"
        )
    error = 1 / (1 + (accuracy / (1 - accuracy)) ** lead)
    return error, lead * (1 - 2 * error) / (2 * accuracy - 1)


def unattainable(
    sensitivity: float,
    specificity: float,
    icc: float,
    *,
    alpha: float = 0.05,
    beta: float = 0.05,
    most: int = 7,
) -> str:
    """Return why a judge cannot support an error of `alpha` in `most` votes, or "" if it can.

    It can if as many votes for yes are likelier of a good output than of a bad one by Wald's bound,
    (1 - beta) / alpha.

    Raises:
        ConfigurationError: for a probability outside 0 to 1, or fewer votes than 1.
    """
    names = ("sensitivity", "specificity", "icc", "alpha", "beta")
    for name, value in zip(names, (sensitivity, specificity, icc, alpha, beta), strict=True):
        _share(name, value)
    codec.whole("unattainable: most", most, least=1)
    good = math.prod(_next_yes(sensitivity, icc, y, 0) for y in range(most))
    bad = math.prod(_next_yes(1 - specificity, icc, y, 0) for y in range(most))
    if good * alpha >= bad * (1 - beta):
        return ""
    return (
        f"this judge cannot support an error of {alpha:.0%} however often it is asked, up to {most} "
        "votes: use a second judge, a checklist, or a deterministic check"
    )


def _share(name: str, value: float) -> None:
    if not 0 <= codec.number(f"votes: {name}", value, least=0) <= 1:
        raise ConfigurationError(f"votes: {name}: {value!r} is above 1; give a share from 0 to 1")


@dataclass
class CriterionVotes:
    """The votes on one criterion so far; `names` are the criteria of a preset."""

    name: str
    criterion: str
    rule: Votes
    names: tuple[str, ...] = ()
    votes: list[Vote] = field(default_factory=list)

    @property
    def lead(self) -> int:
        """Votes for yes less votes for no."""
        return sum((v.verdict.answer == "yes") - (v.verdict.answer == "no") for v in self.votes)

    @property
    def readable(self) -> list[Vote]:
        """The votes that say anything."""
        return [vote for vote in self.votes if vote.verdict.answer != "unparsable"]

    @property
    def over(self) -> bool:
        """Whether no further vote is to be asked."""
        asked = len(self.votes)
        if asked >= self.rule.most:
            return True
        # What could not be read says nothing of the output: that alone is no reason to give up.
        return bool(self.readable) and self.rule.decided(self.lead, asked)

    def evaluation(self) -> Evaluation:
        """Return what the votes say together: undecided if none of them can be read."""
        readable = self.readable
        if not readable:
            why = self.votes[-1].verdict.detail if self.votes else "nobody asked it"
            told = f"the judge could not be read: {why}"
            return Evaluation(undecided=True, feedback=told, votes=self.shown())
        accepted = self.lead >= self.rule.accept
        scores = [v.verdict.score for v in readable if v.verdict.score is not None]
        score = sum(scores) / len(scores) if scores else None
        reason = self._reason(accepted)
        if self.names:
            return self._of_preset(score, accepted, reason)
        gaps = () if accepted or not reason else (reason,)
        return Evaluation(
            score=score,
            passed=accepted,
            feedback=reason,
            improvements=gaps,
            criteria=(),
            votes=self.shown(),
        )

    def _reason(self, accepted: bool) -> str:
        """Return the latest reason on the side that won, else the latest there is."""
        said = [(v.verdict.answer == "yes", v.verdict.reason) for v in self.readable]
        ours = [text for yes, text in said if text and yes is accepted]
        return next(iter([*reversed(ours), *(text for _, text in reversed(said) if text)]), "")

    def _of_preset(self, score: float | None, accepted: bool, reason: str) -> Evaluation:
        """Return the evaluation by criterion: one holds if most votes say so."""
        readable = self.readable
        criteria = tuple(
            Criterion(name, 2 * sum(name not in vote.failed for vote in readable) > len(readable))
            for name in self.names
        )
        gaps = tuple(item.name for item in criteria if not item.passed)
        listed = ", ".join(gaps)
        feedback = reason if not gaps else f"{listed}: {reason}" if reason else listed
        return Evaluation(
            score=score,
            passed=accepted,
            feedback=feedback,
            improvements=gaps,
            criteria=criteria,
            votes=self.shown(),
        )

    def shown(self) -> tuple[Json, ...]:
        """Return each vote as JSON."""
        return tuple(self._row(vote) for vote in self.votes)

    def _row(self, vote: Vote) -> Json:
        verdict = vote.verdict
        row: dict[str, Json] = {"condition": self.criterion or self.name}
        row["answer"] = verdict.answer.upper()
        if verdict.score is not None:
            row["score"] = verdict.score
        if vote.failed:
            row["failed"] = list(vote.failed)
        if verdict.contradiction:
            row["contradiction"] = True
        if verdict.detail or verdict.note:
            row["detail"] = verdict.detail or verdict.note
        return row
