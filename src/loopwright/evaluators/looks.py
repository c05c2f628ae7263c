"""The votes on one criterion, and the evaluation that they give together."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..codec import Json
from ..records import Criterion, Evaluation
from .questions import Vote
from .votes import Votes

__all__ = ["Look"]


@dataclass
class Look:
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
        return Evaluation(score, accepted, reason, gaps, (), self.shown())

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
        return Evaluation(score, accepted, feedback, gaps, criteria, self.shown())

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
        if verdict.detail:
            row["detail"] = verdict.detail
        return row
