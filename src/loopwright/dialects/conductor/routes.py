"""The routes between agents as nested loops.

Routes may lead anywhere. Agents that a route leads back from are a loop with one first agent, its head; the rest is
a sequence with conditions. A route into the middle of a loop has no such form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Entries", "RoutedLoop", "Sequence_", "agents_in", "arranged"]


class Entries(Exception):
    """Routes lead to several agents of one loop from outside. `head` is its first agent, `other` another one."""

    def __init__(self, head: str, other: str, members: Sequence[str]) -> None:
        super().__init__(head, other)
        self.head, self.other, self.members = head, other, members


@dataclass(frozen=True)
class RoutedLoop:
    """A loop: its head, and its body in running order."""

    head: str
    body: tuple[str | RoutedLoop, ...]

    @property
    def name(self) -> str:
        """The name of the loop."""
        return f"{self.head}_loop"


Sequence_ = tuple[str | RoutedLoop, ...]


def agents_in(element: str | RoutedLoop) -> list[str]:
    """Return the agents of an element of a sequence."""
    if isinstance(element, str):
        return [element]
    return [name for inner in element.body for name in agents_in(inner)]


def arranged(names: Sequence[str], targets: Mapping[str, Iterable[str]], entry: str) -> Sequence_:
    """Return the agents that can be reached from `entry` in running order, with their loops.

    Args:
        names: all agents, in written order.
        targets: for each agent those to which its routes lead.
        entry: the first agent.

    Raises:
        Entries: for a route into the middle of a loop.

    Example:
        >>> arranged(["a", "b", "c"], {"a": ["b"], "b": ["a", "c"], "c": []}, "a")
        (RoutedLoop(head='a', body=('a', 'b')), 'c')
    """
    reached, remaining = {entry}, [entry]
    while remaining:
        for name in targets[remaining.pop()]:
            if name not in reached:
                reached.add(name)
                remaining.append(name)
    inner = {n: [t for t in targets[n] if t in reached] for n in names if n in reached}
    return _arranged(inner, {entry})


def _arranged(targets: Mapping[str, list[str]], entries: set[str]) -> Sequence_:
    groups = _groups(targets)
    of = {name: i for i, group in enumerate(groups) for name in group}
    elements: dict[int, str | RoutedLoop] = {}
    for i, group in enumerate(groups):
        if len(group) == 1 and group[0] not in targets[group[0]]:
            elements[i] = group[0]
            continue
        outside = {t for n, ts in targets.items() if of[n] != i for t in ts if of[t] == i}
        heads = [name for name in targets if name in outside | (entries & set(group))]
        if len(heads) > 1:
            raise Entries(heads[0], heads[1], group)
        head = heads[0]
        inside = {
            n: [t for t in targets[n] if of[t] == i and t != head] for n in targets if of[n] == i
        }
        elements[i] = RoutedLoop(head, _arranged(inside, {head}))
    # In written order, where the routes permit it.
    needs = {
        i: {of[n] for n in targets if of[n] != i and any(of[t] == i for t in targets[n])}
        for i in elements
    }
    waiting, order = list(dict.fromkeys(of[n] for n in targets)), list[int]()
    while waiting:
        following = next(i for i in waiting if needs[i] <= set(order))
        waiting.remove(following)
        order.append(following)
    return tuple(elements[i] for i in order)


def _groups(targets: Mapping[str, list[str]]) -> list[list[str]]:
    """Return the agents in groups, of which each can be reached from all others of the group."""
    reach = {name: {name} for name in targets}
    # RoutedLoop unions, which need no recursion: documents have few agents.
    changed = True
    while changed:
        changed = False
        for name, ts in targets.items():
            before = len(reach[name])
            for target in ts:
                reach[name] |= reach[target]
            changed = changed or len(reach[name]) != before
    groups: list[list[str]] = []
    for name in targets:
        group = next((g for g in groups if name in reach[g[0]] and g[0] in reach[name]), None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    return groups
