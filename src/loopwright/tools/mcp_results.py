"""What a tool of an MCP server answered, as JSON that a journal and a prompt can hold."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from ..codec import Json
from ..errors import StepError

__all__ = ["output_of"]


def output_of(result: Any) -> Json:
    """Return what a tool answered: its texts, its structure where there is no text, or a list.

    Binary content is described by its type, size and digest, as no prompt can hold it.

    Raises:
        StepError: `tool_error` with its text.
    """
    blocks = [_block(block) for block in result.content]
    texts = [block["text"] for block in blocks if block.keys() == {"type", "text"}]
    text = "\n".join(str(one) for one in texts)
    if result.is_error:
        raise StepError(text or "the tool failed and did not say why", kind="tool_error")
    if len(texts) == len(blocks):
        if not blocks and result.structured_content is not None:
            return result.structured_content
        return text
    return list(blocks)


def _block(block: Any) -> dict[str, Json]:
    data = block.model_dump(mode="json", by_alias=True, exclude_none=True)
    data.pop("_meta", None)
    data.pop("annotations", None)
    inner = data.get("resource", data)
    for key in ("data", "blob"):
        if isinstance(inner.get(key), str):
            raw = _decoded(inner.pop(key))
            inner |= {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    found: dict[str, Json] = data
    return found


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=False)
    except ValueError:
        return text.encode()
