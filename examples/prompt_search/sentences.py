"""Proposals for a prompt: a sentence more or less, as a seeded program, where a model would write."""

from __future__ import annotations

from loopwright import Context

SENTENCES = (
    "Answer as YYYY-MM-DD.",
    "These texts put the day before the month.",
    "A year of two digits is one of the 20th century.",
    "Think step by step.",
    "Be polite.",
    "You are an expert.",
    "Answer with the date only.",
    "Ignore what is not a date.",
)
FIRST = "When did it happen?"


def change(prompt: str | None, ctx: Context) -> str:
    """Add a sentence that the prompt does not have, or leave one out."""
    lines = (prompt or FIRST).split("\n")
    sentence = ctx.random.choice(SENTENCES)
    kept = [line for line in lines if line != sentence]
    return "\n".join(kept if sentence in lines else [*lines, sentence])
