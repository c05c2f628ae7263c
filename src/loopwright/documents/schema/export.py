"""JSON Schema of native documents, for editors; made from the models that documents are checked against."""

from __future__ import annotations

from ...records.codec import Json
from .document import Document

__all__ = ["export_schema"]


def export_schema() -> dict[str, Json]:
    """Return the JSON Schema (draft 2020-12) of a native document."""
    schema = Document.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
