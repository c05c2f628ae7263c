"""Templates and expressions, compiled once and rendered with values any number of times.

1. Rendering has one pass: template syntax inside a value is never interpreted.
2. A template reaches plain data and the functions of the call, and nothing else (see `values.py`).
3. Every name that a template needs can be read before it is rendered (`names`, `check`).
4. Limits count work, not time (see `values.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import jinja2
from jinja2 import nodes
from jinja2.parser import Parser

from ..errors import LoopwrightError, Problem, nearest
from .program import TOO_COMPLEX, Program, names_of, paths_in, paths_of
from .sandbox import METER, SANDBOX, Helper, numbers
from .syntax import checked, rename_loops, rewrite
from .values import SOURCE_CHARS, Meter, Missing, TemplateError, to_data, to_text

__all__ = ["Expression", "Rendered", "Template", "compile_expression", "compile_template"]


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
                variables[name] = to_data(meter, values[name], name)
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
        optional = frozenset(n.name for n in _tested(parts) if isinstance(n, nodes.Name))
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


def _is_method(node: nodes.Node) -> bool:
    """Whether a called member is a method of a mapping and not a field."""
    return isinstance(node, nodes.Getattr) and node.attr in _METHODS


def _members(parts: list[nodes.Node]) -> dict[str, frozenset[str]]:
    """Return the members of each name that have no default and are not tested."""
    tested = {id(node) for node in _tested(parts)}
    # `item.items()` calls a method, and does not need a field of this name.
    tested |= {
        id(node.node) for node in parts if isinstance(node, nodes.Call) and _is_method(node.node)
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


def _owner(node: nodes.Node) -> str:
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
