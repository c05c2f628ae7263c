"""What the model calls of a process share: the model, its prices, cool-downs and the transcript.

One `Models` goes into `run(…, resources={"models": Models(…)})`; there is no other place to look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..engine.context import Context
from ..engine.run_state import Run
from ..engine.threads import in_thread
from ..errors import ConfigurationError
from ..records import Usage
from ..records.codec import Json
from ..records.redaction import Redactor
from .endpoints import is_own_address
from .prices import Price, cost, price_of, read_prices, worst_case
from .protocol import Model, Request
from .retry_policy import Policy
from .scripted import ScriptedModel

__all__ = ["Models", "models_of"]

Account = tuple[str, str, str, str]


class Models:
    """What the model calls of any number of runs share.

    Args:
        model: who answers; `ProviderModel` or `ScriptedModel`, or one of your own.
        prices: what models cost, as `read_prices` takes it; over the known prices.
        known_prices: whether prices of the public table count; default: they do, but for scripts
            only under a cap in dollars.
        transcript: called with a record of each attempt that was made: path, attempt, provider,
            model, temperature, messages, reply, usage, error. It is called as the attempt ends.
        redactor: what is taken out of the transcript; default: what the model itself takes out.
        policy: how often and how long a call is tried.
    """

    def __init__(
        self,
        model: Model,
        *,
        prices: Mapping[str, Any] | None = None,
        known_prices: bool | None = None,
        transcript: Callable[[dict[str, Json]], None] | None = None,
        redactor: Redactor | None = None,
        policy: Policy | None = None,
    ) -> None:
        if not hasattr(model, "complete"):
            raise ConfigurationError(
                f"models: {model!r:.40} cannot be asked; give a ProviderModel, a ScriptedModel, or "
                "what has complete(request)"
            )
        self.model = model
        self.prices = read_prices(prices)
        self.known_prices = known_prices
        self.transcript = transcript
        self.redactor = redactor or getattr(model, "redactor", None) or Redactor()
        self.policy = policy or Policy()
        self._found: dict[tuple[str, str, bool], Price | None] = {}
        self._cooling: dict[Account, float] = {}
        self._openings: dict[str, tuple[int, int]] = {}

    # Prices.

    async def prepare(self, request: Request, *, capped: bool) -> None:
        """Find the price of a request's model; for a real one the public table is read in a thread.

        What a script says costs nothing, so its prices matter only under a cap in dollars.

        Raises:
            ConfigurationError: under a cap in dollars, for a real model whose price nobody knows:
                the cap could not be held.
        """
        scripted = isinstance(self.model, ScriptedModel)
        if self.known_prices is None and (capped or not scripted):
            self.known_prices = True
            self._found.clear()
        key = _priced_as(request)
        if key not in self._found and self.known_prices and not scripted:
            self._found[key] = await in_thread(self._look_up, request)
        if capped and not scripted and self.price(request) is None:
            name = f"{request.provider}:{request.model}"
            raise ConfigurationError(
                f"{request.path}: a cap in dollars needs the price of {name}, which is unknown; state "
                f"it as Models(…, prices={{{request.model!r}: {{'input': USD per million tokens, "
                "'output': …}}), or 'free'"
            )

    def price(self, request: Request) -> Price | None:
        """Return what the request's model costs, or None if nobody knows."""
        key = _priced_as(request)
        if key not in self._found:
            self._found[key] = self._look_up(request)
        return self._found[key]

    def _look_up(self, request: Request) -> Price | None:
        foreign = not self.known_prices or not is_own_address(request)
        url = (request.base_url or "stated prices only") if foreign else ""
        return price_of(request.provider, request.model, self.prices, base_url=url)

    def worst_case(self, request: Request) -> Usage:
        """Return the most that one call may cost; see prices.worst_case."""
        return worst_case(request, self.price(request))

    def charged(self, request: Request, usage: Usage) -> Usage:
        """Return usage with its dollars."""
        return cost(usage, self.price(request)) if usage and not usage.usd else usage

    # Cool-downs.

    def cool(self, request: Request, until: float) -> None:
        """Let nobody call the request's account and model before `until`, of the run's clock."""
        key = _account(request)
        self._cooling[key] = max(until, self._cooling.get(key, until))

    def cooling(self, request: Request, now: float) -> float:
        """Return the seconds that calls to the request's account and model still wait."""
        return max(0.0, self._cooling.get(_account(request), now) - now)

    # Runs.

    def enter(self, run: Run) -> None:
        """Take note of a run, once for each time it is opened: a script continues where it was."""
        epoch = run.log.info.epoch
        opening = (epoch, 0 if epoch else id(run))  # a run without a journal is opened once
        if self._openings.get(run.run_id) == opening:
            return
        self._openings[run.run_id] = opening
        continued = getattr(self.model, "continued", None)
        if continued is not None:
            continued(run.run_id, run.log.recorded)

    def tell(self, ctx: Context, record: dict[str, Json]) -> None:
        """Hand a record to the transcript, without secrets; a failure there is a warning."""
        if self.transcript is None:
            return
        try:
            self.transcript(self.redactor.clean(record))
        except Exception as error:  # a transcript watches; it never steers
            ctx.warn(f"the transcript could not be written: {error}")

    async def aclose(self) -> None:
        """Close what the model holds open."""
        close = getattr(self.model, "aclose", None)
        if close is not None:
            await close()


def _priced_as(request: Request) -> tuple[str, str, bool]:
    return request.provider, request.model, is_own_address(request)


def _account(request: Request) -> Account:
    return request.provider, request.base_url, request.api_key_env, request.model


def models_of(ctx: Context) -> Models:
    """Return the models of a run.

    Raises:
        ConfigurationError: if the run was started without any.
    """
    found = ctx.run.resources.get("models")
    if not isinstance(found, Models):
        raise ConfigurationError(
            f"{ctx.path}: this run has no models; start it with resources={{'models': Models(…)}}"
        )
    found.enter(ctx.run)
    return found
