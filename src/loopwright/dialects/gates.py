"""The gate of other dialects: a step that asks a person to choose one of several options."""

from __future__ import annotations

from collections.abc import Mapping

from ..engine.context import Context
from ..errors import StepError
from ..records.codec import Json

__all__ = ["choose"]


def choose(value: Mapping[str, Json], ctx: Context) -> dict[str, Json]:
    """Ask a person to choose an option, and return the choice. An answer that is no option is asked for again.

    Args:
        value: `question`, a text; `options`, a list of objects with `value`, `label` and, if the option asks for a text,
            `text`, the name of that text; `ends`, the values that end the run as failed.
        ctx: the context of the step.

    Returns:
        `{"selected": VALUE, "text": TEXT}`.

    Raises:
        StepError: of kind `rejected`, for a choice that ends the run.

    Example:
        >>> choose.__name__  # in a document: `python: loopwright.dialects.gates:choose`
        'choose'
    """
    options, number = value["options"], 0
    known = {
        str(word).strip().lower(): one for one in options for word in (one["label"], one["value"])
    }
    words = " or ".join(str(one["value"]) for one in options)
    while True:
        number += 1
        request = {"question": value["question"], "options": options}
        answer = ctx.ask(f"choice-{number}", request, f"{value['question']} Answer with {words}.")
        given = answer if isinstance(answer, Mapping) else {"selected": answer}
        chosen = known.get(str(given.get("selected")).strip().lower())
        if chosen is not None:
            break
    text = str(given.get("text") or "")
    if chosen["value"] in value.get("ends", ()):
        reason = f": {text}" if text else ""
        raise StepError(
            f"a person chose {chosen['value']}{reason}", kind="rejected", retryable=False
        )
    return {"selected": chosen["value"], "text": text}
