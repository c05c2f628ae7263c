"""Typed extraction with a pydantic model: an invoice from a text, checked by its own arithmetic.

    python examples/typed_extraction.py
    python examples/typed_extraction.py ollama:qwen3
    python examples/typed_extraction.py openai_compatible:small http://127.0.0.1:8080

Without a model it reads replies as small local models write them, from a script.
"""

from __future__ import annotations

import sys
from typing import Any, Literal

from pydantic import BaseModel

from loopwright import Loop, MaxIterations, Passed, prompt, run_sync
from loopwright.models import Models, ScriptedModel

TEXT = """
Invoice A-17 from Brightwater Chairs, 3 March 2026
1 chair, oak            90.00 EUR
Postage                  5.00 EUR
Total                   95.00 EUR, payable until 1 April
"""
# Thinking, prose and a fence around JSON with a wrong total.
FIRST = """<think>The user wants an invoice as JSON.</think>
Here it is:
```json
{"number": "A-17", "currency": "EUR", "lines": [{"text": "chair, oak", "amount": 90}], "total": 95, "paid": false}
```"""
# Bare keys, single quotes, a number as text, a trailing comma and a Python word.
SECOND = """{number: 'A-17', currency: 'eur', lines: [{text: 'chair, oak', amount: '90.00'},
{text: 'Postage', amount: 5},], total: 95.00, paid: False}"""


class Line(BaseModel):
    """One line of an invoice."""

    text: str
    amount: float


class Invoice(BaseModel):
    """The value to extract."""

    number: str
    currency: Literal["EUR", "USD", "GBP"]
    lines: list[Line]
    total: float
    paid: bool


def adds_up(invoice: Invoice) -> dict[str, Any]:
    """Return whether the lines add up to the total, and by how much they do not."""
    difference = invoice.total - sum(line.amount for line in invoice.lines)
    if abs(difference) < 0.005:
        return {"passed": True}
    feedback = f"The lines and the total differ by {difference:.2f}. Is a line missing?"
    return {"passed": False, "feedback": feedback}


extract = Loop(
    prompt(
        "Extract the invoice as JSON. {{ loop.last.feedback }}\n{{ loop.initial }}",
        output=Invoice,
    ),
    adds_up,
    until=Passed() | MaxIterations(3),
    name="extract",
)


def models(model: str = "", url: str = "") -> Models:
    """Return a real model by its name and address, or the script."""
    if model:
        return Models(default=model, base_url=url)
    return Models(ScriptedModel([{"replies": [FIRST, SECOND]}]), default="openai_compatible:small")


if __name__ == "__main__":
    result = run_sync(extract, TEXT, models=models(*sys.argv[1:3]))
    for item in result.history:
        print(f"{item.number}: {'passed' if item.passed else 'not yet'} {item.feedback}".rstrip())
    invoice = result.unwrap()
    print(f"{invoice.number}: {invoice.total:.2f} {invoice.currency}, {len(invoice.lines)} lines")
