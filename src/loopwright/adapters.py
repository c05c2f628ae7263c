"""Adapters: steps that make the input of the next iteration from the last one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from .engine.adapters import feedback, keep_input, merge, rotate, use_output
from .engine.composites import sequence
from .engine.step import CompositeStep

if TYPE_CHECKING:
    from .models.protocol import ModelSettings

__all__ = ["feedback", "improve", "keep_input", "merge", "rotate", "use_output"]

INSTRUCTION = "Rewrite the input so that the next output meets the feedback. Keep its purpose."
_TEMPLATE = """{{ instruction }}
Reply with the new input only.

Input:
{{ value.input }}

Output:
{{ value.previous }}

Feedback:
{{ value.feedback }}
{% for improvement in value.improvements %}- {{ improvement }}
{% endfor %}"""


def improve(
    instruction: str = INSTRUCTION,
    *,
    model: str | Sequence[str] = (),
    **settings: Unpack[ModelSettings],
) -> CompositeStep:
    """Make an adapter that asks a model for the next input.

    The model receives the loop's input, the last output and its feedback. Its reply is the next input.

    Args:
        instruction: The task of the model, a template. Default: rewrite the input so that the next output
            meets the feedback.
        model: `provider:model`, or several to try in order. Default: the model of the run.
        **settings: Settings of the model call. See `prompt`.

    Returns:
        A step for `adapt`. Each call of it is one model call.

    Raises:
        TemplateError: For an invalid template.
        ConfigurationError: For an invalid model or setting.

    Example:
        >>> from loopwright import Evaluation, Loop, MaxIterations, run_sync
        >>> from loopwright.models import Models, ScriptedModel
        >>> loop = Loop(
        ...     str.upper,
        ...     lambda text: Evaluation(passed="SHORT" in text, feedback="Ask for a short text."),
        ...     improve(model="openai:gpt-4o-mini"),
        ...     MaxIterations(3),
        ... )
        >>> models = Models(ScriptedModel([{"replies": ["a short poem"]}]))
        >>> run_sync(loop, "a poem", resources={"models": models}).output
        'A SHORT POEM'
    """
    from .prompts import prompt  # templates and models are loaded at first use

    # Inserted before the template is compiled, so that the instruction may itself be a template.
    text = _TEMPLATE.replace("{{ instruction }}", instruction)
    return sequence(feedback, prompt(text, model=model, name="ask", **settings), name="improve")
