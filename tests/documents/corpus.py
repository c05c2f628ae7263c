"""Native documents that use every field of the format; what is tested and mutated starts here."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

__all__ = ["DOCUMENTS", "MODULE", "Project", "files", "projects"]

ROOT = Path(__file__).parents[2]

MODULE = """\
def upper(value):
    return str(value).upper()

def rate(output):
    return {"score": min(1.0, len(str(output)) / 40), "feedback": "longer"}

def longer(last):
    return f"{last.input} and more"

number = 3
"""

EVERY_STEP = """\
schema: loopwright/1
name: every step
description: one step of each kind
version: 1.10
input: three words here
env: {LIMIT: 012, FLAG: yes, DAY: 2026-01-07}
model: openai:gpt-4o-mini
prices: {gpt-4o-mini: {input: 0.15, output: 0.6}}
budget: {calls: 200, tokens: 100000, usd: 2.5}
timeout: 10m
at_once: 2
output: last
steps:
  - {name: shout, python: "steps:upper"}
  - name: count
    needs: shout
    shell: [wc, -w]
    stdin: "{{ shout }}"
    env: {LIMIT: "{{ env.LIMIT }}"}
    timeout: 30s
    on_failure: retry
    max_retries: 1
    retry_delay: 0.1
  - name: maybe
    if: "{{ shout | length > 3 }}"
    set: {text: "{{ shout }}", again: ["{{ count }}", 1, null]}
    otherwise: nothing
  - name: both
    parallel:
      - {name: left, set: "{{ input }}"}
      - {name: right, prompt: "Say {{ shout }}", temperature: 0, max_tokens: 20}
  - name: either
    fallback:
      - {name: first, shell: ["false"]}
      - {name: second, shell: "echo second"}
  - name: inner
    steps:
      - {name: one, set: "{{ shout }}"}
      - {name: two, needs: one, set: "{{ one }} two"}
    output: all
  - name: many
    each:
      items: [1, 2, 3]
      at_once: 2
      execute: {set: "{{ loop.current }}"}
  - {name: last, set: "{{ inner }}", on_failure: continue}
"""

EVERY_LOOP = """\
schema: loopwright/1
name: every_loop
model: scripted:any
steps:
  - name: refine
    required: true
    loop:
      execute: {prompt: "Improve {{ loop.initial }}: {{ loop.last.feedback }}"}
      evaluate:
        - check: {min_words: 1, not_matches: "(?i)todo"}
        - checklist:
            - {name: short, max_words: 50, weight: 2}
            - {name: sound, command: [grep, -q, .]}
            - {name: object, python: "steps:rate"}
        - judge: {criteria: {clear: It is clear, kind: It is kind}, max_votes: 3, accept_lead: 2}
      adapt: feedback
      until:
        any_of:
          - all_of: [passed, {score_at_least: 0.8}]
          - no_improvement: 2
      guards: [{timeout: 1m}, {budget: {calls: 50}}]
      keep: best
      min_iterations: 1
      max_iterations: 5
  - name: outer
    loop:
      execute:
        loop:
          execute: {python: "steps:upper"}
          evaluate: {score: {label: score, scale: [0, 10], of: {set: "score: 8"}}}
          until: [{score_at_least: 0.5}]
      adapt: {rotate: [a, b, c]}
      until: [{output_matches: A}, {max_iterations: 3}]
      on_failure: continue
  - name: sentence
    loop:
      execute: {set: "{{ loop.iteration }}"}
      adapt: {merge: {hint: "{{ loop.last.feedback }}"}}
      until: It sounds like a sentence that a person would say
  - name: agree
    consensus:
      prompt: "Yes or no: {{ input }}"
      voters: [{model: "scripted:a"}, {model: "scripted:b"}]
"""

DOCUMENTS = {"every_step": EVERY_STEP, "every_loop": EVERY_LOOP}


Project = dict[str, str]  # files by name, of which the first is the document that is read


def projects() -> list[Project]:
    """Return all documents of this project with the files that they need: these, the examples, those of other dialects."""
    found: list[Project] = [
        {f"{name}.yaml": text, "steps.py": MODULE} for name, text in DOCUMENTS.items()
    ]
    for file in sorted((ROOT / "examples").rglob("*.yaml")):
        text = file.read_text(encoding="utf-8")
        if re.search(r"(?m)^(steps|orchestrator|nodes|agents):", text):
            module_path_of = {
                str(other.relative_to(file.parent)): other.read_text(encoding="utf-8")
                for other in sorted(file.parent.rglob("*"))
                if other.suffix in (".py", ".yaml", ".txt", ".json") and other != file
            }
            found.append({file.name: text, **module_path_of})
    cases = sorted((ROOT / "tests" / "dialects").glob("*/cases/*.yaml"))
    return found + [
        dict(yaml.safe_load(file.read_text(encoding="utf-8"))["files"]) for file in cases
    ]


def files() -> list[str]:
    """Return the texts of the documents alone."""
    return [next(iter(project.values())) for project in projects()]
