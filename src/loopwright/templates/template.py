"""Templates and expressions, compiled once and rendered with values any number of times.

1. Rendering has one pass: template syntax inside a value is never interpreted.
2. A template reaches plain data and the functions of the call, and nothing else (see `values.py`).
3. Every name that a template needs is known before it is rendered (`names`, `check`).
4. Limits count work, not time (see `limits.py`).

A document is checked far more often than all its templates run, so code is generated when a template
first runs (`Program`), and a template of names alone is also parsed then (`Paths`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import TypeVar

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.parser import Parser

from ..errors import LoopwrightError, Problem, nearest
from .limits import SOURCE_CHARS, TOKENS, Meter, TemplateError
from .sandbox import METER, SANDBOX, Helper, numbers
from .syntax import checked, rename_loops, rewrite
from .values import Missing, to_data, to_text

__all__ = [
    "TOO_COMPLEX",
    "Expression",
    "Paths",
    "Program",
    "Rendered",
    "Template",
    "compile_expression",
    "compile_template",
    "names_of",
    "paths_in",
    "paths_of",
]


# Below the depth that is refused; a longer path is parsed at once.
_PATH = re.compile(r"\s*([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*){0,6})\s*", re.ASCII)
# Keywords in the place of a name, and names that are reserved or predefined.
_WORDS = frozenset({
    "and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True", "False", "None",
    "recursive", "self", "super", "caller", "varargs", "kwargs", "range",
})  # fmt: skip
_MAX_PATHS = TOKENS // 32  # each has at most 17 tokens with the text after it


@dataclass(frozen=True, slots=True)
class Paths:
    """The names that a template of names alone needs, and the members of each.

    Without this shortcut, benchmarks/documents.py "check of 500 loops" takes 34 % longer and "check of
    500 values" 120 %.
    """

    names: frozenset[str]
    members: dict[str, frozenset[str]]


def paths_in(source: str) -> Paths | None:
    """Return the names in a template that is text with dotted names, else None."""
    if "{%" in source or "{#" in source:
        return None
    pieces = source.split("{{")[1:]
    paths = []
    for piece in pieces if len(pieces) <= _MAX_PATHS else ():
        path = _PATH.match(piece)
        if path is None or path[1] in _WORDS or not piece.startswith("}}", path.end()):
            return None
        paths.append(path)
    return _joined(paths) if len(paths) == len(pieces) else None


def paths_of(source: str) -> Paths | None:
    """Return the name of an expression that is a dotted name, else None."""
    path = _PATH.fullmatch(source)
    return None if path is None or path[1] in _WORDS else _joined([path])


def _joined(paths: list[re.Match[str]]) -> Paths:
    members: dict[str, set[str]] = {}
    for path in paths:
        first = path[2][1:].partition(".")[0]
        if first:
            members.setdefault(path[1], set()).add(first)
    names = frozenset(path[1] for path in paths)
    return Paths(names, {name: frozenset(of) for name, of in members.items()})


TOO_COMPLEX = "nested too deep, or too complex, to compile"

# Python certainly compiles the code of a tree below this depth.
_FLAT = 12
_BRANCHES = 20
_BINDING = (nodes.For, nodes.Assign, nodes.AssignBlock, nodes.With)


class Program:
    """The code of a template, generated from its checked tree when it is first needed.

    With code for each template at once, benchmarks/documents.py "check of 500 prompts" takes three
    times as long.
    """

    __slots__ = ("_code", "_tree")

    def __init__(self, tree: Callable[[], nodes.Template]) -> None:
        self._tree = tree
        self._code: jinja2.Template | None = None

    @property
    def code(self) -> jinja2.Template:
        """The code.

        Raises:
            TemplateError: if Python cannot compile it.
        """
        if self._code is None:
            self.make()
        assert self._code is not None
        return self._code

    def make(self) -> frozenset[str]:
        """Generate the code, and return the names that it looks up."""
        try:
            tree = self._tree()
            tree.set_environment(SANDBOX)
            generator = _Generator()
            generator.visit(tree)
            code = compile(generator.source.getvalue(), "<template>", "exec")
        except (RecursionError, MemoryError, SyntaxError, ValueError):
            raise TemplateError(TOO_COMPLEX) from None
        self._code = jinja2.Template.from_code(SANDBOX, code, {})
        return frozenset(generator.names)


def names_of(
    program: Program, parts: Sequence[nodes.Node], depth: int, helpers: Collection[str]
) -> frozenset[str]:
    """Return the names that a program looks up; `parts` are the nodes of its tree before rewriting.

    If the tree binds names, the code is generated, because only the code separates bound and free names.
    """
    binds = any(isinstance(part, _BINDING) for part in parts)
    branches = any(isinstance(part, nodes.If) and len(part.elif_) > _BRANCHES for part in parts)
    if binds or branches or depth > _FLAT:
        return program.make()
    names = {part.name for part in parts if isinstance(part, nodes.Name) and part.ctx == "load"}
    names |= {
        part.name for part in parts if isinstance(part, nodes.Filter) and part.name in helpers
    }
    return frozenset(names)


class _Generator(CodeGenerator):
    """Jinja's code generator, which also records the names that the code looks up.

    It does not optimise, because constant folding would run operations without a meter.
    """

    def __init__(self) -> None:
        self.source = StringIO()
        super().__init__(SANDBOX, None, None, stream=self.source, optimized=False)
        self.names: set[str] = set()

    def enter_frame(self, frame: Frame) -> None:
        super().enter_frame(frame)
        self.names |= {name for how, name in frame.symbols.loads.values() if how == "resolve"}


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

        `{{ a.b }} {{ a["c d"] }} {{ a.e | default("") }}` needs `b` and `c d` of `a`.
        """
        return self._members.get(name, frozenset()) if name in self.names else frozenset()

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

    def _run(
        self, values: Mapping[str, object], helpers: Helpers | None
    ) -> tuple[Meter, jinja2.runtime.Context]:
        helpers = helpers or {}
        meter = Meter(strict=self.strict, known=[*values, *helpers])
        variables: dict[str, object] = {METER: meter, "range": RANGE}
        for name in (*self.names, "range"):
            if name in values:
                variables[name] = to_data(meter, values[name], name)
            elif name in helpers:
                variables[name] = Helper(name, helpers[name])
        return meter, self._program.code.new_context(variables, shared=True)

    def _chunks(self, context: jinja2.runtime.Context) -> Iterator[str]:
        """Run the program; every exception becomes a TemplateError with its line."""
        try:
            yield from self._program.code.root_render_func(context)
        except TemplateError as error:
            raise _placed(self.source, error, self._line_of(error)) from error.__cause__
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
                line = self._program.code.get_corresponding_lineno(trace.tb_lineno)
            trace = trace.tb_next
        return line


@dataclass(frozen=True, slots=True)
class Template(_Compiled):
    """A compiled template; `compile_template` returns one.

    `names` are the top-level names in it, including functions. `notes` describe changes to it.

    Example:

    >>> sorted(compile_template("{{ a.b }} {{ c }}").names)
    ['a', 'c']
    """

    def render(self, values: Mapping[str, object], helpers: Helpers | None = None) -> str:
        """Return the text for these values; a value hides a helper of the same name.

        Raises:
            TemplateError: for an undefined name, a value that is not plain data, or an exceeded limit.
        """
        return self.render_noting(values, helpers).text

    def render_noting(
        self, values: Mapping[str, object], helpers: Helpers | None = None
    ) -> Rendered:
        """Return the text, and in lenient mode a warning for each undefined value.

        Raises:
            TemplateError: as `render`; in lenient mode an undefined value is not an error.
        """
        meter, context = self._run(values, helpers)
        text = "".join(self._chunks(context))
        return Rendered(text, tuple(meter.warnings))


@dataclass(frozen=True, slots=True)
class Expression(_Compiled):
    """A compiled expression, such as the condition of an `if:`; `compile_expression` returns one.

    Example:

    >>> compile_expression("a + 1").evaluate({"a": 1})
    2
    """

    def evaluate(self, values: Mapping[str, object], helpers: Helpers | None = None) -> object:
        """Return the value: plain data, or a TemplateValue of the input.

        Raises:
            TemplateError: as for a template; in lenient mode an undefined result is "".
        """
        meter, context = self._run(values, helpers)
        "".join(self._chunks(context))
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
        source: the template; at most 200,000 characters.
        strict: an undefined value is an error; otherwise its expression is "" and adds a warning.
            Default True.
        helpers: names of functions that may also be used as filters; default none.

    Returns:
        The compiled template, which can be rendered any number of times.

    Raises:
        TemplateError: for a source that cannot be compiled, with its line and, if known, column.

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
        source: the expression; at most 200,000 characters.
        strict: an undefined value is an error; otherwise the result is "". Default True.
        helpers: names of functions that may also be used as filters; default none.

    Returns:
        The compiled expression, which can be evaluated any number of times.

    Raises:
        TemplateError: for a source that cannot be compiled, with its line and, if known, column.

    Example:

    >>> compile_expression("score >= 0.8 and errors | length == 0").evaluate(
    ...     {"score": 0.9, "errors": []})
    True
    """
    return _compile(Expression, source, strict, helpers)


def _compile(kind: type[C], source: str, strict: bool, helpers: Collection[str]) -> C:
    is_template = issubclass(kind, Template)
    parse = _parse_template if is_template else _parse_expression
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
    """Iterate over the expressions that the source tests for being defined or gives a default."""
    for node in parts:
        if isinstance(node, nodes.Test | nodes.Filter) and node.name in _TESTS:
            yield node.node


def _is_method(node: nodes.Node) -> bool:
    """Whether a called member is a method of a mapping and not a field."""
    return isinstance(node, nodes.Getattr) and node.attr in _METHODS


def _members(parts: list[nodes.Node]) -> dict[str, frozenset[str]]:
    """Return the members of each name that have no default and are not tested."""
    tested = {id(node) for node in _tested(parts)}
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
        if isinstance(of, nodes.Name) and isinstance(key, str) and id(use) not in tested:
            members.setdefault(of.name, set()).add(key)
    return {name: frozenset(keys) for name, keys in members.items()}


def _syntax_error(source: str, error: jinja2.TemplateSyntaxError) -> TemplateError:
    message = (error.message or "cannot be read").rstrip(".")
    quoted = re.findall(r"'([^']+)'", message)
    if message.startswith("Encountered unknown tag") and quoted:
        message = f"unknown tag {quoted[0]!r}{nearest(quoted[0], TAGS)}"
    elif "loop variable in for-loop" in message:
        message = "'loop' cannot be set inside {% for %}; choose another name"
    column = _column(source, error.lineno, quoted[-1] if quoted else "")
    return TemplateError(message[:1].lower() + message[1:], line=error.lineno, column=column)


def _placed(source: str, error: TemplateError, line: int = 0) -> TemplateError:
    """Add the line and column to an error; the column is that of the word that it quotes."""
    quoted = re.search(r"'([^']+)'", error.reason)
    line = error.line or line
    column = _column(source, line, quoted[1] if quoted else "") if line else 0
    return TemplateError(error.reason, line=line, column=error.column or column)


def _column(source: str, line: int, word: str) -> int:
    """Return the column of a word in a line, else of the first tag, else 0."""
    lines = source.split("\n")
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    tag = re.search(r"\{[{%]", text)
    found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text[tag.start() :] if tag else text)
    if word and found:
        return found.start() + (tag.start() if tag else 0) + 1
    return tag.start() + 1 if tag else 0


def _place_of(source: str, name: str) -> tuple[int, int]:
    """Return line and column of the first use of a name inside a tag, else anywhere."""
    word = re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)")
    for tag in re.finditer(r"\{[{%].*?[}%]\}", source, re.DOTALL):
        found = word.search(source, tag.start(), tag.end())
        if found:
            break
    else:
        found = word.search(source)
    before = source[: found.start() if found else 0]
    return before.count("\n") + 1, len(before) - before.rfind("\n")
