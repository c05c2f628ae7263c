"""What all tests share: how hard the properties are tried, and which event loop async tests use."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

_QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile("default", max_examples=100, deadline=None, suppress_health_check=_QUIET)
settings.register_profile(
    "thorough", max_examples=10_000, deadline=None, suppress_health_check=_QUIET
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, which is what the engine is written for."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_paid_model() -> None:
    """No test may reach a real model: if the library that could is loaded, it is told so."""
    models = sys.modules.get("pydantic_ai.models")
    if models is not None:
        models.ALLOW_MODEL_REQUESTS = False
