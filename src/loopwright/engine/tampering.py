"""When a loop ends because its iterations change the check that judges them."""

from __future__ import annotations

from ..records import Evaluation, History, Reason, Stop

__all__ = ["FORGED_IN_A_ROW", "tampering_stop"]

FORGED_IN_A_ROW = 3


def tampering_stop(history: History) -> Stop | None:
    """Return the stop of a loop whose latest iteration tampered for the last time that is allowed."""
    last = history.last
    evaluation = None if last is None else last.evaluation
    tampered = None if evaluation is None else evaluation.tampered
    if last is None or tampered is None:
        return None
    if tampered.action == "stop":
        return Stop(Reason.TAMPERED, f"iteration {last.number}: {tampered.why}")
    latest = history[-FORGED_IN_A_ROW:] if len(history) >= FORGED_IN_A_ROW else ()
    if latest and all(_forged(item.evaluation) for item in latest):
        return Stop(
            Reason.TAMPERED,
            f"the results of {FORGED_IN_A_ROW} iterations in a row are forged, the last one because "
            f"{tampered.why}",
        )
    return None


def _forged(evaluation: Evaluation | None) -> bool:
    tampered = None if evaluation is None else evaluation.tampered
    return tampered is not None and tampered.kind == "forged"
