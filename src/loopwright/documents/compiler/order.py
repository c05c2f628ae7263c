"""What comes before what among the steps of a document."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema.document import Action, Document, StepSpec

__all__ = ["given_needs", "holds_loops", "is_loop", "needs_of", "running_order"]

Path_ = tuple[str | int, ...]


def is_loop(spec: Action) -> bool:
    """Whether it is a loop, a list or an agent."""
    return any(one is not None for one in (spec.loop, spec.each, spec.phased, spec.reasoning))


def holds_loops(spec: Action) -> bool:
    """Whether a loop may have ended where a step has: itself, or one of those that it runs at once or in turn."""
    if is_loop(spec):
        return True
    return any(holds_loops(inner) for inner in (*(spec.parallel or ()), *(spec.fallback or ())))


def running_order(specs: list[StepSpec]) -> list[int]:
    """Return the order in which steps can run: as written, moved later by needs; a circle stays as written."""
    done: set[str] = set()
    names = {spec.name for spec in specs}
    left = list(range(len(specs)))
    order: list[int] = []
    while left:
        ready = next(
            (i for i in left if all(n in done or n not in names for n in specs[i].needs)), left[0]
        )
        order.append(ready)
        done.add(specs[ready].name)
        left.remove(ready)
    return order


def given_needs(specs: Sequence[StepSpec]) -> dict[str, list[str]]:
    """Return what each step says it needs, without names that are no steps of these."""
    names = {spec.name for spec in specs}
    return {spec.name: [n for n in spec.needs if n in names] for spec in specs}


def needs_of(
    document: Document, used: Sequence[tuple[Path_, frozenset[str]]]
) -> dict[str, list[str]]:
    """Return what each step needs; of several at once, also the steps before it whose output it names."""
    needs = given_needs(document.steps)
    if document.at_once == 1:
        return needs
    before: list[str] = []
    for i in running_order(document.steps):
        name = document.steps[i].name
        named = frozenset().union(*(n for path, n in used if path[:2] == ("steps", i)))
        plain = {given.removeprefix("steps.").removeprefix("loops.") for given in named}
        needs[name] += [other for other in before if other in plain and other not in needs[name]]
        before.append(name)
    return needs
