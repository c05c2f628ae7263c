"""The protocol of adapters, which make steps of objects of one library."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from ..engine.external import Purpose
from ..engine.step import Step

__all__ = ["Adapter"]


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
