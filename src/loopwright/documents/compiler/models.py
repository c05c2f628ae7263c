"""The resources of a run: models with their prices, and a transcript."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from ...errors import ConfigurationError, DocumentError, Problem
from ...models import (
    Model,
    Models,
    Redactor,
    ScriptedModel,
    price_of,
    read_prices,
    secrets_in,
)
from ...models.registry import model_of_environment, split_model
from ...records.codec import Json
from ..project import Project, Settings
from ..schema.document import Document
from ..schema.traverse import models_in, variables_in
from .prompts import SCRIPTED

__all__ = ["models_alone", "resources"]


def resources(document: Document, settings: Settings, project: Project) -> dict[str, Json]:
    """Return the resources for `run(resources=…)`; problems are added to the project."""
    prices: dict[str, Json] = {}
    for item in project.documents.values():
        prices |= {
            name: value if isinstance(value, str) else value.model_dump()
            for name, value in item.prices.items()
        }
    named = {name for item in project.documents.values() for name in variables_in(item)}
    # Also the variables that the document passes on: a command may print them.
    redactor = Redactor(secrets_in(settings.environ, named))
    try:
        model = _model(settings, named)
        # Scripted replies cost nothing, so they need no price.
        if settings.replies is None:
            _priced(document, settings, project, prices)
        result = Models(model, prices=prices, transcript=_transcript(settings), redactor=redactor)
    except ConfigurationError as error:
        project.problems.append(Problem(settings.replies or "", 0, 0, "", str(error)))
        return {}
    except DocumentError as error:
        project.problems += error.problems
        return {}
    scripted = SCRIPTED if settings.replies is not None else ""
    default = settings.model or document.model or (document.models or [scripted])[0]
    return {"models": result, "model": default, **({"redactor": redactor} if redactor else {})}


def models_alone(settings: Settings) -> dict[str, Json]:
    """Return the resources for `run(resources=…)` of a Python step, which has no document.

    Raises:
        ConfigurationError, DocumentError: for replies that cannot be read.
    """
    redactor = Redactor(secrets_in(settings.environ))
    models = Models(_model(settings), transcript=_transcript(settings), redactor=redactor)
    scripted = SCRIPTED if settings.replies is not None else ""
    return {
        "models": models,
        "model": settings.model or scripted,
        "model_url": settings.model_url or "",
    }


def _model(settings: Settings, named: Collection[str] = ()) -> Model:
    """Return the model: scripted, or a provider's with the keys of providers and those in `named`."""
    if settings.replies is not None:
        try:
            text = Path(settings.replies).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            wording = f"cannot be read: {why}; --replies expects a file of scripted replies"
            raise DocumentError([Problem(settings.replies, 0, 0, "", wording)]) from error
        return ScriptedModel(text, file=settings.replies)
    return model_of_environment(settings.environ, named, allowed=settings.allowed_hosts)


def _priced(
    document: Document, settings: Settings, project: Project, prices: Mapping[str, Json]
) -> None:
    """Report a budget in dollars over a model whose price is unknown."""
    capped = settings.max_usd is not None or (document.budget and document.budget.usd is not None)
    # Without a price the budget would never end the run.
    if not capped and not any(loop_capped(d) for d in project.documents.values()):
        return
    stated = read_prices(prices)
    names = {name for d in project.documents.values() for name in models_in(d)}
    if settings.model:
        names = {settings.model}
    for name in sorted(names):
        provider, model = split_model(name)
        own = document.model_url or settings.model_url or ""
        if price_of(provider, model, stated, base_url=own) is None:
            source = next(iter(project.sources.values()))
            what = (
                f"a budget in dollars needs the price of {name}, which is unknown; state it as "
                f"prices: {{{model}: {{input: USD per million tokens, output: …}}}}, or free"
            )
            project.problems.append(source.problem(("prices",), what))


def loop_capped(document: Document) -> bool:
    """Return whether a loop of a document has a budget in dollars."""
    # A search in the JSON covers conditions at every depth, in each of their forms.
    return '"usd"' in json.dumps(document.model_dump(mode="json", exclude_unset=True), default=str)


def _transcript(settings: Settings) -> Callable[[dict[str, Json]], None] | None:
    if settings.transcript is None:
        return None
    path = Path(settings.transcript)

    def write(record: dict[str, Json]) -> None:
        # Opened for each call, so that the transcript is complete after a crash.
        with path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record, ensure_ascii=False) + "\n")

    return write
