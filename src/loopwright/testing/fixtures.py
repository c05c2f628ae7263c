"""The pytest plugin: fixtures for tests of loops, active wherever this package is installed.

`models` makes the argument `models` of a run that answers prompts from a script, `journal` is a journal in memory, `virtual` runs
a step in virtual time on that journal. A fixture of yours with the same name takes precedence.

>>> def test_it_improves(virtual, models):
...     replies = models({"replies": ["a draft", "a better one"]})
...     assert virtual(loop, "a topic", **replies).satisfied
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from .. import testing
from ..engine.run import run
from ..engine.step import StepLike
from ..journal import MemoryJournal
from ..records import Result
from ..records.codec import Json
from .clock import run_virtual

__all__ = ["journal", "models", "virtual"]

_MakeModels = Callable[..., dict[str, object]]
_Run = Callable[..., Result]


@pytest.fixture
def models() -> _MakeModels:
    """Return a function that makes `{"models": Models(...)}` from the rules of a script. See ScriptedModel.

    Prompts that name no model use `openai:any`, whatever the environment names.
    """

    # The package loads models at the first use of their names: pytest loads this plugin in every
    # project, and most tests need no models.
    def make(*rules: Mapping[str, Json], **options: Json) -> dict[str, object]:
        script = testing.ScriptedModel(list(rules))
        return {"models": testing.Models(script, **{"default": "openai:any", **options})}

    return make


@pytest.fixture
def journal() -> MemoryJournal:
    """Return a journal that lives as long as the test."""
    return MemoryJournal()


@pytest.fixture
def virtual(journal: MemoryJournal) -> _Run:
    """Return a function with the arguments of `run` that runs a step in virtual time."""

    def execute(step: StepLike, value: Json = None, **options: Json) -> Result:
        return run_virtual(run(step, value, **{"journal": journal, **options}))

    return execute
