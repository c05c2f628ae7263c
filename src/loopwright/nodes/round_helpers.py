"""Helpers of templates that tell of the rounds before, by the names of the loop-node dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .reading import fields, said
from .view import View

__all__ = ["OF_ROUNDS"]

_NOTHING = "Unknown"


def get_loop_number(view: View) -> int:
    """Return the number of the round."""
    return view.number


def has_past_loops(view: View) -> bool:
    """Tell whether a round came before."""
    return bool(view.past)


def get_past_loops(view: View) -> Any:
    """Return the entries of past rounds."""
    return view.past


def get_past_loops_metadata(view: View) -> Any:
    """Return the latest entry, with the latest lessons."""
    return view.metadata


def get_past_insights(view: View) -> Any:
    """Return what the round before found."""
    found = view.lessons[0].get("insights") if view.lessons else None
    return found or _last(view).get("synthesis_insights") or "No synthesis insights found"


def get_past_loop_data(view: View, key: Any = None) -> Any:
    """Return a field of the latest entry, or all of it as text."""
    last = _last(view)
    if not last:
        return "No past loops found"
    if key is None:
        return "\n".join(f"{name}: {said(value)}" for name, value in last.items())
    return last.get(said(key), f"No {said(key)} found")


def get_round_info(view: View) -> str:
    """Return the round as the latest entry calls it, or its number."""
    return said(_last(view).get("round", str(view.number)))


def get_score_threshold(view: View) -> Any:
    """Return the score that the loop wants."""
    return view.node.threshold if view.node is not None else 0.8


def get_loop_rounds(view: View) -> Any:
    """Return how many rounds are over."""
    if view.round is not None:
        return len(view.round.history)
    return next((o["loops_completed"] for o in _loops(view)), _NOTHING)


def get_final_score(view: View) -> Any:
    """Return the latest score."""
    if view.round is not None:
        return view.score if view.score != "" else _NOTHING
    found = next((o.get("final_score") for o in _loops(view)), None)
    return _NOTHING if found is None else found


def get_loop_status(view: View) -> str:
    """Return how far the loop is."""
    if view.round is not None:
        return "running"
    met = next((o.get("threshold_met") for o in _loops(view)), None)
    return "completed" if met is not False else "exhausted"


def get_loop_output(view: View, agent: Any = None, previous: Any = None) -> Any:
    """Return all that a loop gave."""
    if previous is not None:
        return fields(fields(previous).get(said(agent)))
    output = view.agents.get(said(agent))
    return output if isinstance(output, Mapping) else {}


def get_debate_evolution(view: View, *_: Any) -> str:
    """Return the scores of past rounds as a sentence."""
    history = view.round.history if view.round is not None else ()
    told = [
        f"Round {i.number}: Agreement {_NOTHING if i.score is None else f'{i.score:g}'}"
        for i in history
    ]
    return " -> ".join(told) or "First round of debate"


def format_loop_metadata(view: View, entries: Any = None, most: Any = 5) -> str:
    """Return entries as lines."""
    found = entries if isinstance(entries, list) else view.past
    count = most if isinstance(most, int) and most > 0 else 5
    lines = [
        f"Loop {number}: score={said(fields(entry).get('score')) or 'N/A'}, "
        f"status={said(fields(entry).get('status')) or 'completed'}"
        for number, entry in enumerate(found[-count:], 1)
    ]
    return "\n".join(lines) or "No previous loops"


def _last(view: View) -> Mapping[str, Any]:
    return fields(view.past[-1]) if view.past else {}


def _loops(view: View) -> Iterator[Mapping[str, Any]]:
    """Iterate over what loops before gave, the latest first."""
    for output in reversed(view.agents.values()):
        if isinstance(output, Mapping) and "loops_completed" in output:
            yield output


OF_ROUNDS: Mapping[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        get_loop_number, has_past_loops, get_past_loops, get_past_loops_metadata, get_past_insights, get_past_loop_data,
        get_round_info, get_score_threshold, get_loop_rounds, get_final_score, get_loop_status, get_loop_output,
        get_debate_evolution, format_loop_metadata,
    )
}  # fmt: skip
