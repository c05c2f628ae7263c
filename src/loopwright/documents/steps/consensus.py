"""One prompt to several models, and the answer of the required share of them.

Rules:

1. All models are called at once. Those without an answer are left out; at least two answers are needed.
2. If every answer begins with a verdict (YES, APPROVED, or a word that the prompt offers in capitals), the
   verdicts are the votes and the output is the verdict.
3. Otherwise an answer with SUCCESS and without FAIL is SUCCESS, one with FAIL is FAIL, and any other is its
   words in upper case. The output is the first answer with the winning vote.
4. Without agreement the step fails, and it is not retried.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ...engine.composites import run_all
from ...engine.context import Context
from ...engine.step import CompositeStep, Step, digest_of, fingerprinted
from ...errors import StepError
from ...models.reply_text import normalise_reply
from ...prompts.prompt import Prompt
from ...records import Reason, Result, Status, codec
from ...records.codec import Json

__all__ = ["VERDICTS", "Consensus", "offered_verdicts", "votes_of"]

# Synonyms: the first word of each text is the vote.
_SAME = (
    "YES", "NO", "APPROVED APPROVE", "REJECTED REJECT", "ACCEPTED ACCEPT", "DENIED DENY",
    "PASS PASSED", "FAIL FAILED FAILURE", "SUCCESS SUCCEEDED", "SAFE", "UNSAFE", "VALID", "INVALID",
    "TRUE", "FALSE", "CORRECT", "INCORRECT", "OK",
)  # fmt: skip
VERDICTS = {word: line.split()[0] for line in _SAME for word in line.split()}
_LEADING = re.compile(r"\W*([^\W\d_][\w-]*)")
_CAPITALS = re.compile(r"\b[A-Z][A-Z_-]+\b")
_MAX_VERDICTS = 3  # answers with more different first words are sentences, not verdicts


@dataclass(frozen=True)
class Consensus(CompositeStep):
    """Several prompts whose answers must agree; `offered` are the verdicts in the prompt."""

    name: str
    voters: tuple[Prompt, ...]
    require: str = "majority"
    allow_failures: bool = True
    offered: frozenset[str] = frozenset()

    def parts(self) -> Iterable[Step]:
        return self.voters

    @fingerprinted
    def fingerprint(self) -> str:
        """A digest of the voters and of the required share."""
        return digest_of("consensus", self.require, *(v.fingerprint for v in self.voters))

    async def run(self, value: Json, ctx: Context) -> Result:
        """Call all models and count the votes."""
        jobs = [
            functools.partial(self._ask, n, v, value, ctx) for n, v in enumerate(self.voters, 1)
        ]
        replies = await run_all(jobs)
        answers = [reply for reply in replies if not isinstance(reply, StepError)]
        self._check(answers, [reply for reply in replies if isinstance(reply, StepError)], ctx)
        votes, outputs = votes_of(answers, self.offered)
        # A Counter keeps the order of the voters, so the winner of a tie is reproducible.
        counts = Counter(votes)
        winner, count = counts.most_common(1)[0]
        tally = ", ".join(f"{vote[:60]!r} {n}" for vote, n in counts.items())
        if not _reached(self.require, count, len(votes)):
            detail = f"no consensus: {self.require} is required, and the answers are {tally}"
            # Not retried: the voters would be asked the same question again.
            raise StepError(detail, path=ctx.path, kind="no_consensus", retryable=False)
        output = outputs[votes.index(winner)]
        return Result(
            Status.SATISFIED, Reason.COMPLETED, f"consensus: {tally}", output, name=self.name
        )

    async def _ask(self, number: int, voter: Prompt, value: Json, ctx: Context) -> str | StepError:
        inner = ctx.child(ctx.below(f"voter-{number}"))
        try:
            return codec.text_of((await voter.run(value, inner)).output)
        except StepError as error:
            return error

    def _check(self, answers: Sequence[str], failed: Sequence[StepError], ctx: Context) -> None:
        if failed and (not self.allow_failures or len(answers) < 2):
            detail = f"{len(failed)} of {len(self.voters)} voters gave no answer: {failed[0]}"
            raise StepError(detail, path=ctx.path, kind="no_consensus", retryable=False)
        for error in failed:
            ctx.warn(f"a voter gave no answer and is left out: {error}", code="voter_failed")


def votes_of(answers: Sequence[str], offered: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """Return the vote of each answer, and the output if that vote wins.

    Example:
        >>> votes_of(["Approved, because it is short", "**APPROVE**"])
        (['APPROVED', 'APPROVED'], ['APPROVED', 'APPROVE'])
        >>> votes_of(["It is Paris", " it is  paris"])
        (['IT IS PARIS', 'IT IS PARIS'], ['It is Paris', ' it is  paris'])
    """
    leading = [_LEADING.match(normalise_reply(answer)) for answer in answers]
    words = [match[1].upper() if match else "" for match in leading]
    votes = [VERDICTS.get(word, word) for word in words]
    if all(w in VERDICTS or w in offered for w in words) and len(set(votes)) <= _MAX_VERDICTS:
        return votes, words
    return [_vote(answer) for answer in answers], list(answers)


def _vote(answer: str) -> str:
    # The rule of `workflow/v2.0`: FAIL wins over SUCCESS, and other answers must be equal.
    text = " ".join(answer.upper().split())
    if "FAIL" in text:
        return "FAIL"
    return "SUCCESS" if "SUCCESS" in text else text


def _reached(require: str, count: int, total: int) -> bool:
    if require == "unanimous":
        return count == total
    # In integers: 2/3 of 3 voters must be exactly 2.
    return 3 * count >= 2 * total if require == "2/3" else 2 * count > total


def offered_verdicts(prompt: str) -> frozenset[str]:
    """Return the words in capitals of a prompt, which are the verdicts that it offers."""
    return frozenset(_CAPITALS.findall(prompt))
