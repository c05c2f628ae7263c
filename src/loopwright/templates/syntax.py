"""The passes over the syntax tree of a template: check, rename, rewrite.

1. Check: every node outside `ALLOWED`, deep nesting, unknown filters and tests, wrong arguments and
   reserved names are refused.
2. Rename: Jinja reserves `loop` for its counter and refuses `{% for loop in … %}` when it generates code.
   Renaming the variable in the tree cannot change quoted or raw text.
3. Rewrite: operations become calls of the sandbox, as the table in `sandbox.py` lists them.
"""

from __future__ import annotations

import inspect
import math
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from ..errors import nearest
from .filters import FILTERS, METHODS
from .predicates import PREDICATES
from .values import DEPTH, LOOP_DEPTH, LOOP_FIELDS, NUMBER_BITS, TemplateError

__all__ = ["checked", "rename_loops", "rewrite"]


COUNTER_FIELDS = LOOP_FIELDS | {"cycle"}


def rename_loops(parts: Collection[nodes.Node]) -> list[str]:
    """Rename the target of each `{% for loop in … %}` among the nodes, and return a note for each.

    If the body uses `loop` itself or a field that Jinja's counter does not have, all uses mean the item;
    otherwise they mean the counter. In the body of an inner loop, fields of the counter belong to the
    counter of the inner loop.
    """
    notes: list[str] = []
    loops = [part for part in parts if isinstance(part, nodes.For)]
    for loop in loops:
        targets = list(_stored_loops(loop.target))
        if not targets:
            continue
        taken = {part.name for part in parts if isinstance(part, nodes.Name)}
        # A new name that the template does not use itself.
        new = "loop_item"
        while new in taken:
            new += "_"
        uses = [*_uses(loop.test), *(use for part in loop.body for use in _uses(part))]
        # One use that only makes sense for the item decides for all of them.
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
    """A use of the name `loop`: whether it can be the counter, and whether it is in an inner loop."""

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
    """Iterate over the names `loop` that an assignment binds."""
    names = [target] if isinstance(target, nodes.Name) else target.find_all(nodes.Name)
    return (name for name in names if name.name == "loop" and name.ctx != "load")


ALLOWED = frozenset({
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Const, nodes.Name, nodes.Getattr,
    nodes.Getitem, nodes.Slice, nodes.Call, nodes.Filter, nodes.Test, nodes.Compare, nodes.Operand,
    nodes.And, nodes.Or, nodes.Not, nodes.UnaryExpr, nodes.BinExpr, nodes.Concat, nodes.CondExpr,
    nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Keyword, nodes.If, nodes.For,
    nodes.Assign, nodes.AssignBlock, nodes.With,
})  # fmt: skip
# Jinja binds these names to its own objects, or uses them in tags that are refused.
RESERVED = frozenset({"self", "super", "caller", "varargs", "kwargs"})
TAG_TYPES = {
    nodes.Macro: "macro", nodes.CallBlock: "call", nodes.Block: "block", nodes.Extends: "extends",
    nodes.Include: "include", nodes.Import: "import", nodes.FromImport: "from",
    nodes.FilterBlock: "filter",
}  # fmt: skip


def checked(tree: nodes.Template, helpers: Collection[str] = ()) -> tuple[list[nodes.Node], int]:
    """Check a template's tree; return its nodes and its depth.

    `helpers` may also be used as filters. The check goes level by level and does not recurse.

    Raises:
        TemplateError: for a refused node, with its line.
    """
    parts: list[nodes.Node] = []
    level: list[tuple[nodes.Node, int]] = [(tree, 0)]
    for depth in range(DEPTH):
        below: list[tuple[nodes.Node, int]] = []
        for node, loops in level:
            _check_node(node)
            _check_operation(node, helpers)
            parts.append(node)
            if type(node) is nodes.For:
                loops += 1
                # Four nested loops over 100 items are already above the limit of iterations.
                if loops > LOOP_DEPTH:
                    problem = f"loops nested more than {LOOP_DEPTH} deep"
                    raise TemplateError(problem, line=node.lineno)
            below += [(child, loops) for child in _children(node)]
        if not below:
            return parts, depth
        level = below
    raise TemplateError(f"nested more than {DEPTH} deep", line=level[0][0].lineno)


def _children(node: nodes.Node) -> list[nodes.Node]:
    children: list[nodes.Node] = []
    for name in node.fields:
        value = getattr(node, name, None)
        if type(value) is list:
            children += [item for item in value if isinstance(item, nodes.Node)]
        elif isinstance(value, nodes.Node):
            children.append(value)
    return children


def rewrite(tree: nodes.Template, helpers: Collection[str] = ()) -> nodes.Template:
    """Rewrite a checked tree in place, for the same `helpers`."""
    rewritten: nodes.Template = _Rewriter(helpers).visit(tree)
    return rewritten


def _check_node(node: nodes.Node) -> None:
    line = node.lineno
    if type(node) is nodes.TemplateData:
        return
    # An allow-list: new kinds of nodes in a later Jinja stay refused.
    if type(node) not in ALLOWED and not isinstance(node, nodes.BinExpr | nodes.UnaryExpr):
        tag = next((tag for type_, tag in TAG_TYPES.items() if isinstance(node, type_)), None)
        what = f"{{% {tag} %}}" if tag else type(node).__name__
        raise TemplateError(f"{what} is not available in templates", line=line)
    if isinstance(node, nodes.Name | nodes.Keyword):
        name = node.name if isinstance(node, nodes.Name) else node.key
        # Python normalises identifiers, so another spelling could reach a reserved name.
        same = name.isascii() or unicodedata.normalize("NFKC", name) == name
        if name in RESERVED or not same:
            raise TemplateError(f"the name {name!r} cannot be used in templates", line=line)
    if isinstance(node, nodes.Const):
        _check_constant(node.value, line)
    # A recursive loop has no bound that could be checked before it runs.
    if isinstance(node, nodes.For) and node.recursive:
        raise TemplateError("recursive loops are not available in templates", line=line)
    if isinstance(node, nodes.Call | nodes.Filter | nodes.Test):
        # The number of such arguments is unknown before the render.
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise TemplateError("write the arguments out: * and ** are not available", line=line)
        keys = [keyword.key for keyword in node.kwargs]
        # Python's compiler would report this with a SyntaxError without a line.
        if len(set(keys)) < len(keys):
            raise TemplateError("an argument is repeated", line=line)


def _check_constant(value: object, line: int) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise TemplateError("a number is too large", line=line)
    if isinstance(value, int) and value.bit_length() > NUMBER_BITS:
        raise TemplateError("a number is too large", line=line)
    # The generated code is UTF-8, which has no lone surrogates.
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            problem = "text with half a character (a lone surrogate)"
            raise TemplateError(problem, line=line) from None


def _check_operation(node: nodes.Node, helpers: Collection[str]) -> None:
    """Refuse an unknown method, filter or test, and arguments that it does not take."""
    if isinstance(node, nodes.Call):
        _check_call(node)
    elif isinstance(node, nodes.Filter):
        if node.node is None:
            raise TemplateError("filters on a block are not available", line=node.lineno)
        if node.name in helpers:
            return
        if node.name not in FILTERS:
            hint = nearest(node.name, [*FILTERS, *helpers])
            raise TemplateError(f"there is no filter {node.name!r}{hint}", line=node.lineno)
        _check_arguments(f"filter {node.name!r}", FILTERS[node.name], node)
    elif isinstance(node, nodes.Test):
        if node.name not in PREDICATES:
            problem = f"there is no test {node.name!r}{nearest(node.name, PREDICATES)}"
            raise TemplateError(problem, line=node.lineno)
        _check_arguments(f"test {node.name!r}", PREDICATES[node.name], node)


def _check_call(node: nodes.Call) -> None:
    called = node.node
    if isinstance(called, nodes.Name):
        return
    name = called.attr if isinstance(called, nodes.Getattr) else None
    if name == "cycle":
        return
    if name is None or name not in METHODS:
        what = f"the method {name!r}" if name else "this call"
        problem = f"{what} is not available in templates{nearest(str(name), METHODS)}"
        raise TemplateError(problem, line=node.lineno)
    _check_arguments(f"method {name!r}", METHODS[name], node)


def _check_arguments(
    what: str, function: Callable[..., object], node: nodes.Call | nodes.Filter | nodes.Test
) -> None:
    signature = inspect.signature(function)
    keywords = {str(keyword.key): None for keyword in node.kwargs}
    try:
        signature.bind(None, None, *node.args, **keywords)
    except TypeError:
        accepted = list(signature.parameters.values())[2:]
        plain = (parameter.replace(annotation=inspect.Parameter.empty) for parameter in accepted)
        parameters = ", ".join(map(str, plain))
        problem = f"the {what} takes ({parameters}), not these arguments"
        raise TemplateError(problem, line=node.lineno) from None


class _Rewriter(NodeTransformer):
    def __init__(self, helpers: Collection[str]) -> None:
        self.helpers = helpers

    def get_visitor(self, node: nodes.Node) -> Callable[..., object] | None:
        """Return the method for a type of node; without one, only the children are visited."""
        return getattr(self, f"on_{type(node).__name__.lower()}", None)

    def on_concat(self, node: nodes.Concat) -> nodes.Node:
        first, *others = node.nodes
        return self._operation("~", node, first, others)

    def on_compare(self, node: nodes.Compare) -> nodes.Node:
        operands: list[nodes.Expr] = []
        for operand in node.ops:
            operands += [nodes.Const(operand.op, lineno=node.lineno), operand.expr]
        return self._operation("<>", node, node.expr, operands)

    def on_getitem(self, node: nodes.Getitem) -> nodes.Node:
        if not isinstance(node.arg, nodes.Slice):
            return self.generic_visit(node)
        none = nodes.Const(None, lineno=node.lineno)
        cut = node.arg
        bounds = [cut.start or none, cut.stop or none, cut.step or none]
        return self._operation("[:]", node, node.node, bounds)

    def on_tuple(self, node: nodes.Tuple) -> nodes.Node:
        """Replace a tuple by a list, because the time to hash nested tuples as keys has no limit."""
        self.generic_visit(node)
        if node.ctx != "load":
            return node
        return nodes.List(node.items, lineno=node.lineno)

    def on_call(self, node: nodes.Call) -> nodes.Node:
        called = node.node
        if isinstance(called, nodes.Name):
            return self._operation("()", node, called, node.args, node.kwargs)
        assert isinstance(called, nodes.Getattr)
        if called.attr == "cycle":
            return self._operation(".cycle", node, called.node, node.args)
        return self._operation(f".{called.attr}", node, called.node, node.args, node.kwargs)

    def on_filter(self, node: nodes.Filter) -> nodes.Node:
        # `x | helper` is a call of the function, so it needs the same checks.
        if node.name in self.helpers and node.node is not None:
            called = nodes.Name(node.name, "load", lineno=node.lineno)
            return self._operation("()", node, called, [node.node, *node.args], node.kwargs)
        return self.generic_visit(node)

    def on_for(self, node: nodes.For) -> nodes.Node:
        cost = [nodes.Const(cost, lineno=node.lineno) for cost in _cost(node)]
        self.generic_visit(node)
        node.iter = self._filter("for", node.lineno, node.iter, cost)
        if node.test is not None:
            node.test = self._filter("?", node.lineno, node.test)
        return node

    def on_if(self, node: nodes.If) -> nodes.Node:
        self.generic_visit(node)
        node.test = self._filter("?", node.lineno, node.test)
        return node

    def on_condexpr(self, node: nodes.CondExpr) -> nodes.Node:
        self.generic_visit(node)
        node.test = self._filter("?", node.lineno, node.test)
        node.expr2 = node.expr2 or nodes.Const("", lineno=node.lineno)
        return node

    def on_not(self, node: nodes.Not) -> nodes.Node:
        self.generic_visit(node)
        node.node = self._filter("?", node.lineno, node.node)
        return node

    def on_and(self, node: nodes.And) -> nodes.Node:
        self.generic_visit(node)
        node.left = self._filter("?", node.lineno, node.left)
        return node

    on_or = on_and

    def _operation(
        self, name: str, node: nodes.Node, value: nodes.Expr, args: list[nodes.Expr],
        kwargs: Sequence[nodes.Helper] | None = None,
    ) -> nodes.Node:  # fmt: skip
        """Return the call of an operation, with its operands rewritten."""
        call = self._filter(name, node.lineno, value, args, kwargs)
        return self.generic_visit(call)

    def _filter(
        self, name: str, line: int, value: nodes.Node, args: Sequence[nodes.Expr] | None = None,
        kwargs: Sequence[nodes.Helper] | None = None,
    ) -> nodes.Filter:  # fmt: skip
        fields = (value, name, args or [], kwargs or [], None, None)  # Jinja takes no keywords here
        return nodes.Filter(*fields, lineno=line)


def _cost(loop: nodes.For) -> tuple[int, int]:
    """Return the cost of one iteration of a loop: nodes to evaluate and characters of fixed text.

    An inner loop counts its own iterations; only its list counts here.
    """
    count = chars = 0
    todo = [*loop.body, *([loop.test] if loop.test else [])]
    while todo:
        node = todo.pop()
        count += 1
        if isinstance(node, nodes.TemplateData):
            chars += len(node.data)
        todo += [node.iter, *node.else_] if isinstance(node, nodes.For) else node.iter_child_nodes()
    return count, chars
