"""Steps and evaluators that call an object of another library, and the protocol of adapters.

1. A call that can cost money without a report is refused under a budget of calls, tokens or US dollars,
   unless it has a `reserve`. Without a budget the run warns `unreported_usage`.
2. A fingerprint has the adapter, the object's name, its model and its instructions, but never the version of
   a library: updating a library does not end the runs on record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from ..engine import step as steps
from ..engine.context import Context
from ..engine.functions import FunctionTypes, Purpose
from ..engine.step import (
    FunctionStep,
    Leaf,
    Reserve,
    Step,
    StepLike,
    digest_of,
    reserving,
    source_digest,
)
from ..errors import ConfigurationError, StepError
from ..models.providers.endpoints import is_own_origin
from ..models.registry import Price, cost, price_of
from ..records import Evaluation, Usage, codec, own_json
from ..records.codec import Json
from ..records.typed import ValueType, value_type

__all__ = [
    "UNREPORTED",
    "Adapter",
    "EvaluatorStep",
    "ObjectStep",
    "as_evaluator",
    "as_step",
    "charged",
    "identity_text",
    "limits_dollars",
    "price_in",
    "text_of",
]

UNREPORTED = "unreported_usage"  # the code of the warning, and the kind of the error
TOLERANCE = 1e-9  # a mean of scores may exceed the scale by a rounding error
EXPECTED = ("expected", "target")  # members of a loop's input
MISSING: Any = object()  # not None, which is a valid expected output


class _OutputTypes(FunctionTypes):
    """The types of an object whose input is JSON: only its output has a declared type."""

    def read(self, value: Json) -> object:
        return own_json(value)


@dataclass(frozen=True, eq=False, kw_only=True)
class ObjectStep(Leaf[Any, Any]):
    """A step that calls an object of another library. Adapters derive from it and write `call`.

    Args:
        target: The object.
        name: The name of the step in paths.
        adapter: Name and version of the adapter, such as "langchain/1". Increase the version when the meaning of
            a call changes.
        identity: Texts that distinguish the object from others of its kind, such as its model and instructions.
        unreported: Why the object does not report the cost of a call, as a clause. Default: "": it reports the cost.
        idempotent: Whether a call may be repeated after a crash. Default: False.
        reserve: The most that one call may cost, as a function of the input. Default: None.
        reports: Whether the object reports what it costs. Default: True.
        scores_only: Whether an evaluator never gives a verdict. Default: False.
        stub: The kind of the object in the error of a dry run without a rule for it.
        returns: The type of the output, which later steps then receive as itself. Default: None, which means
            JSON.
    """

    target: Any
    name: str
    adapter: str
    identity: tuple[str, ...] = ()
    unreported: str = ""
    idempotent: bool = False
    reserve: Callable[[Any], Usage | None] | None = None
    reports: bool = True
    scores_only: bool = False
    stub: str = "object of another library"  # in a dry run
    returns: Any = None

    @functools.cached_property
    def types(self) -> FunctionTypes | None:
        """How its output is written in the declared type, or None."""
        declared = None if self.returns is None else value_type(self.returns, self.name)
        return None if declared is None else _OutputTypes(self.name, None, declared)

    def declared(self) -> FunctionTypes | None:
        """Return its declared types, or None."""
        return self.types

    @property
    def output_type(self) -> ValueType | None:
        """The declared type of its output, or None."""
        return None if self.types is None else self.types.output

    @property
    def fingerprint(self) -> str:
        """A digest of the adapter, the object's name and its identity."""
        return digest_of("object", self.adapter, self.name, *self.identity, *self.options())

    def options(self) -> tuple[str, ...]:
        """Return the options of the step that change the meaning of a call."""
        return ()

    async def act(self, value: Any, ctx: Context) -> Any:
        """Call the object, within the budgets.

        Raises:
            StepError: Of kind `unreported_usage`, under a budget that could not be enforced.
        """
        problem = self.unreported
        if not problem and limits_dollars(ctx):
            problem = self.unpriced(ctx)
        # The stated maximum replaces what cannot be measured.
        if self.reserve is None:
            self.refuse(problem, ctx)
        elif self.unreported and (reserved := self.reserve(value)) is not None:
            ctx.spend(reserved.at_most())  # counted at the most that it can have cost
        return await self.call(value, ctx)

    async def call(self, value: Any, ctx: Context) -> Any:
        """Call the object and return its output; report costs with `ctx.spend`."""
        raise NotImplementedError

    def unpriced(self, ctx: Context) -> str:
        """Return why the dollars of a call cannot be computed, as a clause, or ""."""
        return ""

    def refuse(self, problem: str, ctx: Context) -> None:
        """Warn of an unreported cost, or refuse the call under a budget; do nothing without a problem.

        Raises:
            StepError: Of kind `unreported_usage`, under a budget of calls, tokens or US dollars.
        """
        if not problem or self.reserve is not None:
            return
        if any(cap.spending for cap in ctx.account.caps):
            raise StepError(
                f"{self.name}: {problem}, so a budget cannot limit it. Give reserve=Usage(...) in as_step or "
                "as_evaluator, or limit effects instead: Budget(effects=...).",
                path=ctx.path,
                kind=UNREPORTED,
                retryable=False,
            )
        ctx.run.warn(f"{self.name}: {problem}", ctx.path, code=UNREPORTED)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


@dataclass(frozen=True, eq=False, kw_only=True)
class EvaluatorStep(ObjectStep):
    """An evaluator of another library. Adapters derive from it and write `call`.

    Args:
        target, name, adapter, identity, unseen, reserve, reports, scores_only, stub, returns: As for `ObjectStep`.
        idempotent: Whether a call may be repeated after a crash. Default: True, as an evaluator changes nothing.
        expected: The expected output. Default: the member `expected` or `target` of the loop's input.
        scale: The lowest and the highest score of the object. Default: 0 to 1.
    """

    idempotent: bool = True
    expected: Any = MISSING
    scale: tuple[float, float] = (0.0, 1.0)

    def options(self) -> tuple[str, ...]:
        expected = "" if self.expected is MISSING else identity_text(self.expected)
        return (expected, repr(self.scale))

    def expectation(self, ctx: Context) -> Json:
        """Return the expected output of this loop, or None."""
        if self.expected is not MISSING:
            return self.expected
        if (case := ctx.case) is not None:
            return case.expected
        initial = ctx.initial
        if isinstance(initial, Mapping):
            return next((initial[name] for name in EXPECTED if name in initial), None)
        return None

    def input(self, ctx: Context) -> Json:
        """Return the input of the output: that of the loop, or its member `input` if it has an expected output."""
        if (case := ctx.case) is not None:
            return case.inputs
        initial = ctx.initial
        if isinstance(initial, Mapping) and any(name in initial for name in EXPECTED):
            return initial.get("input", initial)
        return initial

    def evaluation(
        self,
        score: object,
        *,
        passed: bool | None = None,
        feedback: str = "",
        **more: Any,
    ) -> Evaluation:
        """Return an evaluation with the score converted to 0 to 1; undecided without a score or verdict."""
        if score is None:
            undecided = passed is None
            text = feedback or (f"{self.name} returned no score" if undecided else "")
            return Evaluation(passed=passed, feedback=text, undecided=undecided, **more)
        low, high = self.scale
        if isinstance(score, int | float) and low - TOLERANCE <= score <= high + TOLERANCE:
            share = min(1.0, max(0.0, (score - low) / (high - low)))
            return Evaluation(share, passed, feedback, **more)
        sentence = (
            f"{self.name} returned the score {score!r:.40}, which is not from {low:g} to {high:g}. "
            "Give its scale: as_evaluator(..., scale=(lowest, highest))."
        )
        return Evaluation(feedback=sentence, undecided=True, **more)


def limits_dollars(ctx: Context) -> bool:
    """Return whether a budget around a step limits US dollars."""
    return any(cap.usd is not None for cap in ctx.account.caps)


def price_in(ctx: Context, provider: str, model: str, base_url: str = "") -> Price | None:
    """Return the price of a model in this run, or None. Prices of the run's `Models` come first."""
    overrides = getattr(ctx.run.resources.get("models"), "prices", None)
    # Known prices are those of the provider's own servers.
    foreign = not is_own_origin(provider, base_url)
    try:
        return price_of(provider, model, overrides, base_url=base_url if foreign else "")
    except (ConfigurationError, ImportError):  # the table of prices is not installed
        return None


def charged(
    ctx: Context,
    usage: Usage,
    *,
    provider: str,
    model: str,
    base_url: str = "",
) -> Usage:
    """Return the usage of a model with its dollars, or with its calls as unpriced."""
    return cost(usage, price_in(ctx, provider, model, base_url)) if usage else usage


def identity_text(value: object) -> str:
    """Return a text for a part of an object that is the same in each process.

    >>> identity_text({"b": [1, "x"], "a": None})
    "{'a': None, 'b': [1, 'x']}"
    """
    return "".join(_pieces(value))


def _pieces(value: object) -> Iterator[str]:
    if isinstance(value, str | int | float | bool) or value is None:
        yield repr(value)
    elif isinstance(value, Mapping):
        members = sorted((repr(key), identity_text(item)) for key, item in value.items())
        yield "{" + ", ".join(f"{key}: {item}" for key, item in members) + "}"
    elif isinstance(value, Sequence | set | frozenset):
        items = [identity_text(item) for item in value]
        yield "[" + ", ".join(sorted(items) if isinstance(value, set | frozenset) else items) + "]"
    elif isinstance(value, type):
        yield value.__qualname__
    # The code of a function, because its address differs in each process.
    elif callable(value):
        yield source_digest(value)
    else:
        yield type(value).__qualname__


def text_of(value: object) -> str:
    """Return a value as text: a string unchanged, other values as JSON."""
    return codec.text_of(codec.normalise(value))


@runtime_checkable
class Adapter(Protocol):
    """Makes steps of the objects of one library.

    A distribution registers an adapter as an entry point of the group `loopwright.adapters`: a class without
    arguments, or an instance. Importing the module of an adapter must not import the library.

    Attributes:
        roots: Top-level modules of the library. Only objects whose class, or a base class of it, is from one of
            them reach `matches`.

    Example:
        >>> from loopwright.engine.step import FunctionStep
        >>> class TranslatorAdapter:
        ...     roots = ("translators",)
        ...     def matches(self, target):
        ...         return hasattr(target, "translate")
        ...     def step(self, target, purpose):
        ...         return FunctionStep(target.translate, name="translate")
        >>> isinstance(TranslatorAdapter(), Adapter)
        True
    """

    # Compared before `matches` is called, so that an object of another library imports no adapter.
    roots: tuple[str, ...]

    def matches(self, target: object) -> bool:
        """Return whether the adapter makes a step of this object.

        Args:
            target: An object from one of the `roots`.

        Returns:
            Whether `step` accepts it.
        """
        ...

    def step(self, target: Any, purpose: Purpose) -> Step[Any, Any]:
        """Make a step of an object that matches.

        Args:
            target: The object.
            purpose: `evaluate` where a loop uses it as its evaluator, else `execute`.

        Returns:
            The step.
        """
        ...


def as_step(
    target: StepLike | object,
    *,
    name: str = "",
    reserve: Usage | Reserve | None = None,
    idempotent: bool | None = None,
) -> Step:
    """Return an object as a step: an agent, a runnable, a graph, a function or a step.

    Loops, workflows and `run` call this for you. Use it to add options.

    Args:
        target: The object.
        name: The name of the step in paths. Default: the object's name.
        reserve: The most that one call may cost, or a function of the input that returns it. A budget of calls,
            tokens or US dollars needs it for an object that does not report its usage. Default: nothing is reserved.
        idempotent: Whether a call may be repeated after a crash. Default: False for objects of other libraries,
            True for functions.

    Returns:
        The step.

    Raises:
        ConfigurationError: If the object cannot be a step, or if it is a step already and has options.

    Example:
        >>> from loopwright import Usage, run_sync
        >>> writer = as_step(lambda text: text.title(), name="writer", reserve=Usage(calls=1))
        >>> run_sync(writer, "a title").output
        'A Title'
    """
    return _converted(target, "execute", name=name, reserve=reserve, idempotent=idempotent)


def as_evaluator(
    target: StepLike | object,
    *,
    expected: object = MISSING,
    scale: tuple[float, float] = (0.0, 1.0),
    name: str = "",
    reserve: Usage | Reserve | None = None,
    idempotent: bool | None = None,
) -> Step:
    """Return an object as an evaluator: a metric or a scorer of another library, a function or a step.

    Args:
        target: The object.
        expected: The expected output, for objects that compare. Default: the member `expected` or `target` of
            the loop's input.
        scale: The lowest and the highest score of the object. Default: 0 to 1. A score outside of the scale makes
            the evaluation undecided.
        name: The name of the step in paths. Default: the object's name.
        reserve: The most that one call may cost, or a function of the output that returns it. Default: nothing is
            reserved.
        idempotent: Whether a call may be repeated after a crash. Default: True.

    Returns:
        A step from an output to an Evaluation.

    Raises:
        ConfigurationError: If the object cannot be an evaluator, or does not take these options.

    Example:
        >>> from loopwright import run_sync
        >>> run_sync(as_evaluator(lambda text: len(text) / 10, name="length"), "hello").output
        0.5
    """
    step = _converted(target, "evaluate", name=name, reserve=reserve, idempotent=idempotent)
    options: dict[str, Any] = {}
    # None is a valid expected output, so it cannot stand for "not set".
    if expected is not MISSING:
        options["expected"] = expected
    if scale != (0.0, 1.0):
        options["scale"] = _scale(scale)
    if not options:
        return step
    if not isinstance(step, EvaluatorStep):
        raise ConfigurationError(
            f"as_evaluator: {step.name} does not take {' and '.join(options)}. Only evaluators of other libraries "
            "do. Let the function return a score from 0 to 1."
        )
    return replace(step, **options)


def _converted(target: Any, purpose: Purpose, **options: Any) -> Step:
    set_options = {key: value for key, value in options.items() if value not in (None, "")}
    step = steps.as_step(target, purpose=purpose)
    # A step has its own name and cost; options would have to change an object of the user.
    if not set_options or step is target:
        if set_options:
            raise ConfigurationError(
                f"as_{'step' if purpose == 'execute' else 'evaluator'}: {step.name} is already a step. "
                f"Set {' and '.join(set_options)} where you create it."
            )
        return step
    if isinstance(step, ObjectStep):
        if "reserve" in set_options:
            set_options["reserve"] = reserving(set_options["reserve"])
        return replace(step, **set_options)
    # A function whose library wraps it has an adapter, whose options must not be lost.
    if isinstance(step, FunctionStep) and step.function is target:
        return FunctionStep(target, **set_options)
    raise ConfigurationError(
        f"{step.name} comes from an adapter that does not take {' and '.join(set_options)}"
    )


def _scale(scale: object) -> tuple[float, float]:
    if not isinstance(scale, tuple | list) or len(scale) != 2:
        raise ConfigurationError(
            f"as_evaluator: scale: {scale!r} is not a pair of the lowest and the highest score"
        )
    low, high = (codec.number("as_evaluator: scale", bound) for bound in scale)
    if low >= high:
        raise ConfigurationError(
            f"as_evaluator: scale: {low:g} is not below {high:g}. Give the lowest score first."
        )
    return (low, high)
