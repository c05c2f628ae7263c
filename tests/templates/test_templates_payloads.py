"""Templates: nothing hostile reaches out or costs too much."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from template_payloads import PAYLOADS
from templating import refusal

Reports = dict[str, dict[str, Any]]


@pytest.fixture(scope="module", params=["strict", "lenient"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def reports(mode: str) -> Reports:
    """How every payload ended, each rendered in a process with limits of its own."""
    script = Path(__file__).parent / "template_payloads.py"
    command = [sys.executable, str(script), f"--{mode}"]
    found: Reports = json.loads(subprocess.check_output(command))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", PAYLOADS)
def test_a_payload_neither_reaches_out_nor_costs_much(reports: Reports, name: str) -> None:
    """A payload is refused or harmless: nothing executed, no secret shown, below 64 MB, no hang."""
    report = reports[name]
    assert report["outcome"] in ("refused", "rendered")
    assert not report["leaked"]
    assert report["events"] == []
    assert report["megabytes"] < 64


RENDERED = {"bomb: long text", "bomb: nested ifs, fewer", "bomb: stripped spaces",
            "bomb: fewer expressions", "bomb: fewer conditions", "bomb: pairs kept"}  # fmt: skip


@pytest.mark.slow
def test_strict_mode_refuses_every_escape(mode: str, reports: Reports) -> None:
    """Only bombs that stay within the limits render; lenient mode also leaves escapes empty."""
    rendered = {name for name, report in reports.items() if report["outcome"] == "rendered"}
    assert rendered == RENDERED if mode == "strict" else rendered > RENDERED


BOXED = "{% set x = [] %}" + "{% set x = [x] %}" * 600


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% for a in range(9999) %}" * 2 + "{% endfor %}" * 2, "loops more than 100,000 times"),
        ("{% for a in range(9999) %}" + "x" * 300 + "{% endfor %}", "writes more than 2,097,152"),
        ("{% set x = 'a' %}" + "{% set x = x ~ x %}" * 30, "makes values of more than 4,194,304"),
        ("{% for a in range(9999) %}" + "{% if a %}{% endif %}" * 99 + "{% endfor %}", "too much"),
        (BOXED + "{{ x }}", "a value is nested more than 64 deep"),
        (BOXED + "{% set y = x[0] %}{{ x == [[y]] }}", "values nested too deep"),
    ],
)
def test_a_render_has_limits(source: str, reason: str) -> None:
    """Rounds, output, values made, work and depth are bounded, each with an error of its own."""
    assert reason in refusal(source)
