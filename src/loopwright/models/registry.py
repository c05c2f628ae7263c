"""The state that the model calls of a process share: model, names, prices, pauses and transcript.

Pass it to a run with `run(…, models=Models(…))`. Runs without one share a default registry, which is created at
the first model call with the keys that the environment has then.

1. An unknown price is None, never 0. Another server has no known price, whatever the name of its model;
   a document states one, or `free`.
2. Discounts do not count: cached input has the full price, and of prices that depend on the hour the
   highest counts.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from ..engine.context import Context
from ..engine.functions import in_thread
from ..engine.run_state import Run
from ..errors import ConfigurationError, nearest
from ..records import Usage, codec
from ..records.codec import Json
from ..records.redaction import Redactor, secrets_in
from .errors import Policy
from .protocol import (
    DEFAULT_MAX_TOKENS,
    Model,
    ModelSettings,
    Request,
    checked_settings,
    input_at_most,
)
from .providers.endpoints import PLACES, ProviderModel, is_own_address
from .scripted import ScriptedModel

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

__all__ = [
    "FREE",
    "MILLION",
    "MODEL_VARIABLE",
    "Models",
    "Price",
    "Tier",
    "cost",
    "model_of_environment",
    "models_of",
    "price_of",
    "read_prices",
    "split_model",
    "worst_case",
]

MILLION = 1_000_000

# Providers whose prices are known; any other name may be another server.
_SOURCES = {
    "openai": "openai",
    "anthropic": "anthropic",
    "deepseek": "deepseek",
    "gemini": "google",
    "google": "google",
    "openrouter": "openrouter",
    "groq": "groq",
    "mistral": "mistral",
    "xai": "x-ai",
    "together": "together",
    "moonshot": "moonshotai",
    "azure": "azure",
    "bedrock": "aws",
    "vertex": "google",
}


@dataclass(frozen=True, slots=True)
class Tier:
    """The price of a call with many input tokens, in USD per million tokens.

    Args:
        above: the input tokens above which it applies.
        input: the price of input tokens.
        output: the price of output tokens.
    """

    above: int
    input: float
    output: float


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a model in USD per million tokens.

    Args:
        input: the price of input tokens.
        output: the price of output tokens.
        tiers: higher prices for large inputs; the highest tier that applies counts for all tokens of
            the call. Default none.

    Raises:
        ConfigurationError: for a price that is negative or not finite.

    Example:

    >>> Price(2.5, 10).at(1000)
    (2.5, 10)
    """

    input: float
    output: float
    tiers: tuple[Tier, ...] = ()

    def __post_init__(self) -> None:
        figures = [(self.input, self.output), *((tier.input, tier.output) for tier in self.tiers)]
        for low, high in figures:
            codec.number("price: input", low, minimum=0)
            codec.number("price: output", high, minimum=0)

    def at(self, input_tokens: int) -> tuple[float, float]:
        """Return the prices of input and output for a call with this number of input tokens."""
        price: Price | Tier = self
        for tier in sorted(self.tiers, key=lambda tier: tier.above):
            if input_tokens > tier.above:
                price = tier
        return price.input, price.output

    def highest(self, input_tokens: int) -> tuple[float, float]:
        """Return the highest prices of any call with at most this number of input tokens."""
        reached = [t for t in self.tiers if input_tokens > t.above]
        return (
            max([self.input, *(t.input for t in reached)]),
            max([self.output, *(t.output for t in reached)]),
        )


FREE = Price(0.0, 0.0)


def read_prices(stated: Mapping[str, Json] | None) -> dict[str, Price]:
    """Return stated prices as `Price` objects.

    Args:
        stated: `{input: 2.5, output: 10}` in USD per million tokens, a `Price` or "free", by the
            model's name or `provider/model`; None for none.

    Returns:
        The prices by the same keys.

    Raises:
        ConfigurationError: for an invalid price, with its key.

    Example:

    >>> read_prices({"gpt-4o": {"input": 2.5, "output": 10}})["gpt-4o"].output
    10.0
    """
    prices: dict[str, Price] = {}
    for name, value in (stated or {}).items():
        if isinstance(value, Price):
            prices[name] = value
        elif value == "free":
            prices[name] = FREE
        elif isinstance(value, Mapping) and set(value) == {"input", "output"}:
            low, high = (
                codec.number(f"prices: {name}: {key}", value[key], minimum=0)
                for key in ("input", "output")
            )
            prices[name] = Price(low, high)
        else:
            raise ConfigurationError(
                f"prices: {name}: {value!r} is not a price; give {{input: USD per million tokens, "
                "output: USD per million tokens}, or free"
            )
    return prices


def price_of(
    provider: str, model: str, overrides: Mapping[str, Price] | None = None, *, base_url: str = ""
) -> Price | None:
    """Return the price of a model, or None if it is unknown.

    The first lookup loads the table of known prices, which takes up to a second.

    Args:
        provider: a name of `PROVIDERS`.
        model: the model's name at the provider.
        overrides: stated prices from `read_prices`; default none.
        base_url: the address of another server, where known prices do not apply; default "".

    Returns:
        The stated price, else the known price, else None.

    Example:

    >>> price_of("ollama", "llama3.2") is None
    True
    """
    stated = overrides or {}
    for name in (f"{provider}/{model}", f"{provider}:{model}", model):
        if name in stated:
            return stated[name]
    source = _SOURCES.get(provider)
    return None if source is None or base_url else _public_price(source, model)


def _public_price(source: str, model: str) -> Price | None:
    # The table is large, and stated prices do not need it.
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:  # the table comes with the extra `models`
        return None

    try:
        _, entry = get_snapshot().find_provider_model(model, None, source, None)
    except LookupError:
        return None
    now = datetime.now(UTC)
    # Some providers charge less at night; a run may last until the day.
    hours = [_read(entry.get_prices(now + timedelta(hours=hour))) for hour in range(24)]
    complete = [price for price in hours if price is not None]
    # A price for a part of the day is no upper bound.
    if len(complete) < len(hours):
        return None
    return max(complete, key=lambda price: (price.input, price.output))


def _read(prices: ModelPrice) -> Price | None:
    """Return the price of an entry of the table, or None if it is incomplete."""
    figures: list[Json] = [prices.input_mtok, prices.output_mtok]
    if any(figure is None for figure in figures):
        return None
    bounds = sorted({tier.start for figure in figures for tier in getattr(figure, "tiers", ())})
    low, high = (_base(figure) for figure in figures)
    tiers = []
    for bound in bounds:
        above = (
            [tier.price for tier in getattr(figure, "tiers", ()) if tier.start <= bound]
            or [_base(figure)]
            for figure in figures
        )
        tiers.append(Tier(bound, *(float(prices[-1]) for prices in above)))
    return Price(low, high, tuple(tiers))


def _base(figure: Json) -> float:
    base: Json = getattr(figure, "base", figure)
    return float(base)


def cost(usage: Usage, price: Price | None) -> Usage:
    """Return `usage` with its cost in USD.

    Args:
        usage: the reported usage.
        price: the price of the model; None marks the calls as unpriced.

    Returns:
        The same usage with `usd`, or with `unpriced`.

    Example:

    >>> cost(Usage(1, 1_000_000, 0), Price(2.5, 10)).usd
    2.5
    """
    if price is None:
        return replace(usage, usd=0.0, unpriced=usage.calls)
    low, high = price.at(usage.input_tokens)
    usd = (usage.input_tokens * low + usage.output_tokens * high) / MILLION
    return replace(usage, usd=usd, unpriced=0)


MODEL_VARIABLE = "LOOPWRIGHT_MODEL"  # environment variable: the model of prompts that name none
Account = tuple[str, str, str, str]
_KEYS = ("_API_KEY", "_KEY", "_TOKEN", "_TOKEN_BEDROCK")  # endings of variables that may hold a key


class Models:
    """The models, prices and retry policy that any number of runs share.

    Args:
        model: a `ProviderModel`, a `ScriptedModel` or an object with `complete(request)`. Default: the
            models of all providers, with the keys that the environment has now.
        default: the model of prompts that name none, as `provider:model` or one of `names`. Default: the
            environment variable LOOPWRIGHT_MODEL.
        names: other names for models, such as `{"fast": "ollama:qwen3:4b"}`; default none.
        settings: settings of every call that does not set them itself; default none.
        base_url: the address of the server for calls that name none; default: the provider's own.
        prices: prices by model, as for `read_prices`; they override known prices. Default none.
        known_prices: whether to use the public price table; default: yes, for scripts only under a
            limit in dollars.
        transcript: called after each attempt with its path, attempt, provider, model, temperature,
            messages, reply, usage and error; default none.
        redactor: removes secrets from the transcript; default: the redactor of the model.
        policy: number and duration of retries; default `Policy()`.

    Raises:
        ConfigurationError: for an object without `complete`, an invalid price, setting or name.

    Example:

    >>> models = Models(default="fast", names={"fast": "ollama:qwen3:4b"}, prices={"qwen3:4b": "free"})
    >>> models.resolve("fast")
    ('ollama', 'qwen3:4b')
    >>> models.prices["qwen3:4b"].input
    0.0
    """

    def __init__(
        self,
        model: Model | None = None,
        *,
        default: str = "",
        names: Mapping[str, str] | None = None,
        settings: ModelSettings | None = None,
        base_url: str = "",
        prices: Mapping[str, Json] | None = None,
        known_prices: bool | None = None,
        transcript: Callable[[dict[str, Json]], None] | None = None,
        redactor: Redactor | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.reads_environment = model is None
        if model is None:
            model = model_of_environment(os.environ)
        if not hasattr(model, "complete"):
            raise ConfigurationError(
                f"models: {model!r:.40} is not a model; give a ProviderModel, a ScriptedModel, or an object "
                "with complete(request)"
            )
        self.model = model
        self.names = dict(names or {})
        for name, target in self.names.items():
            # A colon separates provider and model, so such a name could never be resolved.
            if ":" in name or not name:
                raise ConfigurationError(f"names: {name!r} is not a name; use one without a colon")
            split_model(target)
        self.default = default or os.environ.get(MODEL_VARIABLE, "").strip()
        if default:
            self.resolve(default)
        self.settings = checked_settings(cast("Mapping[str, Json]", settings or {}))
        self.base_url = base_url or self.settings.get("base_url", "")
        self.prices = read_prices(prices)
        self.known_prices = known_prices
        self.transcript = transcript
        # None without secrets, so that no value is searched.
        self.redactor: Redactor | None = redactor or getattr(model, "redactor", None) or None
        self.policy = policy or Policy()
        self._known: dict[tuple[str, str, bool], Price | None] = {}
        self._cooling: dict[Account, float] = {}
        self._openings: dict[str, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"Models({self.model!r}, default={self.default!r})"

    async def __aenter__(self) -> Models:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def resolve(self, name: str) -> tuple[str, str]:
        """Return provider and model of `provider:model`, or of one of `names`.

        Raises:
            ConfigurationError: for another name, with the nearest one.
        """
        if ":" in name or not self.names:
            return split_model(name)
        if name not in self.names:
            hint = nearest(name, self.names) or f"; the names are {', '.join(self.names)}"
            raise ConfigurationError(f"model: {name!r} is not a name of these models{hint}")
        return split_model(self.names[name])

    def read_key(self, variable: str) -> None:
        """Read a key that a call names from the environment, if the keys come from there."""
        # A registry with a model of its own never reads the environment: tests must not use real keys.
        if self.reads_environment and variable and isinstance(self.model, ProviderModel):
            value = os.environ.get(variable, "")
            if value and self.model.keys.get(variable) != value:
                self.model.add_key(variable, value)
                self.redactor = self.model.redactor

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
            # Prices that were looked up without the public table are incomplete.
            self._known.clear()
        key = _priced_as(request)
        if key not in self._known and self.known_prices and not scripted:
            self._known[key] = await in_thread(self._look_up, request)
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
        if key not in self._known:
            self._known[key] = self._look_up(request)
        return self._known[key]

    def _look_up(self, request: Request) -> Price | None:
        foreign = not self.known_prices or not is_own_address(request)
        url = (request.base_url or "stated prices only") if foreign else ""
        return price_of(request.provider, request.model, self.prices, base_url=url)

    def worst_case(self, request: Request) -> Usage:
        """Return the highest possible cost of one call; see `worst_case`."""
        return worst_case(request, self.price(request))

    def charged(self, request: Request, usage: Usage) -> Usage:
        """Return usage with its cost in dollars; a scripted reply without a stated price is free."""
        if not usage or usage.usd:
            return usage
        price = self.price(request)
        free = price is None and isinstance(self.model, ScriptedModel)
        return usage if free else cost(usage, price)

    # Cool-downs.

    def cool(self, request: Request, until: float) -> None:
        """Pause all calls of the request's account and model until `until`, by the run's clock."""
        key = _account(request)
        # A shorter pause that arrives later does not end a longer one.
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
        # Only scripted models have a position; the `Model` protocol stays one method.
        continued = getattr(self.model, "continued", None)
        if continued is not None:
            continued(run.run_id, run.log.recorded)

    def write_transcript(self, ctx: Context, record: dict[str, Json]) -> None:
        """Pass a record without secrets to the transcript; a failure there is a warning."""
        if self.transcript is None:
            return
        try:
            self.transcript(record if self.redactor is None else self.redactor.clean(record))
        except Exception as error:  # a transcript must not change the run
            ctx.warn(f"the transcript could not be written: {error}", code="transcript_failed")

    async def aclose(self) -> None:
        """Close the connections of the model."""
        close = getattr(self.model, "aclose", None)
        if close is not None:
            await close()


def worst_case(request: Request, price: Price | None) -> Usage:
    """Return the highest possible usage of one call, for a reservation.

    Args:
        request: the request; without `max_tokens` the output counts as 4,096 tokens.
        price: the price of its model; None counts the call as unpriced.

    Returns:
        A usage of one call, with upper bounds of tokens and USD.

    Example:

    >>> from loopwright.models import FREE, Message
    >>> request = Request((Message("user", "hello"),), model="m", provider="openai", max_tokens=100)
    >>> worst_case(request, FREE).output_tokens
    100
    """
    tokens_in = input_at_most(request)
    tokens_out = request.max_tokens or DEFAULT_MAX_TOKENS
    if price is None:
        return Usage(1, tokens_in, tokens_out, unpriced=1)
    low, high = price.highest(tokens_in)
    return Usage(1, tokens_in, tokens_out, (tokens_in * low + tokens_out * high) / MILLION)


def _priced_as(request: Request) -> tuple[str, str, bool]:
    # Without a URL, a request goes to the provider's own address.
    own = not request.base_url or is_own_address(request)
    return request.provider, request.model, own


def _account(request: Request) -> Account:
    return request.provider, request.base_url, request.api_key_env, request.model


def split_model(name: str) -> tuple[str, str]:
    """Return provider and model of `provider:model`.

    Raises:
        ConfigurationError: for another form.
    """
    provider, _, model = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not provider or not model:
        raise ConfigurationError(
            f"{name!r} is not a model; write provider:model, like openai:gpt-4o"
        )
    return provider, model


def model_of_environment(
    environ: Mapping[str, str], named: Collection[str] = (), *, allowed: Iterable[str] = ()
) -> ProviderModel:
    """Return the models of all providers, with the keys in an environment.

    Args:
        environ: the environment variables.
        named: further variables that hold keys; default none.
        allowed: private hosts that may be called; default none.
    """
    keys = {k: v for k, v in environ.items() if v and (k in named or k.endswith(_KEYS))}
    places = {name: environ[name] for name in PLACES if environ.get(name)}
    secrets = secrets_in(environ, named).values()
    return ProviderModel(keys, places=places, allowed=allowed, secrets=secrets)


def models_of(ctx: Context) -> Models:
    """Return the models of a run; the default registry if the run was started without any.

    Raises:
        ConfigurationError: if the resource `models` is something else.
    """
    models = ctx.run.resources.get("models")
    if models is None:
        models = _DEFAULT.of_run(ctx.run)
    if not isinstance(models, Models):
        raise ConfigurationError(
            f"{ctx.path}: {models!r:.60} is not a Models; start the run with models=Models(…)"
        )
    models.enter(ctx.run)
    return models


class _Default:
    """The registry of runs without one.

    It is created again when the keys in the environment have changed, for example after a missing key was set.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: Models | None = None
        self._environment: dict[str, str] = {}
        self._runs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, int]
        self._runs = weakref.WeakKeyDictionary()

    def of_run(self, run: Run) -> Models:
        """Return the registry, which the run releases at its end."""
        lease = run.owned.get(_LEASE)
        if lease is None:
            environment = {
                name: value
                for name, value in os.environ.items()
                if name.endswith(_KEYS) or name in PLACES or name == MODEL_VARIABLE
            }
            with self._lock:
                if self._models is None or environment != self._environment:
                    self._models, self._environment = Models(), environment
                models = self._models
            lease = run.owned[_LEASE] = _Lease(self, models)
            if run.redactor is None and lease.models.redactor is not None:
                run.redact_with(lease.models.redactor)
        return cast("_Lease", lease).models

    def count(self, change: int) -> int:
        """Return the number of runs of this event loop that use the registry, after a change."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._runs[loop] = self._runs.get(loop, 0) + change
            return self._runs[loop]


class _Lease:
    """The use of the default registry by one run."""

    def __init__(self, default: _Default, models: Models) -> None:
        self.models = models
        self._default = default
        default.count(1)

    async def aclose(self) -> None:
        """Close the connections of this event loop after its last run."""
        if self._default.count(-1) == 0:
            await self.models.aclose()


_LEASE = "default models"
_DEFAULT = _Default()
