"""The JSON Schema of native documents, and the line that shows it to editors."""

from __future__ import annotations

import json
from typing import Any

from ...records.codec import Json
from .document import Document

__all__ = ["EDITOR_SCHEMA", "MODELINE", "editor_schema", "export_schema"]

# Beside the documents, so that editors find it in each clone, without an address and without the environment of this one.
EDITOR_SCHEMA = "loopwright.schema.json"
MODELINE = f"# yaml-language-server: $schema={EDITOR_SCHEMA}\n"


def export_schema(*, draft_07: bool = False) -> dict[str, Json]:
    """Return the JSON Schema of native documents.

    Args:
        draft_07: Whether the schema is in draft-07, which editors read, instead of draft 2020-12.

    Returns:
        A JSON Schema (https://json-schema.org). `loopwright schema` prints it.

    Example:
        >>> from loopwright.documents import export_schema
        >>> export_schema()["required"]
        ['schema', 'name']
    """
    schema = Document.model_json_schema(by_alias=True)
    if draft_07:
        return {"$schema": "http://json-schema.org/draft-07/schema#", **_draft_07(schema)}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def editor_schema() -> str:
    """Return the content of the file that the first line of documents names."""
    return json.dumps(export_schema(draft_07=True), separators=(",", ":")) + "\n"


def _draft_07(part: Any) -> Any:
    """Return a part of the schema in draft-07, which knows `definitions` and ignores what stands beside `$ref`."""
    if isinstance(part, list):
        return [_draft_07(item) for item in part]
    if not isinstance(part, dict):
        return part
    # Editors show a title as a heading, and that of pydantic is only the name of the key again.
    made = {
        "definitions" if key == "$defs" else key: _draft_07(value)
        for key, value in part.items()
        if key != "title" or not isinstance(value, str)
    }
    if "$ref" in made:
        target = {"$ref": made.pop("$ref").replace("#/$defs/", "#/definitions/")}
        return {"allOf": [target], **made} if made else target
    return made
