"""The environment and the generated code of templates: Jinja's sandbox with its own implementation of operations.

`rewrite` (in `template`) replaces each operation of a template by a call of a function in this module, so that
no other part of Python is reachable and every cost is counted:

=================================  =========================================================
in the template                    implementation
=================================  =========================================================
`a.b`, `a["b"]`                    `getattr`, `getitem` of the environment: fields of plain data only
`a + b`, `-a`                      `call_binop`, `call_unop` of the environment: bounded numbers and text
`a ~ b`, `a < b`, `a[1:]`, `f(x)`  the filters of `OPERATIONS`, whose names cannot be written
`a.upper()`                        a filter named ".upper", of `METHODS`
`{% for x in a %}`                 iterates over the result of the filter "for"
`{% if a %}`, `not a`              the truth of the result of the filter "?"
`{{ a }}`                          `_print`
=================================  =========================================================

A document is checked far more often than all its templates run, so code is generated when a template
first runs (`Program`), and a template of names alone is also parsed then (`Paths`).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import NoReturn

import jinja2
from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..errors import LoopwrightError, TemplateError
from ..records.codec import Json
from .filters import COMPARISONS, FILTERS, METHODS, PREDICATES, is_number, items_of
from .values import (
    ITEM,
    NUMBER_BITS,
    RANGE_ITEMS,
    REPEATED_ITEMS,
    TOKENS,
    Meter,
    Missing,
    find,
    kind,
    shown,
    size,
    to_data,
    to_text,
)
from .variables import TemplateValue

__all__ = [
    "METER",
    "OPERATIONS",
    "SANDBOX",
    "TOO_COMPLEX",
    "Helper",
    "Paths",
    "Program",
    "names_of",
    "paths_in",
    "paths_of",
]

# The variable that holds the meter of a render; no template can write this name.
METER = "~meter"


@dataclass(frozen=True, slots=True)
class Helper:
    """A function that a template can call but not otherwise use."""

    name: str
    function: Callable[..., object]


def meter_of(context: Context) -> Meter:
    """Return the meter of the render that a context belongs to."""
    meter: Meter = context.parent[METER]
    return meter


def _metered(
    function: Callable[..., object], *, takes_missing: bool = False
) -> Callable[..., object]:
    """Return a Jinja filter or test that counts its arguments and first refuses missing values."""

    @pass_context
    def apply(context: Context, value: object, /, *args: object, **kwargs: object) -> object:
        meter = meter_of(context)
        meter.read(ITEM)
        for argument in (*args, *kwargs.values()):
            if type(argument) is str:
                meter.read(len(argument))
            elif isinstance(argument, Missing) and not takes_missing:
                return _pass_on(meter, argument)
        if isinstance(value, Missing) and not takes_missing:
            return _pass_on(meter, value)
        return function(meter, value, *args, **kwargs)

    return apply


def _pass_on(meter: Meter, missing: Missing) -> Missing:
    """Report a missing value. In lenient mode the complete expression is then missing."""
    if meter.strict:
        meter.miss(missing.reason)
    return missing


def _join(meter: Meter, left: object, *others: object) -> str:
    """`left ~ other ~ …`"""
    parts = [to_text(meter, part) for part in (left, *others)]
    meter.make(sum(map(len, parts)))
    return "".join(parts)


def _compare(meter: Meter, left: object, *rest: object) -> bool:
    """`left < other <= …`; `rest` alternates between names of comparisons and operands."""
    # `a < b < c` evaluates each operand once, as in Python.
    for name, right in zip(map(str, rest[::2]), rest[1::2], strict=True):
        for side in (left, right):
            if isinstance(side, Missing):
                meter.miss(side.reason)
                return False
        if not COMPARISONS[name](meter, left, right):
            return False
        left = right
    return True


def _slice(meter: Meter, value: object, start: Json, stop: Json, step: Json) -> object:
    """`value[start:stop:step]`"""
    value = value.text if isinstance(value, TemplateValue) else value
    if not isinstance(value, str | list):
        raise TemplateError(f"only text and lists can be sliced with [:], not {kind(value)}")
    if not all(part is None or isinstance(part, int) for part in (start, stop, step)) or step == 0:
        raise TemplateError("the numbers in [:] must be integers, and the step not 0")
    # The size is counted before the slice is created.
    count = len(range(*slice(start, stop, step).indices(len(value))))
    meter.make(count * (1 if isinstance(value, str) else ITEM))
    return value[start:stop:step]


def _truth(meter: Meter, value: object) -> object:
    """Return a value for a condition; a missing one is an error, in lenient mode false."""
    if isinstance(value, Missing):
        if meter.strict:
            meter.miss(value.reason)
        return None
    return value


def _items(meter: Meter, value: object, nodes: int, chars: int) -> Iterable[object]:
    """Return the items of a `for`, with the cost of all iterations counted."""
    if isinstance(value, Missing):
        meter.miss(value.reason)
        return []
    items = value if isinstance(value, list | str) else None
    if isinstance(value, dict):
        items = items_of(meter, value, "for")
    if items is None:
        raise TemplateError(f"for needs a list, a mapping or text, got {kind(value)}")
    meter.loop(len(items), nodes, chars)
    return items


def _call(meter: Meter, helper: object, /, *args: object, **kwargs: object) -> object:
    """`helper(...)`; the result is copied to plain data."""
    if isinstance(helper, Missing):
        return _pass_on(meter, helper)
    if not isinstance(helper, Helper):
        raise TemplateError(
            f"{kind(helper)} cannot be called; only the functions of this template can"
        )
    # Functions receive plain data only, so they cannot pass objects of the sandbox on.
    positional = [_argument(meter, arg) for arg in args]
    named = {key: _argument(meter, arg) for key, arg in kwargs.items()}
    try:
        # A function of the template language or the caller, which may raise anything.
        result = helper.function(*positional, **named)
    except LoopwrightError:
        raise
    except Exception as error:
        problem = f"{helper.name}() failed: {type(error).__name__}: {error}"
        raise TemplateError(problem) from error
    # The cost of a function is unknown, so at least its result is counted.
    meter.read(size(result))
    return to_data(meter, result, f"{helper.name}()")


def _argument(meter: Meter, value: object) -> object:
    if isinstance(value, Missing):
        meter.miss(value.reason)
        return None
    if isinstance(value, Helper | LoopContext):
        raise TemplateError("a function or a loop cannot be an argument")
    return value


def numbers(*bounds: Json) -> list[int]:
    """`range(...)` in a template: at most 10,000 integers.

    Raises:
        TemplateError: for bounds that are not integers, a step of 0, or more than 10,000 numbers.
    """
    if not 1 <= len(bounds) <= 3 or not all(type(bound) is int for bound in bounds):
        raise TemplateError("range needs one to three integers")
    if len(bounds) == 3 and bounds[2] == 0:
        raise TemplateError("range needs a step that is not 0")
    span = range(*bounds)
    # Not len(), which fails for a range longer than a machine word.
    if span and (span[-1] - span[0]) // span.step + 1 > RANGE_ITEMS:
        raise TemplateError(f"range gives at most {RANGE_ITEMS:,} numbers")
    return list(span)


def _cycle(_meter: Meter, loop: object, *values: object) -> object:
    """`loop.cycle("odd", "even")`"""
    if not isinstance(loop, LoopContext) or not values:
        raise TemplateError("cycle() belongs to the 'loop' of {% for %}, and needs values")
    return values[loop.index0 % len(values)]


@pass_context
def _print(context: Context, value: object) -> str:
    meter = meter_of(context)
    meter.read(ITEM)
    text = to_text(meter, value)
    meter.write(len(text))
    return text


class TokenLimit(Extension):
    """Refuses a template with too many tokens to compile it in reasonable time."""

    def filter_stream(self, stream: TokenStream) -> Iterable[Token]:
        # Counted while the lexer reads, before a large tree exists.
        for count, token in enumerate(stream):
            if count >= TOKENS:
                raise TemplateError(f"more than {TOKENS:,} parts", line=token.lineno)
            yield token


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """An environment without globals or loader, in which values have fields and no attributes."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)
    intercepted_unops = frozenset(ImmutableSandboxedEnvironment.default_unop_table)

    def getattr(self, obj: object, attribute: str) -> object:
        return find(obj, attribute)

    def getitem(self, obj: object, argument: object) -> object:
        return find(obj, argument)

    def call(self, *_args: object, **_kwargs: object) -> NoReturn:
        """Refuse the call: every permitted call of a template is rewritten before it runs."""
        raise TemplateError("only the functions of this template can be called")

    def call_unop(self, context: Context, operator: str, arg: object) -> object:
        if isinstance(arg, Missing):
            return _pass_on(meter_of(context), arg)
        if not is_number(arg):
            raise TemplateError(f"{operator} needs a number, got {kind(arg)}")
        return -arg if operator == "-" else arg

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        meter = meter_of(context)
        meter.read(ITEM)
        for side in (left, right):
            if isinstance(side, Missing):
                return _pass_on(meter, side)
        if is_number(left) and is_number(right):
            return _calculate(operator, left, right)
        return _combine(meter, operator, left, right)


def _calculate(sign: str, left: float, right: float) -> object:
    """Calculate with two numbers; the result is a finite number of at most 256 bits."""
    # Before the calculation: the result of a power can be too large for the memory.
    if sign == "**" and abs(right) * _bits(left) > NUMBER_BITS * 4:
        raise TemplateError(f"{shown(left)} ** {shown(right)} is too large a number")
    try:
        result = ARITHMETIC[sign](left, right)
    except (ArithmeticError, ValueError) as error:
        raise TemplateError(f"{shown(left)} {sign} {shown(right)}: {error}") from None
    # (-1) ** 0.5 is complex in Python.
    if isinstance(result, complex) or (
        isinstance(result, int) and result.bit_length() > NUMBER_BITS
    ):
        raise TemplateError(f"{sign} gives a number that is too large, or not a number")
    return result


def _bits(number: float) -> float:
    if isinstance(number, int):
        return number.bit_length()
    return abs(math.log2(abs(number))) if number and math.isfinite(number) else 1


def _combine(meter: Meter, sign: str, left: object, right: object) -> object:
    """Concatenate texts or lists with +, or repeat one a limited number of times with *."""
    left = left.text if isinstance(left, TemplateValue) else left
    right = right.text if isinstance(right, TemplateValue) else right
    for kind_ in (str, list):
        if sign == "+" and isinstance(left, kind_) and isinstance(right, kind_):
            meter.make(size(left) + size(right))
            return left + right  # type: ignore[operator]
    if sign == "*" and isinstance(left, str | list) and type(right) is int:
        if max(right, 0) * len(left) > REPEATED_ITEMS:
            raise TemplateError(f"* repeats to at most {REPEATED_ITEMS:,} characters or items")
        meter.make(max(right, 0) * size(left))
        return left * right
    # `+` with text and a number is the most frequent mistake.
    hint = "; put text together with ~" if sign in "+%" else ""
    raise TemplateError(f"{sign} does not work on {kind(left)} and {kind(right)}{hint}")


ARITHMETIC: dict[str, Callable[[Json, Json], object]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow,
}  # fmt: skip

OPERATIONS: dict[str, Callable[..., object]] = {
    "~": _metered(_join, takes_missing=False),
    "<>": _metered(_compare, takes_missing=True),
    "[:]": _metered(_slice),
    "?": _metered(_truth, takes_missing=True),
    "for": _metered(_items, takes_missing=True),
    "()": _metered(_call, takes_missing=True),
    ".cycle": _metered(_cycle),
}


SANDBOX = TemplateEnvironment(
    extensions=[TokenLimit],
    undefined=Missing,
    finalize=_print,
    # A prompt is sent exactly as written.
    keep_trailing_newline=True,
    cache_size=0,  # compiled templates are cached by their steps
)
SANDBOX.globals.clear()  # Jinja's globals create objects with attributes
_TAKES_MISSING = {"default", "d", "defined", "undefined"}
SANDBOX.filters = OPERATIONS | {
    name: _metered(function, takes_missing=name in _TAKES_MISSING)
    for name, function in FILTERS.items()
}
SANDBOX.filters |= {f".{name}": _metered(method) for name, method in METHODS.items()}
SANDBOX.tests = {
    name: _metered(function, takes_missing=name in _TAKES_MISSING)
    for name, function in PREDICATES.items()
}


# At most 7 names, far below the depth that is refused. A longer path is parsed at once.
_PATH = re.compile(r"\s*([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*){0,6})\s*", re.ASCII)
# Keywords, and names that are reserved or predefined.
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
    # Tags and comments need the parser.
    if "{%" in source or "{#" in source:
        return None
    pieces = source.split("{{")[1:]
    paths = []
    for piece in pieces if len(pieces) <= _MAX_PATHS else ():
        path = _PATH.match(piece)
        # A template that is not simple after all is parsed completely.
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
        first, *rest = path[2][1:].split(".", 2)
        if first:
            members.setdefault(path[1], set()).add(first)
        if rest:
            members.setdefault(f"{path[1]}.{first}", set()).add(rest[0])
    names = frozenset(path[1] for path in paths)
    return Paths(names, {name: frozenset(of) for name, of in members.items()})


TOO_COMPLEX = "nested too deep, or too complex, to compile"

# Python can compile the code of every tree below this depth. Other trees are compiled at once, to report errors.
_FLAT = 12
_BRANCHES = 20
_BINDING = (nodes.For, nodes.Assign, nodes.AssignBlock, nodes.With)


class Program:
    """The code of a template, generated from its checked tree by `make` when it is first needed.

    With code for each template at once, benchmarks/documents.py "check of 500 prompts" takes three
    times as long.
    """

    __slots__ = ("_tree", "code")

    def __init__(self, tree: Callable[[], nodes.Template]) -> None:
        self._tree = tree
        self.code: jinja2.Template | None = None

    def make(self) -> frozenset[str]:
        """Generate the code, and return the names that it looks up.

        Raises:
            TemplateError: If Python cannot compile it.
        """
        try:
            tree = self._tree()
            tree.set_environment(SANDBOX)
            generator = _Generator()
            generator.visit(tree)
            code = compile(generator.source.getvalue(), "<template>", "exec")
        except (RecursionError, MemoryError, SyntaxError, ValueError):
            raise TemplateError(TOO_COMPLEX) from None
        self.code = jinja2.Template.from_code(SANDBOX, code, {})
        return frozenset(generator.names)


def names_of(
    program: Program, parts: Sequence[nodes.Node], depth: int, helpers: Collection[str]
) -> frozenset[str]:
    """Return the names that a program looks up; `parts` are the nodes of its tree before rewriting.

    If the tree binds names, the code is generated, because only the code separates bound and free names.
    """
    # Python's compiler has limits for nesting and branches, so such templates are compiled at once.
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
