"""Which model an agent of a loop-node document asks, and where.

What the agent names wins, then what the document names for all (`orchestrator.model`, or `llm`), then what the caller
gives. That dialect's own examples name no model for most agents: these ask the model that another agent of the document
names first, or `DEFAULT_MODEL`, with a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import listed, nearest
from ..models.endpoints import PROVIDERS

__all__ = ["DEFAULT_MODEL", "Chosen", "Defaults", "choose"]

DEFAULT_MODEL = "gpt-4o-mini"
_ALIASES = {
    "lmstudio": "lm_studio", "lm-studio": "lm_studio", "openai-compatible": "openai_compatible",
    "openai_compat": "openai_compatible", "custom": "openai_compatible", "google": "gemini", "claude": "anthropic",
}  # fmt: skip


@dataclass(frozen=True)
class Defaults:
    """What a document names for all of its agents, and the first model that one of them names."""

    provider: str = ""
    model: str = ""
    named: str = ""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Defaults:
        """Return the defaults of a document."""
        places = [value.get("orchestrator"), value.get("llm")]
        given = [place for place in places if isinstance(place, Mapping)]
        model = next((str(p["model"]) for p in given if p.get("model")), "")
        provider = next((str(p["provider"]) for p in given if p.get("provider")), "")
        return cls(provider, model, next(_named(value), ""))


@dataclass(frozen=True)
class Chosen:
    """A model as `provider:model`; `note` says that nothing named it, `problem` that it cannot be."""

    name: str = ""
    note: str = ""
    problem: str = ""


def _named(value: Any) -> Any:
    """Iterate over the models that agents of OpenAI name, in document order."""
    if isinstance(value, Mapping):
        kind, params = str(value.get("type", "")), value.get("params")
        inner = params if isinstance(params, Mapping) else {}
        model = value.get("model") or inner.get("model")
        if kind.startswith("openai") and isinstance(model, str):
            yield model
        for item in value.values():
            yield from _named(item)
    elif isinstance(value, list):
        for item in value:
            yield from _named(item)


def provider_name(given: str) -> str:
    """Return a provider by the name that is used here, "" if it is not known."""
    word = given.strip().lower()
    word = _ALIASES.get(word, word)
    return word if word in PROVIDERS else ""


def unknown_provider(given: str) -> str:
    """Return what is wrong with a provider's name."""
    return f"{given!r} is no provider{nearest(given, PROVIDERS) or listed(given, PROVIDERS)}"


def choose(kind: str, provider: str, model: str, url: str, defaults: Defaults) -> Chosen:
    """Return the model of an agent."""
    openai = kind.startswith("openai")
    given = provider or ("" if model else defaults.provider)
    if openai and not provider:
        given = given if not model and defaults.model else "openai"
    if not given:
        given = "openai_compatible" if url else "ollama" if kind == "local_llm" else "openai"
    name = provider_name(given)
    if not name:
        return Chosen(problem=unknown_provider(given))
    if model or defaults.model:
        return Chosen(f"{name}:{model or defaults.model}")
    if openai or name == "openai":
        other = defaults.named or DEFAULT_MODEL
        return Chosen(
            f"openai:{other}", f"no model is named for these agents, which ask openai:{other}"
        )
    return Chosen(
        f"{name}:{DEFAULT_MODEL}",
        f"no model of {name} is named for these agents, which ask {DEFAULT_MODEL}",
    )
