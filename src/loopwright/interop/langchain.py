"""Runnables of LangChain and graphs of LangGraph as steps: JSON output, and each model call in the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..engine.context import Context
from ..engine.functions import Purpose
from ..records import Usage
from .objects import ObjectStep, charged, identity_text, limits_dollars

__all__ = ["LangChainAdapter", "RunnableStep"]

# Providers by the names that LangChain uses.
_PROVIDERS = {
    "google_genai": "gemini",
    "google_vertexai": "vertex",
    "mistralai": "mistral",
    "amazon_bedrock": "bedrock",
    "azure_openai": "azure",
}
# Attributes that say what a runnable consists of, and those that say what it is.
_PART_NAMES = (
    "steps",
    "steps__",
    "bound",
    "runnable",
    "prompt",
    "messages",
    "nodes",
    "func",
    "afunc",
)
_TEXT_NAMES = ("model_name", "model", "template")
# Parts may refer to each other in a cycle.
_DEPTH = 12


class LangChainAdapter:
    """Makes steps of LangChain runnables and LangGraph graphs."""

    roots = ("langchain_core", "langchain", "langgraph")

    def matches(self, target: object) -> bool:
        return not isinstance(target, type) and callable(getattr(target, "ainvoke", None))

    def step(self, target: Any, purpose: Purpose) -> ObjectStep:
        name = target.get_name() if hasattr(target, "get_name") else type(target).__name__
        return RunnableStep(
            target=target,
            name=name.partition("<")[0].replace("/", "-"),
            adapter="langchain/1",
            identity=tuple(_texts_of(target)),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class RunnableStep(ObjectStep):
    """A runnable or a graph as a step."""

    async def call(self, value: Any, ctx: Context) -> Any:
        calls: dict[object, _ModelCall] = {}
        try:
            output = await self.target.ainvoke(value, config={"callbacks": [_handler(calls)]})
        finally:  # a run that failed has cost money too
            for call in calls.values():
                ctx.spend(call.usage(ctx))
        unreported = [call.model for call in calls.values() if call.reported is None]
        if unreported:
            self.refuse(f"the usage of {unreported[0] or 'a model'} is not reported", ctx)
        elif ctx.spent.unpriced and limits_dollars(ctx):
            names = ", ".join(sorted({call.model for call in calls.values()}))
            self.refuse(f"the price of {names} is not known", ctx)
        # A message is its text; messages inside a state are objects.
        if not _is_message(output):
            return _with_messages_as_json(output)
        text = output.text
        return str(text() if callable(text) and not isinstance(text, str) else text)


def _handler(calls: dict[object, _ModelCall]) -> object:
    """Return a callback handler that collects the model calls of one run, by the library's run ID."""
    from langchain_core.callbacks import BaseCallbackHandler

    class Handler(BaseCallbackHandler):
        """Collects model calls."""

        run_inline = True  # in order, and on the event loop

        def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
            calls[kwargs["run_id"]] = _ModelCall.begun(serialized, kwargs.get("metadata"))

        def on_llm_start(self, serialized: Any, prompts: Any, **kwargs: Any) -> None:
            calls[kwargs["run_id"]] = _ModelCall.begun(serialized, kwargs.get("metadata"))

        def on_llm_end(self, response: Any, **kwargs: Any) -> None:
            # A call whose start was not reported counts as well.
            calls.setdefault(kwargs["run_id"], _ModelCall()).end(response)

    return Handler()


@dataclass
class _ModelCall:
    """One model call of a runnable: its model, and the tokens that the library reports."""

    provider: str = ""
    model: str = ""
    base_url: str = ""
    reported: Usage | None = None

    @classmethod
    def begun(cls, serialized: Any, metadata: Any) -> _ModelCall:
        metadata = metadata or {}
        provider = str(metadata.get("ls_provider") or "")
        members = (serialized or {}).get("kwargs") or {}
        # Another server has other prices, whatever the name of its model.
        urls = [str(url) for key, url in members.items() if key.endswith(("base_url", "_api_base"))]
        return cls(
            _PROVIDERS.get(provider, provider),
            str(metadata.get("ls_model_name") or ""),
            next((url for url in urls if url.startswith("http")), ""),
        )

    def end(self, response: Any) -> None:
        """Take over the tokens of a finished call."""
        try:
            message = response.generations[0][0].message
        except (AttributeError, IndexError):
            return  # a completion model, which reports nothing
        self.model = self.model or str(message.response_metadata.get("model_name") or "")
        if tokens := getattr(message, "usage_metadata", None):
            self.reported = Usage(1, tokens["input_tokens"], tokens["output_tokens"])

    def usage(self, ctx: Context) -> Usage:
        """Return what the call spent; without tokens it is one call without a price."""
        if self.reported is None:
            return Usage(calls=1, unpriced=1)
        return charged(
            ctx, self.reported, provider=self.provider, model=self.model, base_url=self.base_url
        )


def _with_messages_as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_messages_as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_messages_as_json(item) for item in value]
    if _is_message(value):
        return value.model_dump(mode="json", exclude_none=True)
    return value


def _is_message(value: object) -> bool:
    # By name, because checking the class would import the library for every output.
    return any(base.__name__ == "BaseMessage" for base in type(value).__mro__)


def _texts_of(target: Any, depth: int = 0) -> Iterator[str]:
    """Iterate over texts on a runnable and its parts: classes, models, templates and functions."""
    if depth > _DEPTH:
        return
    yield type(target).__name__
    for name in _TEXT_NAMES:
        if isinstance(text := getattr(target, name, None), str):
            yield f"{name}: {text}"
    for name in _PART_NAMES:
        for label, part in _parts(getattr(target, name, None)):
            yield f"{name}: {label}"
            if callable(part) and not hasattr(part, "invoke"):
                yield identity_text(part)
            else:
                yield from _texts_of(part, depth + 1)


def _parts(part: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over the parts of one attribute, with the key that each has in a mapping."""
    if isinstance(part, Mapping):
        yield from sorted(
            ((str(key), item) for key, item in part.items()), key=lambda pair: pair[0]
        )
    elif isinstance(part, list | tuple):
        yield from (("", item) for item in part)
    elif part is not None and not isinstance(part, str):
        yield ("", part)
