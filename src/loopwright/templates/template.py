"""Templates and expressions, compiled once and rendered with values any number of times.

1. Rendering has one pass: template syntax inside a value is never interpreted.
2. A template reaches plain data and the functions of the call, and nothing else (see `values`).
3. Every name that a template needs can be read before it is rendered (`names`, `check`).
4. Limits count work, not time (see `values`).

Compiling passes over the syntax tree three times:

1. Check: every node outside `ALLOWED`, deep nesting, unknown filters and tests, wrong arguments and
   reserved names are refused.
2. Rename: Jinja reserves `loop` for its counter and refuses `{% for loop in … %}` when it generates code.
   Renaming the variable in the tree cannot change quoted or raw text.
3. Rewrite: operations become calls of the sandbox, as the table in `sandbox` lists them.
"""

from __future__ import annotations

import inspect
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import jinja2
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer

from ..errors import LoopwrightError, Problem, TemplateError, nearest
from .filters import FILTERS, METHODS, PREDICATES
from .sandbox import (
    METER,
    SANDBOX,
    TOO_COMPLEX,
    Helper,
    Program,
    names_of,
    numbers,
    paths_in,
    paths_of,
)
from .values import (
    DEPTH,
    LOOP_DEPTH,
    NUMBER_BITS,
    SOURCE_CHARS,
    Meter,
    Missing,
    to_data,
    to_text,
)
from .variables import COUNTER_FIELDS

__all__ = [
    "Expression",
    "Rendered",
    "Template",
    "checked",
    "compile_expression",
    "compile_template",
    "rename_loops",
    "rewrite",
]


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


Helpers = Mapping[str, Callable[..., object]]
RANGE = Helper("range", numbers)
RESULT = "result"
C = TypeVar("C", "Template", "Expression")
TAGS = ("for", "if", "elif", "else", "endfor", "endif", "set", "endset", "with", "endwith", "raw")


@dataclass(frozen=True, slots=True)
class Rendered:
    """The result of a template: its text, and a warning for each undefined value (lenient mode only).

    Example:
        >>> compile_template("Hi {{ name }}", strict=False).render_noting({}).warnings
        ("'name' is not defined",)
    """

    text: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Compiled:
    source: str
    names: frozenset[str]
    notes: tuple[str, ...]
    strict: bool
    _optional: frozenset[str] = field(repr=False)
    _program: Program = field(repr=False, compare=False)
    _members: Mapping[str, frozenset[str]] = field(repr=False, compare=False)

    @property
    def required(self) -> frozenset[str]:
        """The names that need a value: all except those that the source tests or gives a default."""
        return self.names - self._optional

    @property
    def optional(self) -> frozenset[str]:
        """The names, and the members as `a.b`, that the source tests or gives a default."""
        return frozenset(name for name in self._optional if name.partition(".")[0] in self.names)

    def members(self, name: str) -> frozenset[str]:
        """Return the members of a top-level name that the source needs.

        `{{ a.b }} {{ a["c d"] }} {{ a.e | default("") }}` needs `b` and `c d` of `a`. The members of
        `a.b` are those of the name `a.b`.
        """
        used = name.partition(".")[0] in self.names
        return self._members.get(name, frozenset()) if used else frozenset()

    def check(self, names: Collection[str]) -> list[Problem]:
        """Return a problem for each name in the source that is not among `names`.

        Names that the source tests (`is defined`) or gives a default may be absent. The file of a
        problem is "template"; line and column count from 1 inside the source.
        """
        problems = []
        for name in self.names - self._optional - set(names):
            line, column = _place_of(self.source, name)
            message = f"{name!r} is not defined{nearest(name, names)}"
            problems.append(Problem("template", line, column, "", message))
        return sorted(problems, key=lambda problem: (problem.line, problem.column))

    @property
    def _code(self) -> jinja2.Template:
        program = self._program
        if program.code is None:
            program.make()
        assert program.code is not None
        return program.code

    def _run(
        self, values: Mapping[str, object], helpers: Helpers | None
    ) -> tuple[Meter, jinja2.runtime.Context]:
        helpers = helpers or {}
        meter = Meter(strict=self.strict, defined=[*values, *helpers])
        # Only the names that the template uses are copied: values may be large.
        variables: dict[str, object] = {METER: meter, "range": RANGE}
        for name in (*self.names, "range"):
            if name in values:
                of = values[name]
                variables[name] = of if isinstance(of, Helper) else to_data(meter, of, name)
            elif name in helpers:
                variables[name] = Helper(name, helpers[name])
        return meter, self._code.new_context(variables, shared=True)

    def _chunks(self, context: jinja2.runtime.Context) -> Iterator[str]:
        """Run the program; every exception becomes a TemplateError with its line."""
        try:
            yield from self._code.root_render_func(context)
        except TemplateError as error:
            raise _placed(self.source, error, self._line_of(error)) from error.__cause__
        # Errors of helper functions have their own classes.
        except LoopwrightError:
            raise
        except RecursionError:
            raise TemplateError("values nested too deep") from None
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise TemplateError(reason, line=self._line_of(error)) from error

    def _line_of(self, error: Exception) -> int:
        """Return the line of the source that raised an error."""
        line = 0 if "\n" in self.source else 1
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "<template>":
                line = self._code.get_corresponding_lineno(trace.tb_lineno)
            trace = trace.tb_next
        return line


@dataclass(frozen=True, slots=True)
class Template(_Compiled):
    """A compiled template. `compile_template` returns one.

    `names` are its top-level names, including functions. `notes` describe changes to it.

    Example:
        >>> sorted(compile_template("{{ a.b }} {{ c }}").names)
        ['a', 'c']
    """

    def render(self, values: Mapping[str, object], helpers: Helpers | None = None) -> str:
        """Return the text for these values; a value hides a helper of the same name.

        Raises:
            TemplateError: For an undefined name, a value that is not plain data, or an exceeded limit.
        """
        return self.render_noting(values, helpers).text

    def render_noting(
        self, values: Mapping[str, object], helpers: Helpers | None = None
    ) -> Rendered:
        """Return the text, and in lenient mode a warning for each undefined value.

        Raises:
            TemplateError: As `render`. In lenient mode an undefined value is not an error.
        """
        meter, context = self._run(values, helpers)
        # Rendered completely before the warnings are read, which arise during rendering.
        text = "".join(self._chunks(context))
        return Rendered(text, tuple(meter.warnings))


@dataclass(frozen=True, slots=True)
class Expression(_Compiled):
    """A compiled expression, such as the condition of an `if:`. `compile_expression` returns one.

    Example:
        >>> compile_expression("a + 1").evaluate({"a": 1})
        2
    """

    def evaluate(self, values: Mapping[str, object], helpers: Helpers | None = None) -> object:
        """Return the value: plain data, or a TemplateValue of the input.

        Raises:
            TemplateError: As for a template. In lenient mode an undefined result is "".
        """
        meter, context = self._run(values, helpers)
        "".join(self._chunks(context))
        # The expression was compiled as an assignment to this name.
        result = context.vars[RESULT]
        try:
            return (
                to_text(meter, result)
                if isinstance(result, Missing)
                else to_data(meter, result, "the result")
            )
        except TemplateError as error:
            raise _placed(self.source, error, 1) from None


def compile_template(
    source: str, *, strict: bool = True, helpers: Collection[str] = ()
) -> Template:
    """Compile a template in the syntax of Jinja, without access to the outside.

    Args:
        source: The template, at most 200,000 characters.
        strict: Whether an undefined value is an error. Otherwise its expression is "" and adds a warning.
            Default: True.
        helpers: Names of functions that can also be used as filters. Default: none.

    Returns:
        The compiled template, which can be rendered any number of times.

    Raises:
        TemplateError: For a source that cannot be compiled, with its line and, if possible, its column.

    Example:
        >>> compile_template("Hello {{ name | upper }}").render({"name": "Ada"})
        'Hello ADA'
    """
    return _compile(Template, source, strict, helpers)


def compile_expression(
    source: str, *, strict: bool = True, helpers: Collection[str] = ()
) -> Expression:
    """Compile an expression without braces around it, such as the condition of an `if:`.

    Args:
        source: The expression, at most 200,000 characters.
        strict: Whether an undefined value is an error. Otherwise the result is "". Default: True.
        helpers: Names of functions that can also be used as filters. Default: none.

    Returns:
        The compiled expression, which can be evaluated any number of times.

    Raises:
        TemplateError: For a source that cannot be compiled, with its line and, if possible, its column.

    Example:
        >>> compile_expression("score >= 0.8 and errors | length == 0").evaluate(
        ...     {"score": 0.9, "errors": []})
        True
    """
    return _compile(Expression, source, strict, helpers)


def _compile(kind: type[C], source: str, strict: bool, helpers: Collection[str]) -> C:
    is_template = issubclass(kind, Template)
    parse = _parse_template if is_template else _parse_expression
    # Before the parser, which would read the complete text.
    if len(source) > SOURCE_CHARS:
        problem = f"longer than {SOURCE_CHARS:,} characters (it has {len(source):,})"
        raise TemplateError(problem)
    if (paths := paths_in(source) if is_template else paths_of(source)) is not None:
        return kind(
            source, paths.names, (), strict, _optional=frozenset(),
            _program=Program(lambda: parse(source)), _members=paths.members,
        )  # fmt: skip
    try:
        tree = parse(source)
        parts, depth = checked(tree, helpers)
        notes = rename_loops(parts)
        members = _members(parts)
        optional = frozenset(_owner(node) for node in _tested(parts)) - {""}
        # A name that the template may set itself needs no value.
        optional |= frozenset(_set_by(tree.body))
        program = Program(lambda: rewrite(tree, helpers))
        if not is_template:  # an expression binds only its result
            parts = [part for part in parts if not isinstance(part, nodes.Assign)]
        names = names_of(program, parts, depth, helpers)
    except jinja2.TemplateSyntaxError as error:
        raise _syntax_error(source, error) from None
    except TemplateError as error:
        raise _placed(source, error) from None
    except (RecursionError, MemoryError, SyntaxError, ValueError):
        raise TemplateError(TOO_COMPLEX) from None
    return kind(
        source, names - {"range"}, tuple(notes), strict, _optional=optional, _program=program,
        _members=members,
    )  # fmt: skip


def _parse_template(source: str) -> nodes.Template:
    return nodes.Template(Parser(SANDBOX, source).subparse(), lineno=1)


def _parse_expression(source: str) -> nodes.Template:
    parser = Parser(SANDBOX, source, state="variable")
    expression = parser.parse_expression()
    # `a b` would otherwise be read as `a`.
    if not parser.stream.eos:
        rest = parser.stream.current
        raise jinja2.TemplateSyntaxError(f"unexpected {str(rest.value)!r}", rest.lineno)
    target = nodes.Name(RESULT, "store", lineno=1)
    return nodes.Template([nodes.Assign(target, expression, lineno=1)], lineno=1)


_TESTS = frozenset({"defined", "undefined", "default", "d"})
_METHODS = frozenset({"get", "items", "keys", "values"})


def _set_by(body: Iterable[nodes.Node]) -> Iterator[str]:
    """Iterate over the names that a template sets, also under a condition."""
    for node in body:
        if isinstance(node, nodes.Assign | nodes.AssignBlock):
            yield from (n.name for n in node.target.find_all(nodes.Name))
            if isinstance(node.target, nodes.Name):
                yield node.target.name
        elif isinstance(node, nodes.If):
            yield from _set_by([*node.body, *node.elif_, *node.else_])


def _tested(parts: list[nodes.Node]) -> Iterator[nodes.Node | None]:
    """Iterate over the expressions that the source tests with `is defined` or that have a default."""
    for node in parts:
        if isinstance(node, nodes.Test | nodes.Filter) and node.name in _TESTS:
            yield node.node


def _members(parts: list[nodes.Node]) -> dict[str, frozenset[str]]:
    """Return the members of each name that have no default and are not tested."""
    tested = {id(node) for node in _tested(parts)}
    # `item.items()` calls a method, and does not need a field of this name.
    tested |= {
        id(node.node)
        for node in parts
        if isinstance(node, nodes.Call)
        and isinstance(node.node, nodes.Getattr)
        and node.node.attr in _METHODS
    }
    uses: list[tuple[nodes.Expr, nodes.Node, object]] = []
    for part in parts:
        if isinstance(part, nodes.Getattr):
            uses.append((part, part.node, part.attr))
        elif isinstance(part, nodes.Getitem):
            uses.append((part, part.node, getattr(part.arg, "value", None)))
    members: dict[str, set[str]] = {}
    for use, of, key in uses:
        if isinstance(key, str) and id(use) not in tested and (owner := _owner(of)):
            members.setdefault(owner, set()).add(key)
    return {name: frozenset(keys) for name, keys in members.items()}


def _owner(node: nodes.Node | None) -> str:
    """Return a name, or a name and its member as `a.b`; "" for another expression."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name):
        return f"{node.node.name}.{node.attr}"
    return ""


# Messages of the parser at the end of a template, with the signs that begin and end the open part.
_UNCLOSED = {
    "unexpected end of template, expected 'end of print statement'": ("{{", "}}"),
    "unexpected end of template, expected 'end of statement block'": ("{%", "%}"),
}


def _syntax_error(source: str, error: jinja2.TemplateSyntaxError) -> TemplateError:
    message = (error.message or "cannot be read").rstrip(".")
    quoted = re.findall(r"'([^']+)'", message)
    if message.startswith("Encountered unknown tag") and quoted:
        message = f"unknown tag {quoted[0]!r}{nearest(quoted[0], TAGS)}"
    elif message in _UNCLOSED:
        opening, closing = _UNCLOSED[message]
        # The end of the template is where the parser stopped; the author looks for the beginning.
        start = source.rfind(opening)
        line = source.count("\n", 0, start) + 1
        column = start - source.rfind("\n", 0, start)
        reason = f"{opening} is not closed; close it with {closing}"
        return TemplateError(reason, line=line, column=column)
    elif "loop variable in for-loop" in message:
        message = "'loop' cannot be set inside {% for %}; choose another name"
    column = _column(source, error.lineno, quoted[-1] if quoted else "")
    return TemplateError(message[:1].lower() + message[1:], line=error.lineno, column=column)


def _placed(source: str, error: TemplateError, line: int = 0) -> TemplateError:
    """Add the line and column to an error. The column is the position of the word that the error quotes."""
    quoted = re.search(r"'([^']+)'", error.reason)
    line = error.line or line
    column = _column(source, line, quoted[1] if quoted else "") if line else 0
    return TemplateError(error.reason, line=line, column=error.column or column)


def _column(source: str, line: int, word: str) -> int:
    """Return the column of a word in a line, else of the first tag, else 0."""
    lines = source.split("\n")
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    tag = re.search(r"\{[{%]", text)
    match = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text[tag.start() :] if tag else text)
    if word and match:
        return match.start() + (tag.start() if tag else 0) + 1
    return tag.start() + 1 if tag else 0


def _place_of(source: str, name: str) -> tuple[int, int]:
    """Return line and column of the first use of a name inside a tag, otherwise in the complete text."""
    word = re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)")
    for tag in re.finditer(r"\{[{%].*?[}%]\}", source, re.DOTALL):
        match = word.search(source, tag.start(), tag.end())
        if match:
            break
    else:
        match = word.search(source)
    before = source[: match.start() if match else 0]
    return before.count("\n") + 1, len(before) - before.rfind("\n")
