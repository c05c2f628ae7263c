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
from ..documents.check.trust import LocalActions, TrustStore
from ..documents.compiler.models import models_alone
from ..documents.project import Recorded
from ..models.endpoints import PROVIDER_NAMES
from ..models.stubs import dry_run_resources
from .sources import Given, RunSource

__all__ = ["LocalActions", "TrustStore", "document_of", "models_of", "without_effects"]

_KEPT = ("models", "model", "model_url", "redactor")  # resources that a dry run keeps


def document_of(
    what: str, given: Given, *, execute: bool, root: str, contents: Mapping[Path, bytes] | None
) -> Loaded:
    """Load a document with the settings of the command line."""
    settings = Settings(
        sets=given.sets, model=given.model, model_url=given.model_url, replies=given.replies,
        transcript=given.transcript, agents=given.agents, **given.limits(),
        environ=os.environ, providers=() if given.replies else PROVIDER_NAMES,
        root=Path(root) if root else None, execute=execute, agreed=contents,
        lenient=given.lenient, recorded=Recorded.from_json(given.documents),
    )  # fmt: skip
    return load(what, settings)


def models_of(given: Given) -> Mapping[str, Any]:
    """Return the models of a Python step with the settings of the command line."""
    return models_alone(
        Settings(
            model=given.model, model_url=given.model_url, replies=given.replies,
            transcript=given.transcript, environ=os.environ,
        )
    )  # fmt: skip


def without_effects(source: RunSource) -> RunSource:
    """Return a source whose effects are replaced by the rules of its scripted model."""
    resources = {name: source.resources[name] for name in _KEPT if name in source.resources}
    resources |= dry_run_resources(resources["models"].model)
    return cast("RunSource", replace(cast("Any", source), resources=resources))
