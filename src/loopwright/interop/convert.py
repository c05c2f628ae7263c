"""Any object as a step or an evaluator, with options for those of other libraries, and the protocol of adapters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from ..engine import step as steps
from ..engine.functions import Purpose
from ..engine.step import FunctionStep, Reserve, Step, StepLike, reserving
from ..errors import ConfigurationError
from ..records import Usage, codec
from .objects import MISSING, EvaluatorStep, ObjectStep

__all__ = ["Adapter", "as_evaluator", "as_step"]


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
