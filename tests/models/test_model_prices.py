"""What calls cost, and what is reserved for them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.errors import ConfigurationError
from loopwright.models import (
    FREE,
    Message,
    Price,
    Request,
    ToolDefinition,
    cost,
    price_of,
    read_prices,
    worst_case,
)
from loopwright.models.protocol import tokens_at_most
from loopwright.models.registry import Tier
from loopwright.records import Usage


def ask(text: str = "hello", **more: Any) -> Request:
    return Request((Message("user", text),), model="m", provider="openai", **more)


@pytest.mark.parametrize(
    ("provider", "model", "url"),
    [
        ("ollama", "gpt-4o", ""),
        ("lm_studio", "gpt-4o", ""),
        ("openai_compatible", "gpt-4o", "https://example.com/v1"),
        ("openai", "gpt-4o", "http://localhost:1234"),
        ("openai", "no-such-model", ""),
        ("nobody", "gpt-4o", ""),
    ],
)
def test_an_unknown_price_is_none(provider: str, model: str, url: str) -> None:
    """A price that nobody knows is None, never 0; a local gpt-4o is not OpenAI's."""
    assert price_of(provider, model, base_url=url) is None


def test_known_prices_are_known() -> None:
    """The public table is read: input and output in USD per million, with its tiers."""
    found = price_of("openai", "gpt-4o")
    assert found is not None
    assert 0 < found.input < found.output
    tiered = price_of("gemini", "gemini-2.5-pro")
    assert tiered is not None
    assert tiered.tiers


def test_a_stated_price_comes_before_a_known_one() -> None:
    """A document's price stands, by model or by provider and model; `free` is a price of 0."""
    stated = read_prices({"gpt-4o": {"input": 1, "output": 2}, "ollama/llama3": "free"})
    assert price_of("openai", "gpt-4o", stated) == Price(1, 2)
    assert price_of("ollama", "gpt-4o", stated) == Price(1, 2)
    assert price_of("ollama", "llama3", stated) is not None
    assert price_of("ollama", "llama3", stated) == FREE


@pytest.mark.parametrize(
    "value", [3, "cheap", {}, {"input": 1}, {"input": 1, "output": 2, "x": 3}, None]
)
def test_a_price_that_cannot_be_read_is_refused(value: Any) -> None:
    """The message names the entry and how a price is written."""
    with pytest.raises(
        ConfigurationError, match=r"prices: gpt: .* is not a price; give \{input: USD per million"
    ):
        read_prices({"gpt": value})


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "2", True])
def test_a_price_is_a_finite_number(value: Any) -> None:
    """Negative, infinite and non-numeric prices are refused with the field's name."""
    with pytest.raises(ConfigurationError, match="prices: gpt: input: "):
        read_prices({"gpt": {"input": value, "output": 1}})


def test_dollars_follow_from_tokens() -> None:
    """A million tokens cost what the price says; a tier holds for the whole call."""
    price = Price(2.0, 10.0, (Tier(1000, 4.0, 20.0),))
    assert cost(Usage(1, 1000, 100), price).usd == pytest.approx(0.003)
    assert cost(Usage(1, 1001, 100), price).usd == pytest.approx(0.006004)
    assert cost(Usage(1, 1000, 100), FREE) == Usage(1, 1000, 100)


def test_without_a_price_a_call_is_unpriced() -> None:
    """What nobody can price is counted as such, not as free."""
    assert cost(Usage(2, 10, 10), None) == Usage(2, 10, 10, unpriced=2)
    assert worst_case(ask(), None).unpriced == 1


@given(
    st.text(max_size=200), st.integers(1, 500), st.floats(0, 100), st.floats(0, 100), st.floats(0, 100),
    st.integers(0, 300),
)  # fmt: skip
def test_no_call_costs_more_than_was_reserved(
    text: str, most: int, low: float, high: float, tier: float, above: int
) -> None:
    """Whatever tokens a call within its bounds takes, it costs at most the worst case."""
    price = Price(low, high, (Tier(above, tier, tier),))
    request = ask(text, max_tokens=most)
    reserved = worst_case(request, price)
    for tokens in {0, 1, above, above + 1, reserved.input_tokens}:
        spent = cost(Usage(1, min(tokens, reserved.input_tokens), most), price)
        assert spent.usd <= reserved.usd + 1e-9
        assert spent.tokens <= reserved.tokens


@given(st.text(st.characters(), max_size=100))
def test_a_token_is_at_least_a_byte(text: str) -> None:
    """The bound of a text's tokens is its bytes, even for text that no encoder takes."""
    assert tokens_at_most(text) >= len(text)


def test_everything_that_is_sent_is_reserved() -> None:
    """A schema, tools and former calls add to the worst case."""
    plain = worst_case(ask(), None).input_tokens
    assert worst_case(ask(schema={"type": "object"}), None).input_tokens > plain
    assert worst_case(ask(tools=(ToolDefinition("search"),)), None).input_tokens > plain
    assert worst_case(ask(), None).output_tokens == 4096
    assert worst_case(ask(max_tokens=7), None).output_tokens == 7
