"""The names of telemetry: those of the conventions, and the page that lists them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

from loopwright.telemetry import trace as names
from loopwright.telemetry.trace import INSTRUMENTS

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "telemetry.md"
OURS = {
    value
    for key, value in vars(names).items()
    if isinstance(value, str) and value.startswith(("gen_ai.", "loopwright."))
    and key != "EVALUATION_RESULT" and not key.startswith("__")
}  # fmt: skip
KNOWN = {
    value
    for module in (gen_ai_attributes, gen_ai_metrics)
    for value in vars(module).values()
    if isinstance(value, str) and value.startswith("gen_ai.")
}


@pytest.mark.parametrize("name", sorted(name for name in OURS if name.startswith("gen_ai.")))
def test_names_of_the_conventions_are_spelled_as_there(name: str) -> None:
    """A `gen_ai.` constant is a name that the conventions know."""
    assert name in KNOWN


def test_the_page_lists_every_name_and_no_other() -> None:
    """docs/guide/telemetry.md lists every name and no other."""
    listed = set(re.findall(r"`((?:gen_ai|loopwright)\.[a-z_.]*[a-z_])`", PAGE.read_text("utf-8")))
    listed -= {"loopwright.telemetry.trace_id", "gen_ai.evaluation.result"}
    assert listed == OURS


def test_every_metric_has_a_unit_and_a_sentence() -> None:
    """A metric without a unit cannot be read."""
    assert all(one.unit and one.description.endswith(".") for one in INSTRUMENTS)
    assert len({one.name for one in INSTRUMENTS}) == len(INSTRUMENTS)
