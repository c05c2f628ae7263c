"""Confirmations: whoever starts a workflow that acts on this machine has seen what it does.

`check` returns a confirmation of exactly these contents and effects, `run` takes it. It is signed with a key of the
folder in the state folder of the user, which nothing in the folder can know.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass

from ...errors import ConfigurationError

SECONDS = 900  # from the check to the run


@dataclass(frozen=True)
class Confirmations:
    """Issues confirmations and accepts them.

    Args:
        key: the secret of the folder.
        now: the time in seconds since the epoch. Default: the clock.
    """

    key: str
    now: Callable[[], float] = time.time

    def issue(self, workflow: str, digest: str) -> tuple[str, float]:
        """Return a confirmation, and when it expires; `digest` covers the contents and the effects of the workflow."""
        expires = int(self.now()) + SECONDS
        return f"{expires}.{digest}.{self._signature(workflow, expires, digest)}", float(expires)

    def accept(self, workflow: str, digest: str, confirmation: str) -> None:
        """Accept a confirmation of what the workflow is and does now.

        Raises:
            ConfigurationError: if it is altered, expired, or of other contents.
        """
        again = "call check again and show its effects"
        time_of, _, rest = confirmation.partition(".")
        seen, _, signature = rest.partition(".")
        expires = int(time_of) if time_of.isascii() and time_of.isdigit() else 0
        right = self._signature(workflow, expires, seen)
        if not hmac.compare_digest(signature.encode(), right.encode()):
            raise ConfigurationError(
                f"confirmation: it is not one that check returned here for {workflow}; {again}"
            )
        if expires < self.now():
            raise ConfigurationError(
                f"confirmation: it expired {SECONDS // 60} minutes after its check; {again}"
            )
        if seen != digest:
            raise ConfigurationError(
                f"confirmation: {workflow} or its files have changed since its check; {again}"
            )

    def _signature(self, workflow: str, expires: int, digest: str) -> str:
        text = f"{expires}\n{digest}\n{workflow}"
        return hmac.new(self.key.encode(), text.encode(), hashlib.sha256).hexdigest()
