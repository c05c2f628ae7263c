"""What a loop asks a person between its rounds and at its limit, and what the answer means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .codec import Json
from .conditions import CEILING
from .course import Course
from .records import Reason, Stop

__all__ = ["MOMENTS", "approved"]

MOMENTS = ("iteration", "limit")  # when a loop can ask, and the kind of the question
_LIMITS = (Reason.MAX_ITERATIONS, Reason.PHASE_LIMIT)


def approved(course: Course, stop: Stop | None) -> Stop | None:
    """Return how a loop that asks goes on after its latest record: None is another round.

    `stop` is what its conditions say; only a limit is open to a person, success never is.

    Raises:
        Suspended: until the question is answered.
    """
    asks = course.loop.approve
    if stop is None:
        return _another(course) if "iteration" in asks else None
    if stop.reason in _LIMITS and "limit" in asks and len(course.history) < CEILING:
        return _beyond(course, stop)
    return stop


def _another(course: Course) -> Stop | None:
    number = len(course.history)
    replay = course.run.replay
    if replay is not None and f"{course.path}/{number}/limit" in replay.answers:
        return None  # who raised the limit has seen this round
    score = course.history[-1].score
    told = "" if score is None else f", score {score:.3g}"
    said = _ask(course, "approve", {"kind": "iteration"}, f"iteration {number} is done{told}")
    if said["approve"]:
        return None
    if said.get("accept"):
        return Stop(Reason.ACCEPTED, f"a person accepted the output of iteration {number}")
    return Stop(Reason.STOPPED, _because(f"a person ended it after iteration {number}", said))


def _beyond(course: Course, stop: Stop) -> Stop:
    number, best = len(course.history), course.history.best
    told = stop.detail
    if best is not None and best.score is not None:
        told += f", best {best.score:.3g}"
    request = {"kind": "limit", "more": min(course.loop.limit, CEILING - number)}
    # Who approves raises the limit: then the loop does not come here again before that.
    said = _ask(course, "limit", request, told)
    return replace(stop, detail=_because(f"{stop.detail}, and a person ended it there", said))


def _ask(course: Course, name: str, request: dict[str, Json], told: str) -> Any:
    number = len(course.history)
    request |= {"loop": course.path, "iteration": number}
    ctx = course.ctx.child(f"{course.path}/{number}")
    return ctx.ask(name, request, f"{course.loop.name}: {told}: go on?")


def _because(sentence: str, said: dict[str, Json]) -> str:
    return f"{sentence}: {said['reason']}" if said.get("reason") else sentence
