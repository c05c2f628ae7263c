"""What the tests of models share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def loopback() -> Iterator[None]:
    """Let the client library make requests; what the tests call is on this machine."""
    from pydantic_ai.models import override_allow_model_requests

    with override_allow_model_requests(True):
        yield
