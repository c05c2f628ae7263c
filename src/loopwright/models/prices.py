"""The cost of calls: known prices and stated prices.

Rules:

1. An unknown price is None, never 0. Another server has no known price, whatever the name of its model;
   a document states one, or `free`.
2. Discounts do not count: cached input has the full price, and of prices that depend on the hour the
   highest counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ..errors import ConfigurationError
from ..records import Usage, codec
from ..records.codec import Json

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

__all__ = ["FREE", "MILLION", "Price", "Tier", "cost", "price_of", "read_prices"]

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
    return {name: _stated(name, value) for name, value in (stated or {}).items()}


def _stated(name: str, value: Json) -> Price:
    if isinstance(value, Price):
        return value
    if value == "free":
        return FREE
    if not isinstance(value, Mapping) or set(value) != {"input", "output"}:
        raise ConfigurationError(
            f"prices: {name}: {value!r} is not a price; give {{input: USD per million tokens, "
            "output: USD per million tokens}, or free"
        )
    low, high = (
        codec.number(f"prices: {name}: {key}", value[key], minimum=0) for key in ("input", "output")
    )
    return Price(low, high)


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
    tiers = tuple(Tier(bound, *(_above(figure, bound) for figure in figures)) for bound in bounds)
    return Price(low, high, tiers)


def _above(figure: Json, bound: int) -> float:
    reached = [tier.price for tier in getattr(figure, "tiers", ()) if tier.start <= bound]
    return float(reached[-1]) if reached else _base(figure)


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
