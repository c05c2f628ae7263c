"""The checks of the options of a loop; `Loop` explains the options."""

from __future__ import annotations

from collections.abc import Mapping

from ..conditions import CEILING, Condition
from ..errors import ConfigurationError, nearest
from ..records import codec
from .loop_stalls import OnStall
from .loop_verdicts import Impossible, Undecided

__all__ = ["check_options", "one_of"]

_WORDS = {"on_failure": ("halt", "continue", "retry"), "keep": ("best", "last")}
_LEAST = {"max_retries": 0, "max_failures": 1, "min_iterations": 1, "rejudge": 0}
# The options that are objects, with an example of each.
_POLICIES = (
    ("on_stall", OnStall, "OnStall('best', patience=2)"),
    ("impossible", Impossible, "Impossible(floor=3, looks=2)"),
    ("undecided", Undecided, "Undecided(2, 'reject')"),
)


def check_options(options: Mapping[str, object]) -> None:
    """Check the options of a loop, each alone.

    Raises:
        ConfigurationError: names the first invalid option.
    """
    for name, words in _WORDS.items():
        one_of(f"loop: {name}", options[name], words)
    _check_numbers(options)
    for name, kind, example in _POLICIES:
        policy = options[name]
        if not isinstance(policy, kind) and not (policy is None and name == "on_stall"):
            raise ConfigurationError(
                f"loop: {name}: {policy!r:.60} is not an {kind.__name__}; use {example}"
            )
    _check_objects(options)


def _check_numbers(options: Mapping[str, object]) -> None:
    for name, least in _LEAST.items():
        if name == "max_failures" and options[name] is None:
            continue
        value = codec.integer(f"loop: {name}", options[name], minimum=least)
        if name == "min_iterations" and value > CEILING:
            raise ConfigurationError(
                f"loop: min_iterations: {value} is above the ceiling of {CEILING}; "
                f"use at most {CEILING}"
            )
    codec.number("loop: explore", options["explore"], minimum=0, maximum=1)
    codec.number("loop: retry_delay", options["retry_delay"], minimum=0)


def _check_objects(options: Mapping[str, object]) -> None:
    """Check the conditions, the hooks, the workspace and the name."""
    for name in ("until", "guards"):
        condition = options[name]
        if condition is not None and not isinstance(condition, Condition):
            raise ConfigurationError(
                f"loop: {name}: {condition!r} is not a condition; use one, or several with | or & "
                "between them"
            )
    for name in ("on_iteration", "on_terminate"):
        hook = options[name]
        if hook is not None and not callable(hook):
            raise ConfigurationError(f"loop: {name}: {hook!r} is not a function")
    workspace = options["workspace"]
    # Not a check of its class: workspaces are in a package above the engine.
    if workspace is not None and not hasattr(workspace, "state"):
        raise ConfigurationError(
            f'loop: workspace: {workspace!r:.60} is not a Workspace; use one, such as Workspace(".")'
        )
    if not isinstance(options["name"], str):
        raise ConfigurationError(f"loop: name: {options['name']!r} is not text")


def one_of(name: str, value: object, words: tuple[str, ...]) -> None:
    """Raise ConfigurationError if an option is none of the words."""
    if value not in words:
        raise ConfigurationError(
            f"{name}: {value!r} is none of {', '.join(filter(None, words))}{nearest(str(value), words)}"
        )
