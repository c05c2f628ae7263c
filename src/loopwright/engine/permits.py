"""Permits for effects: a limit that several processes share holds an effect back before it begins.

The resource `permits` of a run is an EffectPermits. Without it nothing is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..records import Usage
from .step import Leaf, Step

__all__ = ["CallAccount", "EffectPermits", "account_name", "names_of"]


class CallAccount(Protocol):
    """The account and model of a call, as a request has them."""

    @property
    def provider(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def base_url(self) -> str: ...
    @property
    def api_key_env(self) -> str: ...


class EffectPermits(Protocol):
    """Gives permits for effects."""

    async def take(self, step: Leaf) -> Sequence[str]:
        """Wait until a step may begin; return what `give_back` needs."""

    async def give_back(self, names: Sequence[str], spent: Usage) -> None:
        """Return the permits of a step that has ended; `spent` is the usage of the run until now."""

    async def pause(self, account: CallAccount, seconds: float) -> None:
        """Let no call of this account and model begin for `seconds`."""

    async def paused(self, account: CallAccount) -> float:
        """Return the remaining seconds of the pause of an account and model."""


def account_name(account: CallAccount) -> str:
    """Return the name under which an account and model are paused; it has no key, only a variable."""
    parts = (account.provider, account.model, account.base_url, account.api_key_env)
    return "pause:" + " ".join(part for part in parts if part)


def names_of(step: Step) -> list[str]:
    """Return the names by which limits apply to a step: provider and model, or the name of the step."""
    request = getattr(step, "request", None)
    provider, model = getattr(request, "provider", ""), getattr(request, "model", "")
    if provider and model:
        return [provider, f"{provider}:{model}"]
    return [step.name]
