"""Templates and expressions: compiled once, then rendered with values as often as needed.

1. Rendering is single-pass: what a value holds is never read as a template.
2. A template sees plain data and the functions it is given, and nothing else (see `values.py`).
3. Every name a template needs is known before it is rendered (`names`, `check`).
4. Limits count work, not time (see `limits.py`).

Templates that only fill in names: what they need is plain to see, so Jinja reads them when they first run.

Most prompts of a document are text with `{{ input }}` and `{{ loop.last.feedback }}` in it. Reading one in full takes
longer than all else that is done with its step before anything runs.

The code of a template: made from its checked tree when it is first run.

Documents are read far more often than all their templates run, and making code is half of what reading one costs. It is
made at once where only that tells which names are looked up, or whether it can be made at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from io import StringIO
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.parser import Parser

from ..errors import LoopwrightError, Problem, nearest
from .limits import SOURCE_CHARS, TOKENS, Meter, TemplateError
from .sandbox import METER, SANDBOX, Helper, numbers
from .syntax import checked, needs_rewriting, rename_loops, rewrite
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


# Shorter than what Jinja's depth and ours refuse; longer ones are read in full.
_PATH = re.compile(r"\s*([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*){0,6})\s*", re.ASCII)
# Words with a meaning of their own where a name may stand, and names that are refused or have a value here.
_WORDS = frozenset({
    "and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True", "False", "None",
    "recursive", "self", "super", "caller", "varargs", "kwargs", "range",
})  # fmt: skip
_MOST = TOKENS // 32  # expressions, each of at most 17 parts with the text after it


@dataclass(frozen=True, slots=True)
class Paths:
    """The names that a template fills in, and the members of each that it needs."""

    names: frozenset[str]
    members: dict[str, frozenset[str]]


def paths_in(source: str) -> Paths | None:
    """Return what a template needs if it is text with names in it, dotted or not; else None."""
    if "{%" in source or "{#" in source:
        return None
    pieces = source.split("{{")[1:]
    found = []
    for piece in pieces if len(pieces) <= _MOST else ():
        path = _PATH.match(piece)
        if path is None or path[1] in _WORDS or not piece.startswith("}}", path.end()):
            return None
        found.append(path)
    return _joined(found) if len(found) == len(pieces) else None


def paths_of(source: str) -> Paths | None:
    """Return what an expression needs if it is a name, dotted or not; else None."""
    path = _PATH.fullmatch(source)
    return None if path is None or path[1] in _WORDS else _joined([path])


def _joined(found: list[re.Match[str]]) -> Paths:
    members: dict[str, set[str]] = {}
    for path in found:
        first = path[2][1:].partition(".")[0]
        if first:
            members.setdefault(path[1], set()).add(first)
    names = frozenset(path[1] for path in found)
    return Paths(names, {name: frozenset(of) for name, of in members.items()})


TOO_COMPLEX = "nested too deep, or too complex, to compile"

# Of a tree as flat as this, Python compiles the code: its own limits are far beyond.
_FLAT = 12
_BRANCHES = 20
_BINDING = (nodes.For, nodes.Assign, nodes.AssignBlock, nodes.With)


class Program:
    """The code of a template, or what makes the checked tree that it is made of."""

    __slots__ = ("_made", "_tree")

    def __init__(self, tree: Callable[[], nodes.Template]) -> None:
        self._tree = tree
        self._made: jinja2.Template | None = None

    @property
    def code(self) -> jinja2.Template:
        """The code.

        Raises:
            TemplateError: Python cannot compile it.
        """
        if self._made is None:
            self.make()
        assert self._made is not None
        return self._made

    def make(self) -> frozenset[str]:
        """Make the code now, and return the names that it looks up."""
        try:
            tree = self._tree()
            tree.set_environment(SANDBOX)
            generator = _Generator()
            generator.visit(tree)
            code = compile(generator.source.getvalue(), "<template>", "exec")
        except (RecursionError, MemoryError, SyntaxError, ValueError):
            raise TemplateError(TOO_COMPLEX) from None
        self._made = jinja2.Template.from_code(SANDBOX, code, {})
        return frozenset(generator.names)


def names_of(
    program: Program, parts: Sequence[nodes.Node], depth: int, helpers: Collection[str]
) -> frozenset[str]:
    """Return the names that a program looks up; `parts` are the nodes of its tree before it was rewritten.

    Where something in the tree binds names, it is the code that tells them apart.
    """
    binds = any(isinstance(part, _BINDING) for part in parts)
    branches = any(isinstance(part, nodes.If) and len(part.elif_) > _BRANCHES for part in parts)
    if binds or branches or depth > _FLAT:
        return program.make()
    found = {part.name for part in parts if isinstance(part, nodes.Name) and part.ctx == "load"}
    found |= {
        part.name for part in parts if isinstance(part, nodes.Filter) and part.name in helpers
    }
    return frozenset(found)


class _Generator(CodeGenerator):
    """Jinja's code generator, which also notes the names that will be looked up.

    It calculates nothing while compiling, where no meter runs.
    """

    def __init__(self) -> None:
        self.source = StringIO()
        super().__init__(SANDBOX, None, None, stream=self.source, optimized=False)
        self.names: set[str] = set()

    def enter_frame(self, frame: Frame) -> None:
        super().enter_frame(frame)
        self.names |= {name for how, name in frame.symbols.loads.values() if how == "resolve"}


Helpers = Mapping[str, Callable[..., Any]]
RANGE = Helper("range", numbers)
RESULT = "result"
_SHORT = 2_000  # characters of a source that is worth remembering
TAGS = ("for", "if", "elif", "else", "endfor", "endif", "set", "endset", "with", "endwith", "raw")


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a template gave: its text, and what was undefined on the way (lenient mode only)."""

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
        """The names that must have a value: all but those that the source itself asks about."""
        return self.names - self._optional

    def members(self, name: str) -> frozenset[str]:
        """Return the members of a top-level name that the source needs, by constant names.

        `{{ a.b }} {{ a["c d"] }} {{ a.e | default("") }}` needs `b` and `c d` of `a`.
        """
        return self._members.get(name, frozenset()) if name in self.names else frozenset()

    def check(self, names: Collection[str]) -> list[Problem]:
        """Return a problem for each name the source uses that is not among `names`.

        Names that the source itself asks about (`is defined`, `default`) may be absent. The file
        of a problem is "template"; its line and column are those inside the source.
        """
        problems = []
        for name in self.names - self._optional - set(names):
            line, column = _place_of(self.source, name)
            message = f"{name!r} is not defined{nearest(name, names)}"
            problems.append(Problem("template", line, column, "", message))
        return sorted(problems, key=lambda problem: (problem.line, problem.column))

    def _run(
        self, values: Mapping[str, Any], helpers: Helpers | None
    ) -> tuple[Meter, jinja2.runtime.Context]:
        helpers = helpers or {}
        meter = Meter(strict=self.strict, known=[*values, *helpers])
        variables: dict[str, Any] = {METER: meter, "range": RANGE}
        for name in (*self.names, "range"):
            if name in values:
                variables[name] = to_data(meter, values[name], name)
            elif name in helpers:
                variables[name] = Helper(name, helpers[name])
        return meter, self._program.code.new_context(variables, shared=True)

    def _chunks(self, context: jinja2.runtime.Context) -> Iterator[str]:
        """Run the program; whatever it raises becomes a TemplateError with its line."""
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
        """Return the line of the source that was run when an error was raised."""
        line = 0 if "\n" in self.source else 1
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "<template>":
                line = self._program.code.get_corresponding_lineno(trace.tb_lineno)
            trace = trace.tb_next
        return line


@dataclass(frozen=True, slots=True)
class Template(_Compiled):
    """A compiled template; get one from `compile_template`.

    `names` are the top-level names it uses, functions included; `notes` say what was changed in it.
    """

    def render(self, values: Mapping[str, Any], helpers: Helpers | None = None) -> str:
        """Return the text for these values; a name among both is a value.

        Raises:
            TemplateError: something is undefined, a value is not plain data, a limit is passed.
        """
        return self.render_noting(values, helpers).text

    def render_noting(self, values: Mapping[str, Any], helpers: Helpers | None = None) -> Rendered:
        """Return the text and the warnings: what lenient mode left empty because it is undefined.

        Raises:
            TemplateError: as `render`; in lenient mode nothing undefined is an error.
        """
        meter, context = self._run(values, helpers)
        text = "".join(self._chunks(context))
        return Rendered(text, tuple(meter.warnings))


@dataclass(frozen=True, slots=True)
class Expression(_Compiled):
    """A compiled expression, like the condition of an `if:`; get one from `compile_expression`."""

    def evaluate(self, values: Mapping[str, Any], helpers: Helpers | None = None) -> Any:
        """Return the value: plain data, or a TemplateValue that was passed in.

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
    """Compile a template in the syntax of Jinja, without what reaches out of it.

    `strict`: what is undefined is an error; otherwise it makes its expression empty, with a
    warning. `helpers` are the names of functions that may also be written as filters.

    Raises:
        TemplateError: the source cannot be compiled; with line and, where known, column.
    """
    if len(source) > _SHORT:
        return Template(*_compile(source, strict, helpers, _parse_template, paths_in))
    return _template(source, strict, frozenset(helpers))


def compile_expression(
    source: str, *, strict: bool = True, helpers: Collection[str] = ()
) -> Expression:
    """Compile an expression, without braces around it; otherwise as `compile_template`.

    Raises:
        TemplateError: the source cannot be compiled.
    """
    if len(source) > _SHORT:
        return Expression(*_compile(source, strict, helpers, _parse_expression, paths_of))
    return _expression(source, strict, frozenset(helpers))


# What is compiled depends on its source alone, and many steps of a document share theirs.
@lru_cache(maxsize=512)
def _template(source: str, strict: bool, helpers: frozenset[str]) -> Template:
    return Template(*_compile(source, strict, helpers, _parse_template, paths_in))


@lru_cache(maxsize=512)
def _expression(source: str, strict: bool, helpers: frozenset[str]) -> Expression:
    return Expression(*_compile(source, strict, helpers, _parse_expression, paths_of))


def _compile(
    source: str,
    strict: bool,
    helpers: Collection[str],
    parse: Callable[[str], nodes.Template],
    simple: Callable[[str], Paths | None],
) -> tuple[Any, ...]:
    if len(source) > SOURCE_CHARS:
        problem = f"longer than {SOURCE_CHARS:,} characters (it has {len(source):,})"
        raise TemplateError(problem)
    if (paths := simple(source)) is not None:
        late = Program(lambda: parse(source))
        return source, paths.names, (), strict, frozenset(), late, paths.members
    try:
        tree = parse(source)
        parts, depth = checked(tree, helpers)
        notes = rename_loops(tree) if any(isinstance(part, nodes.For) for part in parts) else []
        members = _members(parts)
        optional = frozenset(n.name for n in _asked(parts) if isinstance(n, nodes.Name))
        optional |= frozenset(_set_by(tree.body))
        rewriting = needs_rewriting(parts)
        program = Program(lambda: rewrite(tree, helpers) if rewriting else tree)
        if parse is _parse_expression:  # which binds nothing but its result
            parts = [part for part in parts if not isinstance(part, nodes.Assign)]
        names = names_of(program, parts, depth, helpers)
    except jinja2.TemplateSyntaxError as error:
        raise _syntax_error(source, error) from None
    except TemplateError as error:
        raise _placed(source, error) from None
    except (RecursionError, MemoryError, SyntaxError, ValueError):
        raise TemplateError(TOO_COMPLEX) from None
    return source, names - {"range"}, tuple(notes), strict, optional, program, members


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


_ASKING = frozenset({"defined", "undefined", "default", "d"})
_METHODS = frozenset({"get", "items", "keys", "values"})


def _set_by(body: Iterable[nodes.Node]) -> Iterator[str]:
    """Iterate over the names that a template sets for what follows, if only under a condition."""
    for node in body:
        if isinstance(node, nodes.Assign | nodes.AssignBlock):
            yield from (n.name for n in node.target.find_all(nodes.Name))
            if isinstance(node.target, nodes.Name):
                yield node.target.name
        elif isinstance(node, nodes.If):
            yield from _set_by([*node.body, *node.elif_, *node.else_])


def _asked(parts: list[nodes.Node]) -> Iterator[nodes.Node | None]:
    """Iterate over what the source tests for being defined, or gives a default."""
    for node in parts:
        if isinstance(node, nodes.Test | nodes.Filter) and node.name in _ASKING:
            yield node.node


def _is_method(node: nodes.Node) -> bool:
    """Whether a called member is a method of a mapping, and so no field of it."""
    return isinstance(node, nodes.Getattr) and node.attr in _METHODS


def _members(parts: list[nodes.Node]) -> dict[str, frozenset[str]]:
    """Find the members of each name that have no default and are not asked about."""
    asked = {id(node) for node in _asked(parts)}
    asked |= {
        id(node.node) for node in parts if isinstance(node, nodes.Call) and _is_method(node.node)
    }
    uses: list[tuple[nodes.Expr, nodes.Node, Any]] = []
    for part in parts:
        if isinstance(part, nodes.Getattr):
            uses.append((part, part.node, part.attr))
        elif isinstance(part, nodes.Getitem):
            uses.append((part, part.node, getattr(part.arg, "value", None)))
    found: dict[str, set[str]] = {}
    for use, of, key in uses:
        if isinstance(of, nodes.Name) and isinstance(key, str) and id(use) not in asked:
            found.setdefault(of.name, set()).add(key)
    return {name: frozenset(keys) for name, keys in found.items()}


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
    """Add to an error what is known of its place: the column is where the word it quotes stands."""
    quoted = re.search(r"'([^']+)'", error.reason)
    line = error.line or line
    column = _column(source, line, quoted[1] if quoted else "") if line else 0
    return TemplateError(error.reason, line=line, column=error.column or column)


def _column(source: str, line: int, word: str) -> int:
    """Return the column of a word, or else of the first tag, in a line; 0 if there is neither."""
    lines = source.split("\n")
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    tag = re.search(r"\{[{%]", text)
    found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text[tag.start() :] if tag else text)
    if word and found:
        return found.start() + (tag.start() if tag else 0) + 1
    return tag.start() + 1 if tag else 0


def _place_of(source: str, name: str) -> tuple[int, int]:
    """Return line and column of the first use of a name inside a tag, or else anywhere."""
    word = re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)")
    for tag in re.finditer(r"\{[{%].*?[}%]\}", source, re.DOTALL):
        found = word.search(source, tag.start(), tag.end())
        if found:
            break
    else:
        found = word.search(source)
    before = source[: found.start() if found else 0]
    return before.count("\n") + 1, len(before) - before.rfind("\n")
