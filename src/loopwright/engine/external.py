"""Objects of other libraries as steps: registered types and adapters from entry points.

`as_step` in `engine/step.py` calls `adapted` before it treats an object as a function: metrics and scorers of
other libraries are callable too.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Awaitable, Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from typing_extensions import TypeVar

from ..errors import LoopwrightWarning

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "ADAPTERS",
    "AgentLike",
    "AgentOutput",
    "EvaluatesOutput",
    "MeasuresTestCase",
    "Purpose",
    "RunnableLike",
    "ScoresOutput",
    "ScoresTask",
    "adapted",
    "register",
]

ADAPTERS = "loopwright.adapters"  # the group of entry points
BROKEN_ADAPTER = "adapter_broken"
_OURS = "loopwright"

Purpose = Literal["execute", "evaluate"]
Factory = Callable[[Any, Purpose], object]


Out_co = TypeVar("Out_co", covariant=True, default=Any)


class AgentOutput(Protocol[Out_co]):
    """The result of an agent of pydantic-ai, for type checkers."""

    @property
    def output(self) -> Out_co:
        """The output."""


class AgentLike(Protocol[Out_co]):
    """An agent of pydantic-ai, for type checkers: a step that returns the agent's output."""

    @property
    def output_type(self) -> object:
        """The type of its output."""

    def run(self, user_prompt: str, /) -> Awaitable[AgentOutput[Out_co]]:
        """Run the agent on a prompt."""


class RunnableLike(Protocol):
    """A runnable of LangChain or a graph of LangGraph, for type checkers: its output has no type."""

    @property
    def ainvoke(self) -> Callable[..., Awaitable[Any]]:
        """Its method that runs it."""


class EvaluatesOutput(Protocol):
    """An evaluator of pydantic-evals, for type checkers."""

    @property
    def evaluate_async(self) -> Callable[..., Awaitable[Any]]:
        """Its method that evaluates an output."""


class ScoresOutput(Protocol):
    """A scorer of autoevals, for type checkers."""

    @property
    def eval_async(self) -> Callable[..., Awaitable[Any]]:
        """Its method that scores an output."""


class ScoresTask(Protocol):
    """A scorer of Inspect, for type checkers."""

    def __call__(self, state: Any, target: Any) -> Awaitable[Any]:
        """Score the state of a task."""


class MeasuresTestCase(Protocol):
    """A metric of DeepEval, for type checkers."""

    @property
    def a_measure(self) -> Callable[..., Awaitable[Any]]:
        """Its method that measures a test case."""


@runtime_checkable
class _Adapter(Protocol):
    """An adapter as `interop.Adapter` describes it; without the type of steps, which imports this module."""

    roots: tuple[str, ...]

    def matches(self, target: object) -> bool: ...

    def step(self, target: Any, purpose: Purpose) -> object: ...


@functools.singledispatch
def _registered(target: object, purpose: Purpose) -> object:
    return None


def register(kind: type, factory: Factory) -> None:
    """Let objects of a type be used as steps in this process; subclasses are included.

    Registered types take precedence over adapters. A package registers an `Adapter` instead, which works in each
    process that has the package installed.

    Args:
        kind: The type.
        factory: A function of the object and of the purpose (`execute` or `evaluate`) that returns a step.

    Example:
        >>> from loopwright import run_sync, step
        >>> class Translator:
        ...     def translate(self, text):
        ...         return text.replace("hello", "bonjour")
        >>> register(Translator, lambda target, purpose: step(target.translate))
        >>> run_sync(Translator(), "hello").output
        'bonjour'
    """
    _registered.register(kind)(factory)


def adapted(target: object, purpose: Purpose) -> object:
    """Return an object of another library as a step, or None if no adapter knows it.

    A plain function without attributes is never of another library: most steps are such functions, and the
    entry points of the environment are read for objects only.
    """
    if type(target) is FunctionType and not target.__dict__:
        return None
    if (step := _registered(target, purpose)) is not None:
        return step
    # The roots are compared first, so that no adapter imports its library for a foreign object.
    roots = _roots_of(target)
    for adapter in _adapters():
        if not roots.isdisjoint(adapter.roots) and adapter.matches(target):
            return adapter.step(target, purpose)
    return None


def _roots_of(target: object) -> set[str]:
    """Return the top-level modules that the classes of an object come from.

    A function that another library decorated has the module of its author, so the attributes that the library
    set count too.
    """
    modules = {base.__module__ for base in type(target).__mro__}
    modules.add(str(getattr(target, "__module__", "")))
    if isinstance(target, FunctionType):
        modules |= {type(value).__module__ for value in vars(target).values()}
    return {module.partition(".")[0] for module in modules}


@functools.cache
def _adapters() -> tuple[_Adapter, ...]:
    """Return the adapters of the environment: those of other distributions first, each group by name."""
    # Reading metadata takes milliseconds, and most programs have no such objects.
    from importlib.metadata import entry_points

    # Others first: a package may replace a built-in adapter for its own objects.
    points = sorted(entry_points(group=ADAPTERS), key=lambda point: (_is_ours(point), point.name))
    return tuple(adapter for point in points if (adapter := _loaded(point)) is not None)


def _is_ours(point: EntryPoint) -> bool:
    return point.module.partition(".")[0] == _OURS


def _loaded(point: EntryPoint) -> _Adapter | None:
    """Return the adapter of an entry point, or None with a warning if it cannot be loaded."""
    try:
        adapter = point.load()
        adapter = adapter() if isinstance(adapter, type) else adapter
    except Exception as error:  # of any kind: a broken package must not stop every program
        problem = f"{type(error).__name__}: {error}"
    else:
        if isinstance(adapter, _Adapter):
            return adapter
        problem = "it has no roots, matches and step"
    warnings.warn(
        LoopwrightWarning(
            f"the adapter {point.name} ({point.value}) cannot be used: {problem}. Update or uninstall its package.",
            code=BROKEN_ADAPTER,
        ),
        stacklevel=2,
    )
    return None
