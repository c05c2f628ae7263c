"""A judge of the files that an agent changed, in place of the agent's words about them."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.context import Context
from ..engine.step import FunctionStep, Step, digest_of, fingerprinted
from ..errors import StepError
from ..evaluators.gates import LaterEvaluator
from ..evaluators.judge import Judge
from ..records import Evaluation, Result, codec
from ..records.codec import Json
from ..records.display import shown

__all__ = ["JudgeOfChanges"]

DIFF_CHARS = 60_000  # of the changes in the question
TEXT_CHARS = 8_000  # of the agent's last message, and of the output of each earlier check


class JudgeOfChanges(LaterEvaluator):
    """A judge that sees the changes of a workspace, the agent's last message and the output of earlier checks.

    Args:
        judge: The judge with its criteria.
        earlier: The evaluations of the gates before it, by name.
    """

    name = "judge"
    asks_model = True

    def __init__(self, judge: Judge, earlier: Sequence[tuple[str, Evaluation]] = ()) -> None:
        self.judge, self.earlier = judge, tuple(earlier)
        self.unsupplied = judge.unsupplied

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("judge of changes", self.judge.fingerprint)

    def parts(self) -> tuple[Step, ...]:
        """Return the judge."""
        return (self.judge,)

    def after(self, earlier: Sequence[tuple[str, Evaluation]]) -> JudgeOfChanges:
        """Return the judge that also sees the evaluations of the gates before it."""
        return JudgeOfChanges(self.judge, earlier)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Judge the changes. The result's output is the evaluation."""
        read = FunctionStep(
            _changes, name="changes", fingerprint=digest_of("changes"), reports=False
        )
        # Recorded: a resumed run must ask the same question, and the files may be others by then.
        changes: str = await ctx.call("changes", read, None)
        texts = [("The agent's last message", shown(value, TEXT_CHARS))]
        texts += [
            (f"The output of {name}", shown(e.feedback, TEXT_CHARS)) for name, e in self.earlier
        ]
        texts.append(("The changes of the files", changes))
        text = "\n\n".join(f"{title}:\n{codec.text_of(body).strip()}" for title, body in texts)
        return await self.judge.run(text, ctx)


async def _changes(_: Json, ctx: Context) -> str:
    files = None if ctx.scope is None else ctx.scope.files
    if files is None:
        raise StepError(
            f"{ctx.path}: a judge of changes needs a workspace; add one, or use of: output",
            path=ctx.path,
            kind="no_workspace",
            retryable=False,
        )
    changes = await files.changes()
    return shown(changes, DIFF_CHARS) or "no file was changed"
