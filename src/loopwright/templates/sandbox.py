"""The environment of templates: Jinja's immutable sandbox with its own implementation of every operation.

`syntax.rewrite` replaces each operation of a template by a call of a function in this module, so that
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
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn

from jinja2 import pass_context
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..errors import LoopwrightError
from ..records.codec import Json
from .filters import FILTERS, METHODS, items_of
from .predicates import COMPARISONS, PREDICATES, is_number
from .values import (
    ITEM,
    NUMBER_BITS,
    RANGE_ITEMS,
    REPEATED_ITEMS,
    TOKENS,
    Meter,
    Missing,
    TemplateError,
    TemplateValue,
    find,
    kind,
    shown,
    size,
    to_data,
    to_text,
)

__all__ = ["METER", "OPERATIONS", "SANDBOX", "Helper"]

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
        # A function of the dialect or the caller, which may raise anything.
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


def _environment() -> TemplateEnvironment:
    environment = TemplateEnvironment(
        extensions=[TokenLimit],
        undefined=Missing,
        finalize=_print,
        # A prompt is sent exactly as written.
        keep_trailing_newline=True,
        cache_size=0,  # compiled templates are cached by their steps
    )
    environment.globals.clear()  # Jinja's globals create objects with attributes
    takes_missing = {"default", "d", "defined", "undefined"}
    environment.filters = OPERATIONS | {
        name: _metered(function, takes_missing=name in takes_missing)
        for name, function in FILTERS.items()
    }
    environment.filters |= {f".{name}": _metered(method) for name, method in METHODS.items()}
    environment.tests = {
        name: _metered(function, takes_missing=name in takes_missing)
        for name, function in PREDICATES.items()
    }
    return environment


SANDBOX = _environment()
