"""The environment that templates run in: Jinja's immutable sandbox, with every operation ours.

`rewrite.py` turns each operation of a template that is not a plain name into a call of something in
this module, so that nothing else of Python can be reached and each cost is counted:

=================================  =========================================================
in the template                    what runs
=================================  =========================================================
`a.b`, `a["b"]`                    `Sandbox.getattr`, `getitem`: fields of plain data only
`a + b`, `-a`                      `Sandbox.call_binop`, `call_unop`: bounded numbers and text
`a ~ b`, `a < b`, `a[1:]`, `f(x)`  the filters of `OPERATIONS`, whose names cannot be written
`a.upper()`                        a filter named ".upper", of `METHODS`
`{% for x in a %}`                 iterates over what the filter "for" returns
`{% if a %}`, `not a`              the truth of what the filter "?" returns
`{{ a }}`                          `_print`
=================================  =========================================================
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from jinja2 import pass_context
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..errors import LoopwrightError
from .filters import COMPARISONS, FILTERS, METHODS, PREDICATES, is_number, items_of
from .limits import (
    ITEM,
    NUMBER_BITS,
    RANGE_ITEMS,
    REPEATED_ITEMS,
    TOKENS,
    Meter,
    TemplateError,
)
from .values import Missing, TemplateValue, find, kind, shown, size, to_data, to_text

__all__ = ["METER", "OPERATIONS", "SANDBOX", "Helper"]

# The key of a render's meter among its variables: no template can spell it.
METER = "~meter"


@dataclass(frozen=True, slots=True)
class Helper:
    """A function that a template may call, and do nothing else with."""

    name: str
    function: Callable[..., Any]


def meter_of(context: Context) -> Meter:
    """Return the meter of the render that a context belongs to."""
    meter: Meter = context.parent[METER]
    return meter


def _metered(function: Callable[..., Any], *, takes_missing: bool = False) -> Callable[..., Any]:
    """Make a filter or test of the library from one of ours, that first refuses what is missing."""

    @pass_context
    def apply(context: Context, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        meter = meter_of(context)
        meter.read(ITEM)
        for given in (*args, *kwargs.values()):
            if type(given) is str:
                meter.read(len(given))
            elif isinstance(given, Missing) and not takes_missing:
                return _pass_on(meter, given)
        if isinstance(value, Missing) and not takes_missing:
            return _pass_on(meter, value)
        return function(meter, value, *args, **kwargs)

    return apply


def _pass_on(meter: Meter, missing: Missing) -> Missing:
    """Refuse something missing; in lenient mode it makes the whole expression missing."""
    if meter.strict:
        meter.miss(missing.reason)
    return missing


def _join(meter: Meter, left: Any, *others: Any) -> str:
    """`left ~ other ~ …`"""
    parts = [to_text(meter, part) for part in (left, *others)]
    meter.make(sum(map(len, parts)))
    return "".join(parts)


def _compare(meter: Meter, left: Any, *rest: Any) -> bool:
    """`left < other <= …`, given as names of comparisons and operands in turn."""
    for name, right in zip(rest[::2], rest[1::2], strict=True):
        for side in (left, right):
            if isinstance(side, Missing):
                meter.miss(side.reason)
                return False
        if not COMPARISONS[name](meter, left, right):
            return False
        left = right
    return True


def _slice(meter: Meter, value: Any, start: Any, stop: Any, step: Any) -> Any:
    """`value[start:stop:step]`"""
    value = value.text if isinstance(value, TemplateValue) else value
    if not isinstance(value, str | list):
        raise TemplateError(f"only text and lists can be cut with [:], not {kind(value)}")
    if not all(part is None or isinstance(part, int) for part in (start, stop, step)) or step == 0:
        raise TemplateError("the numbers in [:] must be whole, and the step not 0")
    count = len(range(*slice(start, stop, step).indices(len(value))))
    meter.make(count * (1 if isinstance(value, str) else ITEM))
    return value[start:stop:step]


def _truth(meter: Meter, value: Any) -> Any:
    """Return a value whose truth is asked: what is missing is an error, in lenient mode false."""
    if isinstance(value, Missing):
        if meter.strict:
            meter.miss(value.reason)
        return None
    return value


def _rounds(meter: Meter, value: Any, nodes: int, chars: int) -> Iterable[Any]:
    """Return what a `for` goes over, its whole cost counted."""
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


def _call(meter: Meter, helper: Any, /, *args: Any, **kwargs: Any) -> Any:
    """`helper(...)`, whose result is plain data again."""
    if isinstance(helper, Missing):
        return _pass_on(meter, helper)
    if not isinstance(helper, Helper):
        raise TemplateError(f"{kind(helper)} cannot be called; only the functions offered here can")
    given = [_argument(meter, arg) for arg in args]
    named = {key: _argument(meter, arg) for key, arg in kwargs.items()}
    try:
        result = helper.function(*given, **named)
    except LoopwrightError:
        raise
    except Exception as error:
        problem = f"{helper.name}() failed: {type(error).__name__}: {error}"
        raise TemplateError(problem) from error
    meter.read(size(result))
    return to_data(meter, result, f"{helper.name}()")


def _argument(meter: Meter, value: Any) -> Any:
    if isinstance(value, Missing):
        meter.miss(value.reason)
        return None
    if isinstance(value, Helper | LoopContext):
        raise TemplateError("a function or a loop cannot be an argument")
    return value


def numbers(*bounds: Any) -> list[int]:
    """`range(...)` as a template has it: at most 10,000 whole numbers.

    Raises:
        TemplateError: the bounds are no whole numbers, the step is 0, or there are too many.
    """
    if not 1 <= len(bounds) <= 3 or not all(type(bound) is int for bound in bounds):
        raise TemplateError("range needs one to three whole numbers")
    if len(bounds) == 3 and bounds[2] == 0:
        raise TemplateError("range needs a step that is not 0")
    found = range(*bounds)
    # Not len(): it fails on what is longer than a machine word.
    if found and (found[-1] - found[0]) // found.step + 1 > RANGE_ITEMS:
        raise TemplateError(f"range gives at most {RANGE_ITEMS:,} numbers")
    return list(found)


def _cycle(_meter: Meter, loop: Any, *values: Any) -> Any:
    """`loop.cycle("odd", "even")`"""
    if not isinstance(loop, LoopContext) or not values:
        raise TemplateError("cycle() belongs to the 'loop' of {% for %}, and needs values")
    return values[loop.index0 % len(values)]


@pass_context
def _print(context: Context, value: Any) -> str:
    meter = meter_of(context)
    meter.read(ITEM)
    text = to_text(meter, value)
    meter.write(len(text))
    return text


class TokenLimit(Extension):
    """Stops reading a template that has too many parts to compile it in reasonable time."""

    def filter_stream(self, stream: TokenStream) -> Iterable[Token]:
        for count, token in enumerate(stream):
            if count >= TOKENS:
                raise TemplateError(f"more than {TOKENS:,} parts", line=token.lineno)
            yield token


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment without globals or loader, in which values have fields and nothing else."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)
    intercepted_unops = frozenset(ImmutableSandboxedEnvironment.default_unop_table)

    def getattr(self, obj: Any, attribute: str) -> Any:
        return find(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        return find(obj, argument)

    def call(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Refuse: every call of a template is rewritten, so none arrives here."""
        raise TemplateError("only the functions offered to a template can be called")

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        if isinstance(arg, Missing):
            return _pass_on(meter_of(context), arg)
        if not is_number(arg):
            raise TemplateError(f"{operator} needs a number, got {kind(arg)}")
        return -arg if operator == "-" else arg

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        meter = meter_of(context)
        meter.read(ITEM)
        for side in (left, right):
            if isinstance(side, Missing):
                return _pass_on(meter, side)
        if is_number(left) and is_number(right):
            return _calculate(operator, left, right)
        return _combine(meter, operator, left, right)


def _calculate(sign: str, left: Any, right: Any) -> Any:
    """Calculate with two numbers; the result is a finite number of at most 256 bits."""
    if sign == "**" and abs(right) * _bits(left) > NUMBER_BITS * 4:
        raise TemplateError(f"{shown(left)} ** {shown(right)} is too large a number")
    try:
        result = ARITHMETIC[sign](left, right)
    except (ArithmeticError, ValueError) as error:
        raise TemplateError(f"{shown(left)} {sign} {shown(right)}: {error}") from None
    if isinstance(result, complex) or (
        isinstance(result, int) and result.bit_length() > NUMBER_BITS
    ):
        raise TemplateError(f"{sign} gives a number that is too large, or none at all")
    return result


def _bits(number: Any) -> float:
    if isinstance(number, int):
        return number.bit_length()
    return abs(math.log2(abs(number))) if number and math.isfinite(number) else 1


def _combine(meter: Meter, sign: str, left: Any, right: Any) -> Any:
    """Put texts or lists together with +, or repeat one a bounded number of times with *."""
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
    hint = "; put text together with ~" if sign in "+%" else ""
    raise TemplateError(f"{sign} does not work on {kind(left)} and {kind(right)}{hint}")


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow,
}  # fmt: skip

OPERATIONS: dict[str, Callable[..., Any]] = {
    "~": _metered(_join, takes_missing=False),
    "<>": _metered(_compare, takes_missing=True),
    "[:]": _metered(_slice),
    "?": _metered(_truth, takes_missing=True),
    "for": _metered(_rounds, takes_missing=True),
    "()": _metered(_call, takes_missing=True),
    ".cycle": _metered(_cycle),
}


def _environment() -> Sandbox:
    environment = Sandbox(
        extensions=[TokenLimit],
        undefined=Missing,
        finalize=_print,
        keep_trailing_newline=True,
        cache_size=0,
    )
    environment.globals.clear()
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
