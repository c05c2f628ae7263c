"""One environment for all jobs."""

from __future__ import annotations

import os

import pytest

from jobs.environment import Environment, shared


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A clean environment, which all processes of a test run share."""
    base = tmp_path_factory.getbasetemp()
    several = "PYTEST_XDIST_WORKER" in os.environ
    return shared((base.parent if several else base) / "jobs-environment")
