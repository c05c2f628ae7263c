"""What a round sees of the rounds before it, by every name and helper that tells of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dialects.workflow_v2.support import Listening
from loopwright import run
from loopwright.documents import Settings, load
from loopwright.models import Models
from loopwright.testing import run_virtual

TOLD = (
    "{{ has_past_loops() }}",
    "{{ get_loop_number() }}",
    "{{ loop_number }}",
    "{{ score }}",
    "{{ get_past_loops() | length }}",
    "{{ previous_outputs.past_loops | length }}",
    "{{ get_past_insights() }}",
    "{{ get_past_loop_data('found') }}",
    "{{ get_past_loop_data('at') }}",
    "{{ get_round_info() }}",
    "{{ past_loops_metadata.insights }}",
    "{{ get_past_loops_metadata().found }}",
    "{{ get_loop_rounds() }}",
    "{{ get_final_score() }}",
    "{{ get_my_past_decisions('worker') }}",
    "{{ get_debate_evolution() }}",
    "{{ format_loop_metadata() }}",
    "{{ get_score_threshold() }}",
    "{{ get_loop_status() }}",
)
DOCUMENT = """
orchestrator: {{id: host, model: gpt-4o, agents: [refine]}}
agents:
  - id: refine
    type: loop
    max_loops: 9
    score_threshold: 1.0
    score_extraction_pattern: "SCORE: ([0-9.]+)"
    cognitive_extraction: {{enabled: true, extract_patterns: {{insights: ["LESSON (.+?)(?:\\\\n|$)"]}}}}
    past_loops_metadata: {{round: "r{{{{ loop_number }}}}", found: "{{{{ insights }}}}", at: "{{{{ score }}}}"}}
    internal_workflow:
      orchestrator: {{id: inner, agents: [worker, scorer]}}
      agents:
        - {{id: worker, type: openai-answer, prompt: {prompt}}}
        - {{id: scorer, type: openai-answer, prompt: Rate}}
"""


def rounds(folder: Path, scores: list[float]) -> list[list[str]]:
    """Return what the worker was told in each round, value by value."""
    file = folder / "main.yaml"
    file.write_text(DOCUMENT.format(prompt=json.dumps("\n@@\n".join(TOLD))), encoding="utf-8")
    replies: list[dict[str, Any]] = [
        {"step": "*scorer*", "replies": [f"SCORE: {score}" for score in scores]},
        {"replies": [f"LESSON number {i} is learnt" for i in range(1, len(scores) + 1)]},
    ]
    found = load(file, Settings())
    model = Listening(replies)
    run_virtual(run(found.step, "tea", resources={**found.resources, "models": Models(model)}))
    return [r.prompt.split("\n@@\n") for r in model.asked if "worker" in r.path]


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.sampled_from([0.1, 0.25, 0.5, 0.99]), min_size=1, max_size=4))
def test_each_round_sees_what_the_round_before_gave(tmp_path: Path, before: list[float]) -> None:
    """In round n every history helper tells of n-1 rounds, and of what the last of them gave."""
    told = rounds(tmp_path, [*before, 1.0])
    assert len(told) == len(before) + 1
    assert told[0][:8] == [
        "False",
        "1",
        "1",
        "",
        "0",
        "0",
        "",
        "",
    ]
    for number, seen in enumerate(told[1:], 2):
        score, lesson = before[number - 2], f"number {number - 1} is learnt"
        decided = [f"Loop r{n}: LESSON number {n} is learnt" for n in range(1, number)]
        assert seen == [
            "True", str(number), str(number), f"{score}", str(number - 1), str(number - 1), lesson,
            lesson, f"{score}", f"r{number - 1}",
            " | ".join(f"number {n} is learnt" for n in range(number - 1, 0, -1)), lesson,
            str(number - 1), f"{score}",
            "\n".join(d.replace("Loop r", "Loop ") for d in decided[-2:]),
            " -> ".join(f"Round {n}: Agreement {s:g}" for n, s in enumerate(before[: number - 1], 1)),
            "\n".join(
                f"Loop {n}: score={s}, status=completed" for n, s in enumerate(before[: number - 1], 1)
            ),
            "1.0", "running",
        ]  # fmt: skip
