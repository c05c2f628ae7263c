"""Agents of pydantic-ai as steps: the output, and each request in the ledger."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Union

from ..engine.context import Context
from ..engine.functions import Purpose, types_of
from ..errors import ConfigurationError
from ..records import NOTHING, Usage
from ..records.typed import value_type
from .objects import ObjectStep, charged, identity_text, price_in, text_of

__all__ = ["PydanticAIAdapter", "PydanticAIStep"]

_FREE = ("test", "function")  # models of the library's own tests
_Model = tuple[str, str, str]  # provider, name, base URL


class PydanticAIAdapter:
    """Makes steps of pydantic-ai agents."""

    roots = ("pydantic_ai",)

    def matches(self, target: object) -> bool:
        return (
            not isinstance(target, type)
            and hasattr(target, "output_type")
            and callable(getattr(target, "run", None))
            and callable(getattr(target, "iter", None))
        )

    def step(self, target: Any, purpose: Purpose) -> ObjectStep:
        output = getattr(target.output_type, "__qualname__", identity_text(target.output_type))
        model = ", ".join(f"{provider}:{name}" for provider, name, _ in _models(target.model))
        identity = (model, identity_text(_instructions(target)), output)
        return PydanticAIStep(
            target=target,
            name=target.name or "agent",
            adapter="pydantic-ai/1",
            identity=identity,
            returns=_returned(target.output_type),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class PydanticAIStep(ObjectStep):
    """A pydantic-ai agent as a step."""

    def unpriced(self, ctx: Context) -> str:
        for provider, name, base_url in _models(self.target.model):
            if provider not in _FREE and price_in(ctx, provider, name, base_url) is None:
                return f"the price of {provider}:{name} is not known"
        return ""

    async def call(self, value: Any, ctx: Context) -> Any:
        from pydantic_ai import capture_run_messages
        from pydantic_ai.usage import RunUsage

        total = RunUsage()
        with capture_run_messages() as messages:
            try:
                result = await self.target.run(text_of(value), usage=total)
            finally:  # a run that failed has cost money too
                responses = [one for one in messages if getattr(one, "kind", "") == "response"]
                ctx.spend(_spent(total, responses, ctx))
        return result.output


def _spent(total: Any, responses: Sequence[Any], ctx: Context) -> Usage:
    """Return the usage of a run: each response at the price of its model, and unpriced the requests of
    agents that its tools called."""
    spent = NOTHING
    for response in responses:
        provider = response.provider_name or ""
        usage = Usage(1, response.usage.input_tokens, response.usage.output_tokens)
        # Models of tests have no price, and must not fail a run with a limit in dollars.
        if provider not in _FREE:
            url = response.provider_url or ""
            usage = charged(
                ctx, usage, provider=provider, model=response.model_name or "", base_url=url
            )
        spent += usage
    # The messages are those of the outer agent; the total includes agents that its tools called.
    inner = Usage(total.requests, total.input_tokens, total.output_tokens).less(spent)
    return spent + Usage(inner.calls, inner.input_tokens, inner.output_tokens, unpriced=inner.calls)


def _returned(output: Any) -> Any:
    """Return the type of the output of an agent, or None if it has no JSON form.

    An agent declares a type, a function that makes the output, a wrapper of these, or several of them.
    """
    declared = _declared(output)
    try:
        return None if declared is None or value_type(declared, "") is None else declared
    except ConfigurationError:
        return None


def _declared(output: Any) -> Any:
    for wrapped in (
        "output",
        "outputs",
        "output_function",
    ):  # of ToolOutput, NativeOutput, TextOutput
        if not isinstance(output, type) and hasattr(output, wrapped):
            return _declared(getattr(output, wrapped))
    if isinstance(output, Sequence) and not isinstance(output, str):
        types = [_declared(item) for item in output]
        return None if None in types else Union[tuple(types)]  # noqa: UP007 - of a list
    if inspect.isroutine(output):
        types_of_function = types_of(output, "")
        return None if types_of_function.output is None else types_of_function.output.declared
    return type(None) if output is None else output


def _models(model: Any) -> Iterator[_Model]:
    """Iterate over the models that an agent may call."""
    if isinstance(model, str):
        provider, _, name = model.partition(":")
        yield (provider, name, "") if name else ("", provider, "")
    elif model is not None and (several := getattr(model, "models", None)):
        for one in several:
            yield from _models(one)
    elif model is not None and not hasattr(model, "model_name"):
        yield ("", type(model).__name__, "")
    elif model is not None:
        yield (str(model.system), str(model.model_name), str(model.base_url or ""))


def _instructions(agent: Any) -> list[Any]:
    """Return the texts and functions that instruct an agent."""
    # The library has no public way to read them; a missing one counts as empty.
    names = ("_instructions", "_system_prompts", "_system_prompt_functions")
    groups = [getattr(agent, name, None) or () for name in names]
    return [
        [_instruction(item) for item in ([group] if isinstance(group, str) else group)]
        for group in groups
    ]


def _instruction(item: Any) -> Any:
    for name in ("instruction", "function"):
        item = getattr(item, name, item)
    return item
