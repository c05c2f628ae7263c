"""The pytest plugin: fixtures for tests of loops, on whenever this package is installed.

`loopwright_models` makes the resources that answer prompts from a script, `loopwright_journal` is a
journal in memory, `loopwright_run` runs a step in virtual time on that journal.

>>> def test_it_improves(loopwright_run, loopwright_models):
...     models = loopwright_models({"replies": ["a draft", "a better one"]})
...     assert loopwright_run(loop, "a topic", resources=models).satisfied
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ..engine.run import run
from ..engine.step import StepLike
from ..journal import MemoryJournal
from ..records import Result
from .clock import run_virtual


@pytest.fixture
def loopwright_models() -> Callable[..., dict[str, Any]]:
    """Return a function that makes resources from rules of a script; see ScriptedModel."""
    # pytest loads this plugin in every project: who uses no model does not load what models need.
    from ..models import Models, ScriptedModel

    def made(*rules: Any, **options: Any) -> dict[str, Any]:
        return {"models": Models(ScriptedModel(list(rules)), **options)}

    return made


@pytest.fixture
def loopwright_journal() -> MemoryJournal:
    """Return a journal that lives as long as the test."""
    return MemoryJournal()


@pytest.fixture
def loopwright_run(loopwright_journal: MemoryJournal) -> Callable[..., Result]:
    """Return a function that runs a step as `run` does, in virtual time: no test ever waits."""

    def done(step: StepLike, value: Any = None, **options: Any) -> Result:
        return run_virtual(run(step, value, **{"journal": loopwright_journal, **options}))

    return done
