"""What calls cost: known prices, prices a document states, and the worst case of a call.

Rules:

1. An unknown price is None, never 0. A local or foreign server has no price of its own, however its
   model is called: a document states one, or `free`.
2. Estimates are upper bounds: one token is at least one byte of text.
3. Discounts are not counted: cached input costs the full price, and where a price depends on the
   hour the dearest one holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ..errors import ConfigurationError
from ..records import Usage, codec
from ..records.codec import Json
from .protocol import Request

__all__ = [
    "DEFAULT_MAX_TOKENS",
    "FREE",
    "Price",
    "Tier",
    "cost",
    "price_of",
    "read_prices",
    "tokens_at_most",
    "worst_case",
]

DEFAULT_MAX_TOKENS = 4096
PER_MESSAGE = 16  # tokens that a chat template adds around one message, generously
PER_TOOLS = 512  # tokens of the instructions that providers add when there are tools
MILLION = 1_000_000

# Only these bill under their own name; everything else is someone's server.
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
    """A price that holds for a call with more than `above` input tokens, in USD per million."""

    above: int
    input: float
    output: float


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs, in USD per million tokens; the highest tier that applies holds for all.

    Raises:
        ConfigurationError: for a price that is negative or not finite.
    """

    input: float
    output: float
    tiers: tuple[Tier, ...] = ()

    def __post_init__(self) -> None:
        figures = [(self.input, self.output), *((tier.input, tier.output) for tier in self.tiers)]
        for low, high in figures:
            codec.number("price: input", low, least=0)
            codec.number("price: output", high, least=0)

    def at(self, input_tokens: int) -> tuple[float, float]:
        """Return the prices of input and output for a call with that much input."""
        found: Price | Tier = self
        for tier in sorted(self.tiers, key=lambda tier: tier.above):
            if input_tokens > tier.above:
                found = tier
        return found.input, found.output

    def highest(self, input_tokens: int) -> tuple[float, float]:
        """Return the dearest prices of any call with at most that much input."""
        reached = [t for t in self.tiers if input_tokens > t.above]
        return (
            max([self.input, *(t.input for t in reached)]),
            max([self.output, *(t.output for t in reached)]),
        )


FREE = Price(0.0, 0.0)


def read_prices(stated: Mapping[str, Any] | None) -> dict[str, Price]:
    """Return the prices that a document states: `{model: {input: 2.5, output: 10} | "free"}`.

    A key is a model's name or `provider/model`; the figures are USD per million tokens.

    Raises:
        ConfigurationError: naming the entry and what was expected.
    """
    return {name: _stated(name, value) for name, value in (stated or {}).items()}


def _stated(name: str, value: Any) -> Price:
    if isinstance(value, Price):
        return value
    if value == "free":
        return FREE
    if not isinstance(value, Mapping) or set(value) != {"input", "output"}:
        raise ConfigurationError(
            f"prices: {name}: {value!r} is no price; give {{input: USD per million tokens, "
            "output: USD per million tokens}, or free"
        )
    low, high = (
        codec.number(f"prices: {name}: {key}", value[key], least=0) for key in ("input", "output")
    )
    return Price(low, high)


def price_of(
    provider: str, model: str, overrides: Mapping[str, Price] | None = None, *, base_url: str = ""
) -> Price | None:
    """Return what a model costs, or None if nobody knows; `overrides` come from `read_prices`.

    `base_url` is an endpoint of one's own: known prices do not hold there. The first lookup of a
    known price loads the table, which takes most of a second.
    """
    stated = overrides or {}
    for name in (f"{provider}/{model}", f"{provider}:{model}", model):
        if name in stated:
            return stated[name]
    source = _SOURCES.get(provider)
    return None if source is None or base_url else _known(source, model)


def _known(source: str, model: str) -> Price | None:
    # The table is large; only a price that nobody stated needs it.
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, found = get_snapshot().find_provider_model(model, None, source, None)
    except LookupError:
        return None
    now = datetime.now(UTC)
    hours = [_read(found.get_prices(now + timedelta(hours=hour))) for hour in range(24)]
    known = [price for price in hours if price is not None]
    if len(known) < len(hours):
        return None
    return max(known, key=lambda price: (price.input, price.output))


def _read(prices: Any) -> Price | None:
    """Return the price that an entry of the table states, or None if half of it is missing."""
    figures = [prices.input_mtok, prices.output_mtok]
    if any(figure is None for figure in figures):
        return None
    bounds = sorted({tier.start for figure in figures for tier in getattr(figure, "tiers", ())})
    low, high = (float(getattr(figure, "base", figure)) for figure in figures)
    tiers = tuple(Tier(bound, *(_above(figure, bound) for figure in figures)) for bound in bounds)
    return Price(low, high, tiers)


def _above(figure: Any, bound: int) -> float:
    reached = [tier.price for tier in getattr(figure, "tiers", ()) if tier.start <= bound]
    return float(reached[-1] if reached else getattr(figure, "base", figure))


def tokens_at_most(text: str) -> int:
    """Return an upper bound of a text's tokens: no token is shorter than a byte of UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def input_at_most(request: Request) -> int:
    """Return an upper bound of a request's input tokens."""
    total = 0
    for message in request.messages:
        total += PER_MESSAGE + tokens_at_most(message.content)
        for call in message.tool_calls:
            total += PER_MESSAGE + tokens_at_most(codec.encode(call.to_json()))
        if message.parts is not None:
            total += tokens_at_most(codec.encode(message.parts))
    if request.schema is not None:
        # It may be sent twice: as the format and, to servers that ignore formats, in words.
        total += PER_TOOLS + 2 * tokens_at_most(codec.encode(_json(request.schema)))
    if request.tools:
        total += PER_TOOLS + sum(tokens_at_most(codec.encode(t.to_json())) for t in request.tools)
    return total


def _json(schema: Mapping[str, Json]) -> Json:
    return codec.normalise(dict(schema), what="schema")


def worst_case(request: Request, price: Price | None) -> Usage:
    """Return the most that one call may cost, for a reservation.

    Output counts as `max_tokens`, 4,096 if the request does not say. Without a price the call is
    counted as unpriced.
    """
    tokens_in = input_at_most(request)
    tokens_out = request.max_tokens or DEFAULT_MAX_TOKENS
    if price is None:
        return Usage(1, tokens_in, tokens_out, unpriced=1)
    low, high = price.highest(tokens_in)
    return Usage(1, tokens_in, tokens_out, (tokens_in * low + tokens_out * high) / MILLION)


def cost(usage: Usage, price: Price | None) -> Usage:
    """Return `usage` with its dollars filled in; without a price its calls become unpriced."""
    if price is None:
        return Usage(
            calls=usage.calls,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            usd=0.0,
            unpriced=usage.calls,
            estimated=usage.estimated,
        )
    low, high = price.at(usage.input_tokens)
    usd = (usage.input_tokens * low + usage.output_tokens * high) / MILLION
    return Usage(
        calls=usage.calls,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        usd=usd,
        unpriced=0,
        estimated=usage.estimated,
    )
