"""The state that the model calls of a process share: model, prices, pauses and transcript.

Pass it to a run with `run(…, resources={"models": Models(…)})`; there is no global instance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
    """The model, prices and retry policy that any number of runs share.

    Args:
        model: a `ProviderModel`, a `ScriptedModel` or an object with `complete(request)`.
        prices: prices by model, as for `read_prices`; they override known prices. Default none.
        known_prices: whether to use the public price table; default: yes, for scripts only under a
            limit in dollars.
        transcript: called after each attempt with its path, attempt, provider, model, temperature,
            messages, reply, usage and error; default none.
        redactor: removes secrets from the transcript; default: the redactor of the model.
        policy: number and duration of retries; default `Policy()`.

    Raises:
        ConfigurationError: for an object without `complete`, or an invalid price.

    Example:

    >>> models = Models(ScriptedModel([{"replies": ["4"]}]), prices={"gpt-4o": "free"})
    >>> models.prices["gpt-4o"].input
    0.0
    """

    def __init__(
        self,
        model: Model,
        *,
        prices: Mapping[str, Json] | None = None,
        known_prices: bool | None = None,
        transcript: Callable[[dict[str, Json]], None] | None = None,
        redactor: Redactor | None = None,
        policy: Policy | None = None,
    ) -> None:
        if not hasattr(model, "complete"):
            raise ConfigurationError(
                f"models: {model!r:.40} is not a model; give a ProviderModel, a ScriptedModel, or an object "
                "with complete(request)"
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
        """Look up the price of a request's model; the public table is read in a thread.

        Scripted replies are free, so their prices matter only under a limit in dollars.

        Raises:
            ConfigurationError: under a limit in dollars, for a real model with an unknown price, because
                the limit could not be enforced.
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
        """Return the price of the request's model, or None if it is unknown."""
        key = _priced_as(request)
        if key not in self._found:
            self._found[key] = self._look_up(request)
        return self._found[key]

    def _look_up(self, request: Request) -> Price | None:
        foreign = not self.known_prices or not is_own_address(request)
        url = (request.base_url or "stated prices only") if foreign else ""
        return price_of(request.provider, request.model, self.prices, base_url=url)

    def worst_case(self, request: Request) -> Usage:
        """Return the highest possible cost of one call; see `prices.worst_case`."""
        return worst_case(request, self.price(request))

    def charged(self, request: Request, usage: Usage) -> Usage:
        """Return usage with its cost in dollars."""
        return cost(usage, self.price(request)) if usage and not usage.usd else usage

    # Cool-downs.

    def cool(self, request: Request, until: float) -> None:
        """Pause all calls of the request's account and model until `until`, by the run's clock."""
        key = _account(request)
        self._cooling[key] = max(until, self._cooling.get(key, until))

    def cooling(self, request: Request, now: float) -> float:
        """Return the remaining seconds of the pause of the request's account and model."""
        return max(0.0, self._cooling.get(_account(request), now) - now)

    # Runs.

    def enter(self, run: Run) -> None:
        """Register a run each time it is opened, so that a script continues at its recorded position."""
        epoch = run.log.info.epoch
        opening = (epoch, 0 if epoch else id(run))  # a run without a journal is opened once
        if self._openings.get(run.run_id) == opening:
            return
        self._openings[run.run_id] = opening
        continued = getattr(self.model, "continued", None)
        if continued is not None:
            continued(run.run_id, run.log.recorded)

    def write_transcript(self, ctx: Context, record: dict[str, Json]) -> None:
        """Pass a record without secrets to the transcript; a failure there is a warning."""
        if self.transcript is None:
            return
        try:
            self.transcript(self.redactor.clean(record))
        except Exception as error:  # a transcript must not change the run
            ctx.warn(f"the transcript could not be written: {error}")

    async def aclose(self) -> None:
        """Close the connections of the model."""
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
    models = ctx.run.resources.get("models")
    if not isinstance(models, Models):
        raise ConfigurationError(
            f"{ctx.path}: this run has no models; start it with resources={{'models': Models(…)}}"
        )
    models.enter(ctx.run)
    return models
