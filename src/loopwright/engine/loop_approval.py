"""The questions of a loop to a person: after an iteration, at its limit, and in place of an undecided judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from ..conditions import CEILING
from ..records import Evaluation, History, Iteration, Reason, Stop
from ..records.codec import Json
from .context import Context
from .loop_declaration import LoopDeclaration
from .run_state import Run

__all__ = ["MOMENTS", "answered", "approved", "settled"]

MOMENTS = ("iteration", "limit")  # when a loop can ask; also the kinds of its questions
_LIMITS = (Reason.MAX_ITERATIONS, Reason.PHASE_LIMIT)


class RunWithQuestions(Protocol):
    """The parts of a `LoopRun` that a question needs."""

    loop: LoopDeclaration
    history: History
    path: str
    run_state: Run
    ctx: Context


def approved(
    loop_run: RunWithQuestions, stop: Stop | None, *, stalled: bool = False
) -> Stop | None:
    """Return the stop of a loop with questions after its latest iteration, or None if it continues.

    `stop` is the decision of its conditions, `stalled` asks because there is no progress. A person can raise
    a limit, but not undo a success.

    Raises:
        Suspended: until the question is answered.
    """
    # The ceiling cannot be raised, so at the ceiling there is nothing to ask.
    asks = loop_run.loop.approve
    if stop is None:
        return _after_iteration(loop_run) if stalled or "iteration" in asks else None
    if stop.reason in _LIMITS and "limit" in asks and len(loop_run.history) < CEILING:
        return _at_limit(loop_run, stop)
    return stop


def _after_iteration(loop_run: RunWithQuestions) -> Stop | None:
    number = len(loop_run.history)
    replay = loop_run.run_state.replay
    if replay is not None and f"{loop_run.path}/{number}/limit" in replay.answers:
        return None  # the person who raised the limit has reviewed this iteration
    score = loop_run.history[-1].score
    shown = "" if score is None else f", score {score:.3g}"
    detail = f"iteration {number} is done{shown}"
    answer = _ask(loop_run, "approve", {"kind": "iteration"}, detail)
    if answer["approve"]:
        return None
    if answer.get("accept"):
        return Stop(Reason.ACCEPTED, f"a person accepted the output of iteration {number}")
    # A person who accepts the output satisfies the loop; one who only ends it does not.
    ended = f"a person ended it after iteration {number}"
    return Stop(Reason.STOPPED, _with_reason(ended, answer))


def _at_limit(loop_run: RunWithQuestions, stop: Stop) -> Stop:
    number, best = len(loop_run.history), loop_run.history.best
    detail = stop.detail
    if best is not None and best.score is not None:
        detail += f", best {best.score:.3g}"
    request = {"kind": "limit", "more": min(loop_run.loop.limit, CEILING - number)}
    # An approval raises the limit, so that the loop reaches this line only after a refusal.
    answer = _ask(loop_run, "limit", request, detail)
    if answer["approve"]:
        # Only the rule of a dry run approves here: a real answer has raised the limit already.
        return replace(stop, detail=f"{stop.detail}; a dry run does not raise limits")
    return replace(stop, detail=_with_reason(f"{stop.detail}, and a person ended it there", answer))


def answered(
    loop_run: RunWithQuestions, number: int, sentence: str, item: Iteration, feedback: str
) -> dict[str, Json]:
    """Return the verdict of a person in place of a judge that could not decide on a sentence of `until`.

    Raises:
        Suspended: until a person has given the verdict.
    """
    request: dict[str, Json] = {
        "kind": "verdict", "loop": loop_run.path, "iteration": item.number, "sentence": sentence,
        "output": item.output, "feedback": feedback,
    }  # fmt: skip
    detail = f"{loop_run.loop.name}: the judge could not decide on iteration {item.number}: is this true: {sentence}"
    # Not below the effect of the sentence, which has ended.
    ctx = loop_run.ctx.child(f"{loop_run.path}/{item.number}")
    given = _verdict_of(ctx.ask(f"verdict-{number}", request, detail))
    return {
        "passed": given.get("passed"),
        "feedback": str(given.get("reason", "")),
        "votes": [{"person": dict(given)}],
    }


def _verdict_of(answer: Json) -> Mapping[str, Json]:
    # The rule of a dry run can be true or false.
    return answer if isinstance(answer, Mapping) else {"passed": answer is True}


def settled(loop_run: RunWithQuestions, output: Json, evaluation: Evaluation) -> Evaluation:
    """Return the evaluation of an output that its evaluator could not judge, as the loop's policy says.

    Raises:
        Suspended: until a person has given the verdict.
    """
    policy = loop_run.loop.undecided
    if policy.then not in ("pause", "reject") or not policy.due(loop_run.history):
        return evaluation
    if policy.then == "reject":
        return policy.rejected(evaluation)
    # Before the iteration is recorded, so that its record has the verdict of the person.
    number = len(loop_run.history) + 1
    request: dict[str, Json] = {
        "kind": "verdict", "loop": loop_run.path, "iteration": number,
        "output": output, "feedback": evaluation.feedback,
    }  # fmt: skip
    detail = f"{loop_run.loop.name}: the judge could not decide on iteration {number}: is it good?"
    answer = loop_run.ctx.child(f"{loop_run.path}/{number}").ask("verdict", request, detail)
    given = _verdict_of(answer)
    return Evaluation(
        given.get("score"),
        given.get("passed"),
        str(given.get("reason", "")),
        votes=(*evaluation.votes, {"person": dict(given)}),
    )


def _ask(
    loop_run: RunWithQuestions, name: str, request: dict[str, Json], detail: str
) -> Mapping[str, Json]:
    number = len(loop_run.history)
    request |= {"loop": loop_run.path, "iteration": number}
    ctx = loop_run.ctx.child(f"{loop_run.path}/{number}")
    answer = ctx.ask(name, request, f"{loop_run.loop.name}: {detail}: go on?")
    if isinstance(answer, Mapping):
        return {"approve": False, **answer}
    # The rule of a dry run can be true, false or the reason of a refusal.
    return {"approve": answer is True, "reason": answer if isinstance(answer, str) else ""}


def _with_reason(sentence: str, answer: Mapping[str, Json]) -> str:
    return f"{sentence}: {answer['reason']}" if answer.get("reason") else sentence
