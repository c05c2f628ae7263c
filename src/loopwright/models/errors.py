"""The vocabulary of model errors: each kind, and whether the same call may be repeated.

=================  =========  ==================================================================
kind               repeated   meaning
=================  =========  ==================================================================
transient          yes        the endpoint or the connection failed temporarily
throttled          yes        too many requests; no request before `retry_after`
quota              no         the credit or quota is used up
permanent          no         the request cannot succeed; `reason` says why
truncated          no         the reply reached the token limit; `on_cutoff` decides what follows
refused            no         a safety filter or the model declined
malformed          no         the reply has another format; two more calls quote the problem
unknown_outcome    yes        no complete reply after the request was sent; it may be billed
cancelled          no         a person or a signal ended the call
empty_output       no         the reply is empty; one more call follows
=================  =========  ==================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import MODEL_ERROR_KINDS, Billed, ModelError, StepError
from ..records import Usage
from ..records.codec import Json

if TYPE_CHECKING:
    # `protocol` imports the modules that raise these errors.
    from .protocol import Request

__all__ = [
    "KINDS", "Billed", "ModelError", "ModelFault", "error_from_json", "model_error_of", "too_many_calls",
]  # fmt: skip

KINDS = MODEL_ERROR_KINDS
ModelFault = ModelError  # the name of version 0.1, kept for one release


def error_from_json(data: Mapping[str, Json], *, path: str = "") -> ModelError:
    """Return the error that `ModelError.to_json` wrote."""
    return ModelError(
        data["message"],
        kind=data["kind"],
        path=path,
        reason=data.get("reason", ""),
        retry_after=data.get("retry_after"),
        usage=Usage.from_json(data["usage"]) if "usage" in data else None,
        billed=data.get("billed"),
        partial=data.get("partial", ""),
        problem=data.get("problem", ""),
        fields=tuple(data.get("fields", ())),
        parts=data.get("parts"),
    )


def too_many_calls(request: Request, number: int) -> ModelError:
    """Return the error of a reply that calls more tools than one reply may."""
    problem = (
        f"it calls {number} tools or more at once, {request.max_tool_calls} is the limit of one reply; "
        "call fewer tools, and continue after their results"
    )
    return ModelError(
        f"{request.provider}/{request.model}: {problem} (max_tool_calls_per_reply)",
        kind="malformed", problem=problem, path=request.path, reason="too_many_tool_calls",
    )  # fmt: skip


def model_error_of(error: StepError) -> ModelError | None:
    """Return the failure of a call as a ModelError, or None if no model call caused it."""
    if isinstance(error, ModelError):
        return error
    if error.kind not in KINDS:
        return None
    return ModelError(str(error), kind=error.kind, path=error.path, retry_after=error.retry_after)
