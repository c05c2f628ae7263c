"""What a loop asks a person between its rounds and at its limit, and what the answer means."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from ..conditions import CEILING
from ..records import History, Reason, Stop
from ..records.codec import Json
from .context import Context
from .loop_declaration import LoopDeclaration
from .run_state import Run

__all__ = ["MOMENTS", "approved"]

MOMENTS = ("iteration", "limit")  # when a loop can ask, and the kind of the question
_LIMITS = (Reason.MAX_ITERATIONS, Reason.PHASE_LIMIT)


class AskingRun(Protocol):
    """What a question needs of the run of a loop; see `LoopRun`."""

    loop: LoopDeclaration
    history: History
    path: str
    run_state: Run
    ctx: Context


def approved(loop_run: AskingRun, stop: Stop | None) -> Stop | None:
    """Return how a loop that asks goes on after its latest record: None is another iteration.

    `stop` is what its conditions say; only a limit is open to a person, success never is.

    Raises:
        Suspended: until the question is answered.
    """
    asks = loop_run.loop.approve
    if stop is None:
        return _another(loop_run) if "iteration" in asks else None
    if stop.reason in _LIMITS and "limit" in asks and len(loop_run.history) < CEILING:
        return _beyond(loop_run, stop)
    return stop


def _another(loop_run: AskingRun) -> Stop | None:
    number = len(loop_run.history)
    replay = loop_run.run_state.replay
    if replay is not None and f"{loop_run.path}/{number}/limit" in replay.answers:
        return None  # who raised the limit has seen this round
    score = loop_run.history[-1].score
    told = "" if score is None else f", score {score:.3g}"
    said = _ask(loop_run, "approve", {"kind": "iteration"}, f"iteration {number} is done{told}")
    if said["approve"]:
        return None
    if said.get("accept"):
        return Stop(Reason.ACCEPTED, f"a person accepted the output of iteration {number}")
    return Stop(Reason.STOPPED, _because(f"a person ended it after iteration {number}", said))


def _beyond(loop_run: AskingRun, stop: Stop) -> Stop:
    number, best = len(loop_run.history), loop_run.history.best
    told = stop.detail
    if best is not None and best.score is not None:
        told += f", best {best.score:.3g}"
    request = {"kind": "limit", "more": min(loop_run.loop.limit, CEILING - number)}
    # Who approves raises the limit: then the loop does not come here again before that.
    said = _ask(loop_run, "limit", request, told)
    return replace(stop, detail=_because(f"{stop.detail}, and a person ended it there", said))


def _ask(loop_run: AskingRun, name: str, request: dict[str, Json], told: str) -> Json:
    number = len(loop_run.history)
    request |= {"loop": loop_run.path, "iteration": number}
    ctx = loop_run.ctx.child(f"{loop_run.path}/{number}")
    return ctx.ask(name, request, f"{loop_run.loop.name}: {told}: go on?")


def _because(sentence: str, said: dict[str, Json]) -> str:
    return f"{sentence}: {said['reason']}" if said.get("reason") else sentence
