"""Functions that receive the text of models as it arrives."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from ..errors import ConfigurationError

__all__ = ["ModelCall", "OnText", "model_call", "text_listener"]

_ATTEMPT = re.compile(r"/?attempt-([0-9]+)$")


@dataclass(frozen=True, slots=True)
class ModelCall:
    """The call that a piece of text belongs to.

    Args:
        path: the path of the step that called the model.
        attempt: the number of the attempt, from 1.

    Example:

    >>> model_call("draft/1/execute/attempt-2")
    ModelCall(path='draft/1/execute', attempt=2)
    """

    path: str
    attempt: int


OnText = Callable[[str], object] | Callable[[str, ModelCall], object]


def model_call(path: str) -> ModelCall:
    """Return the call of the attempt at a path."""
    match = _ATTEMPT.search(path)
    return ModelCall(path, 1) if match is None else ModelCall(path[: match.start()], int(match[1]))


def text_listener(function: OnText) -> Callable[[str, ModelCall], object]:
    """Return a function of text and call for `f(text)` or `f(text, call)`.

    A function receives the call if it requires a second positional argument, so `print` does not.

    Raises:
        ConfigurationError: for an object that cannot be called.
    """
    if not callable(function):
        raise ConfigurationError(f"on_text: {function!r:.60} is not a function of text")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a function written in C may have no signature
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in positional and p.default is p.empty]
    if len(required) >= 2:
        return cast("Callable[[str, ModelCall], object]", function)
    plain = cast("Callable[[str], object]", function)
    return lambda text, call: plain(text)
