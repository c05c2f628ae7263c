"""One prompt to several models, and the answer on which enough of them agree.

Rules:

1. All are asked at once; those that give no answer are left out, and two answers are the least.
2. Where every answer begins with a verdict (YES, APPROVED, or a word that the prompt offers in
   capitals), the verdicts are the votes and the output is the verdict.
3. Else an answer that says SUCCESS and not FAIL is SUCCESS, one that says FAIL is FAIL, any other
   is its words in upper case; the output is the first answer of those that agree.
4. Without agreement the step has failed, and no retry can help.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ...engine.concurrency import run_all
from ...engine.context import Context
from ...engine.step import CompositeStep, Step, digest_of
from ...errors import StepError
from ...evaluators.parsing.text import normalise_reply
from ...prompts.prompt import Prompt
from ...records import Reason, Result, Status, codec
from ...records.codec import Json

__all__ = ["VERDICTS", "Consensus", "offered_verdicts", "votes_of"]

# Words that say the same; the first of a line is how the vote is called.
_SAME = (
    "YES", "NO", "APPROVED APPROVE", "REJECTED REJECT", "ACCEPTED ACCEPT", "DENIED DENY",
    "PASS PASSED", "FAIL FAILED FAILURE", "SUCCESS SUCCEEDED", "SAFE", "UNSAFE", "VALID", "INVALID",
    "TRUE", "FALSE", "CORRECT", "INCORRECT", "OK",
)  # fmt: skip
VERDICTS = {word: line.split()[0] for line in _SAME for word in line.split()}
_LEADING = re.compile(r"\W*([^\W\d_][\w-]*)")
_CAPITALS = re.compile(r"\b[A-Z][A-Z_-]+\b")
_MOST_VERDICTS = 3


@dataclass(frozen=True)
class Consensus(CompositeStep):
    """Several prompts of which enough must agree; `offered` are the verdicts that they may give."""

    name: str
    voters: tuple[Prompt, ...]
    require: str = "majority"
    allow_failures: bool = True
    offered: frozenset[str] = frozenset()

    def parts(self) -> Iterable[Step]:
        return self.voters

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the voters and what they must reach."""
        return digest_of("consensus", self.require, *(v.fingerprint for v in self.voters))

    async def run(self, value: Json, ctx: Context) -> Result:
        """Ask all and count."""
        found = await run_all(
            [functools.partial(self._ask, i, v, value, ctx) for i, v in enumerate(self.voters, 1)]
        )
        answers = [answer for answer in found if not isinstance(answer, StepError)]
        self._check(answers, [answer for answer in found if isinstance(answer, StepError)], ctx)
        votes, outputs = votes_of(answers, self.offered)
        winner, count = Counter(votes).most_common(1)[0]  # of several, the one that was given first
        tally = ", ".join(f"{vote[:60]!r} {n}" for vote, n in Counter(votes).items())
        if not _reached(self.require, count, len(votes)):
            what = f"no consensus: {self.require} is required, and the answers are {tally}"
            raise StepError(what, path=ctx.path, kind="no_consensus", retryable=False)
        output = outputs[votes.index(winner)]
        said = f"consensus: {tally}"
        return Result(Status.SATISFIED, Reason.COMPLETED, said, output, name=self.name)

    async def _ask(self, number: int, voter: Prompt, value: Json, ctx: Context) -> str | StepError:
        inner = ctx.child(ctx.below(f"voter-{number}"))
        try:
            return codec.text_of((await voter.run(value, inner)).output)
        except StepError as error:
            return error

    def _check(self, answers: Sequence[str], failed: Sequence[StepError], ctx: Context) -> None:
        if failed and (not self.allow_failures or len(answers) < 2):
            what = f"{len(failed)} of {len(self.voters)} voters gave no answer: {failed[0]}"
            raise StepError(what, path=ctx.path, kind="no_consensus", retryable=False)
        for error in failed:
            ctx.warn(f"a voter gave no answer and is left out: {error}")


def votes_of(answers: Sequence[str], offered: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """Return the vote of each answer, and what the output is if that vote wins.

    >>> votes_of(["Approved, because it is short", "**APPROVE**"])
    (['APPROVED', 'APPROVED'], ['APPROVED', 'APPROVE'])
    >>> votes_of(["It is Paris", " it is  paris"])
    (['IT IS PARIS', 'IT IS PARIS'], ['It is Paris', ' it is  paris'])
    """
    leading = [_LEADING.match(normalise_reply(answer)) for answer in answers]
    words = [found[1].upper() if found else "" for found in leading]
    votes = [VERDICTS.get(word, word) for word in words]
    if all(w in VERDICTS or w in offered for w in words) and len(set(votes)) <= _MOST_VERDICTS:
        return votes, words
    return [_vote(answer) for answer in answers], list(answers)


def _vote(answer: str) -> str:
    text = " ".join(answer.upper().split())
    if "FAIL" in text:
        return "FAIL"
    return "SUCCESS" if "SUCCESS" in text else text


def _reached(require: str, count: int, total: int) -> bool:
    if require == "unanimous":
        return count == total
    return 3 * count >= 2 * total if require == "2/3" else 2 * count > total


def offered_verdicts(prompt: str) -> frozenset[str]:
    """Return the words in capitals of a prompt: the verdicts that it offers."""
    return frozenset(_CAPITALS.findall(prompt))
