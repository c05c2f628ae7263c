"""Documents, and the models of Python steps, with the settings of the command line.

This module is slow to load; `sources.documents_module` loads it when it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ..documents import Loaded, Settings, load
from ..documents.check.trust import LocalActions, TrustStore, program_actions
from ..documents.compiler.functions import function
from ..documents.compiler.models import models_alone
from ..documents.project import Recorded
from ..engine.step import Step, as_step
from ..models.providers.endpoints import PROVIDER_NAMES
from ..models.scripted import dry_run_resources
from .measuring import measurement_of
from .sources import RunSource, SourceSettings

__all__ = [
    "LocalActions", "TrustStore", "document_of", "measurement_of", "models_of", "program_of", "without_effects",
]  # fmt: skip

# The scripted model and the redactor have no effects.
_KEPT_RESOURCES = ("models", "model", "model_url", "redactor")  # resources that a dry run keeps


def document_of(
    what: str,
    settings: SourceSettings,
    *,
    execute: bool,
    root: str,
    contents: Mapping[Path, bytes] | None,
) -> Loaded:
    """Load a document with the settings of the command line."""
    document_settings = Settings(
        sets=settings.sets, model=settings.model, model_url=settings.model_url, replies=settings.replies,
        transcript=settings.transcript, agents=settings.agents, **settings.limits(),
        environ=os.environ, providers=() if settings.replies else PROVIDER_NAMES,
        root=Path(root) if root else None, execute=execute, agreed=contents,
        lenient=settings.lenient, recorded=Recorded.from_json(settings.documents, only=settings.recorded_only),
    )  # fmt: skip
    return load(what, document_settings)


def program_of(
    reference: str, root: str, *, execute: bool, contents: Mapping[Path, bytes] | None
) -> tuple[Step | None, LocalActions]:
    """Return a step of a Python program, None without `execute`, and what needs approval to import it."""
    actions = program_actions(reference, Path(root), contents)
    step = as_step(function(reference, Path(root), contents)) if execute else None
    return step, actions


def models_of(settings: SourceSettings) -> Mapping[str, Any]:
    """Return the models of a Python step with the settings of the command line."""
    return models_alone(
        Settings(
            model=settings.model, model_url=settings.model_url, replies=settings.replies,
            transcript=settings.transcript, environ=os.environ,
        )
    )  # fmt: skip


def without_effects(source: RunSource) -> RunSource:
    """Return a source whose effects are replaced by the rules of its scripted model."""
    resources = {
        name: source.resources[name] for name in _KEPT_RESOURCES if name in source.resources
    }
    resources |= dry_run_resources(resources["models"].model)
    return cast("RunSource", replace(cast("Any", source), resources=resources))
