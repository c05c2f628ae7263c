"""The target of `{% for loop in … %}`, which Jinja refuses because it keeps that name for its counter, is renamed.

Jinja's parser accepts the tag, only its code generator does not, so the tree is the right place; quoted and raw text
cannot be mistaken for it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import nodes

from .values import LOOP_FIELDS

__all__ = ["rename_loops"]

COUNTER_FIELDS = LOOP_FIELDS | {"cycle"}


def rename_loops(tree: nodes.Template) -> list[str]:
    """Rename the target of each `{% for loop in … %}`, in place, and return a note for each.

    If the body uses `loop` as the item, as a whole or by a field that Jinja's counter does not
    have, then all its uses mean the item; otherwise they go on meaning the counter. In the body
    of another loop inside, the fields of the counter are those of that loop's own.
    """
    taken = {name.name for name in tree.find_all(nodes.Name)}
    notes = []
    for loop in list(tree.find_all(nodes.For)):
        targets = list(_stored_loops(loop.target))
        if not targets:
            continue
        new = "loop_item"
        while new in taken:
            new += "_"
        taken.add(new)
        uses = [*_uses(loop.test), *(use for part in loop.body for use in _uses(part))]
        as_item = any(not use.counter for use in uses) or bool(loop.test and _uses(loop.test))
        for use in uses:
            if as_item and not (use.counter and use.nested):
                use.name.name = new
        for name in targets:
            name.name = new
        meaning = "the item" if as_item else "that counter"
        notes.append(
            f"line {loop.lineno}: 'loop' is the name of Jinja's own counter, so the variable of "
            f"{{% for loop in … %}} was renamed; inside, 'loop' means {meaning}"
        )
    return notes


@dataclass(frozen=True, slots=True)
class _Use:
    """A use of the name `loop`: perhaps as the counter, perhaps in the body of a loop inside."""

    name: nodes.Name
    counter: bool
    nested: bool


def _uses(node: nodes.Node | None, nested: bool = False) -> list[_Use]:
    if node is None:
        return []
    if isinstance(node, nodes.Name):
        return [_Use(node, False, nested)] if node.name == "loop" and node.ctx == "load" else []
    if isinstance(node, nodes.Getattr | nodes.Getitem) and isinstance(node.node, nodes.Name):
        key = node.attr if isinstance(node, nodes.Getattr) else getattr(node.arg, "value", None)
        uses = _uses(node.node, nested)
        rest = [] if isinstance(node, nodes.Getattr) else _uses(node.arg, nested)
        return [_Use(use.name, key in COUNTER_FIELDS, nested) for use in uses] + rest
    if isinstance(node, nodes.For):
        inner = [] if list(_stored_loops(node.target)) else [(node.test, nested)]
        inner += [(part, True) for part in node.body] if inner else []
        parts = [(node.iter, nested), *((part, nested) for part in node.else_), *inner]
    elif isinstance(node, nodes.With) and any(True for t in node.targets for _ in _stored_loops(t)):
        parts = [(value, nested) for value in node.values]
    else:
        parts = [(child, nested) for child in node.iter_child_nodes()]
    return [use for part, deep in parts for use in _uses(part, deep)]


def _stored_loops(target: nodes.Node) -> Iterator[nodes.Name]:
    """Find the names `loop` that an assignment binds."""
    names = [target] if isinstance(target, nodes.Name) else target.find_all(nodes.Name)
    return (name for name in names if name.name == "loop" and name.ctx != "load")
