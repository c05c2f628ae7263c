"""The prompts of loop-node agents that bring their own."""

from __future__ import annotations

from collections.abc import Iterable

from .loop_nodes_fields import AgentSpec

__all__ = ["plan_validator", "structured", "validator"]

# Where a plan is looked for, if nothing says where it is.
_PLANNERS = (
    "graph_scout", "graphscout_planner", "graphscout_router", "path_proposer", "plan_proposer", "dynamic_router",
)  # fmt: skip


def validator(spec: AgentSpec) -> str:
    """Return what a loop validator is asked: about the work, with the task and the round before."""
    target = repr(spec.evaluation_target or "")
    said = (spec.custom_prompt or spec.prompt or "You judge the latest version of a work.").strip()
    return (
        f"{said}\n\nThe task:\n{{{{ get_input() }}}}\n\n"
        f"The work, in round {{{{ get_loop_number() }}}}:\n{{{{ to_validate({target}) }}}}\n"
        "{% if round_before("
        + target
        + ") %}\nThe round before:\n{{ round_before("
        + target
        + ") }}\n"
        "{% else %}\nThere is no round before: judge what compares with it by the work alone.\n{% endif %}"
    )


def plan_validator(spec: AgentSpec, known: Iterable[str]) -> str:
    """Return what a plan validator is asked: about the plan of an agent, or all that was said."""
    names = set(known)
    target = repr(spec.evaluation_target or next((p for p in _PLANNERS if p in names), ""))
    said = (
        spec.custom_prompt or spec.prompt or "You judge a plan before it is carried out."
    ).strip()
    return f"{said}\n\nThe task:\n{{{{ get_input() }}}}\n\nThe plan:\n{{{{ to_validate({target}) }}}}\n"


def structured(spec: AgentSpec) -> str:
    """Return what is asked of an agent that checks an answer and puts it into a structure."""
    said = spec.prompt or (
        "Check the answer below against the task.\n\nThe task:\n{{ get_input() }}\n\nThe answer:\n{{ to_validate() }}"
    )
    structure = spec.store_structure or "the facts of the answer as fields"
    return (
        f"{said.rstrip()}\n\nAnswer with JSON only: an object with response (a sentence), valid (true or false), "
        f"reason (a sentence) and memory_object ({structure.strip()})."
    )
