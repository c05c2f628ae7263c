"""Test support: virtual time, a journal in memory, scripted models, and replay.

`fixtures` is the pytest plugin. Tests of prompts and judges use a model that answers from a script.

>>> from loopwright.testing import Models, ScriptedModel
>>> resources = {"models": Models(ScriptedModel([{"replies": ["a draft", "a better one"]}]))}
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..journal import MemoryJournal
from .clock import Deadlock, VirtualClock, VirtualLoop, run_virtual

if TYPE_CHECKING:
    from ..models import (
        KINDS,
        Message,
        ModelError,
        Models,
        Policy,
        Reply,
        Request,
        ScriptedModel,
    )
    from .replay import assert_replays, dry_run, dry_run_sync

__all__ = [
    "KINDS",
    "Deadlock",
    "MemoryJournal",
    "Message",
    "ModelError",
    "Models",
    "Policy",
    "Reply",
    "Request",
    "ScriptedModel",
    "VirtualClock",
    "VirtualLoop",
    "assert_replays",
    "dry_run",
    "dry_run_sync",
    "run_virtual",
]


def __getattr__(name: str) -> object:
    # pytest loads this package in every project, and most tests need no models.
    if name in __all__:
        module = ".replay" if name in ("assert_replays", "dry_run", "dry_run_sync") else "..models"
        return getattr(import_module(module, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
