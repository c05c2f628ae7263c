"""The reference of documents tells of every key what the JSON Schema holds, and of nothing else; its examples run."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from documents.playing import HEAD
from loopwright import MemoryJournal, run
from loopwright.conditions.base import TAGS
from loopwright.documents import Settings, export_schema, load
from loopwright.documents.schema.document import ACTIONS
from loopwright.models import scripted_rules as replies
from loopwright.records import Status
from loopwright.templates.filters import FILTERS, METHODS, PREDICATES
from loopwright.templates.template import TAGS as TEMPLATE_TAGS
from loopwright.templates.variables import FIXED, OF_ITEMS, OF_LOOPS, OF_ROUNDS
from loopwright.tools.shell import Output

PAGE = (Path(__file__).parents[2] / "docs/documents.md").read_text("utf-8")
SCHEMA = export_schema()
STEP = (
    "Steps", "Commands and Python", "Prompts", "Other documents", "Groups and tools",
)  # fmt: skip
# Which models of the schema the table below a heading is about.
OF: dict[str, tuple[str, ...]] = {
    "The document": ("Document",),
    "Budget and prices": ("BudgetSpec", "PriceSpec"),
    "Lists": ("EachSpec",),
    "Loops": ("LoopSpec",),
    "Evaluators": ("EvaluateSpec",),
    "Checks": ("CheckSpec",),
    "Scores": ("ScoreSpec",),
    "Judges": ("JudgeSpec",),
    "Confidence": ("ConfidenceSpec",),
    "The next input": ("AdaptSpec",),
    "Consensus": ("ConsensusSpec",),
    "phased": ("PhasedSpec",),
    "reasoning": ("ReasoningSpec",),
    "A memory step": ("MemorySpec",),
    "The memory of a loop": ("LoopMemorySpec",),
    "Tools": ("ToolSpec",),
    "Servers": ("ServerSpec",),
    "Loop nodes": ("NodeSpec",),
    "Strategies, lessons and presets": ("StrategySpec", "LessonsSpec", "PresetSpec"),
}
ELSEWHERE = {"Action", "Inline", "StepSpec", "VoterSpec"}  # by the tests of steps and of models


def sections() -> dict[str, str]:
    """Return what stands below each heading."""
    parts = re.split(r"^#+ (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


SECTIONS = sections()


def rows(heading: str, first: str = "key") -> dict[str, list[str]]:
    """Return the cells of the tables whose first column is `first`, by each name in that column."""
    found: dict[str, list[str]] = {}
    kind = ""
    for line in SECTIONS[heading].splitlines():
        cells = [cell.strip() for cell in line[1:-1].split("|")]
        if not line.startswith("|"):
            kind = ""
        elif not kind:
            kind = cells[0]
        elif kind == first and set(line) - set("|-"):
            names = re.findall(r"`([^`]+)`", cells[0])
            assert names, line
            for name in names:
                assert name not in found, f"{name} is in {heading} twice"
                found[name] = cells[1:]
    return found


def fields(*models: str) -> dict[str, list[Any]]:
    """Return the fields of models of the schema, those of one name together."""
    found: dict[str, list[Any]] = {}
    for model in models:
        one: Any = SCHEMA if model == "Document" else SCHEMA["$defs"][model]
        for name, told in one["properties"].items():
            found.setdefault(name, []).append({**told, "required": name in one.get("required", ())})
    return found


MODELS = rows("Models").keys()


def defaults_of(told: list[Any]) -> set[str]:
    """Return the default values of fields as the page writes them; without one that says anything, nothing."""
    if any(one["required"] for one in told):
        return {"required"}
    values = [one.get("default") for one in told]
    return {
        v if isinstance(v, str) else json.dumps(v)
        for v in values
        if v not in (None, "", [], {}) or v is False
    }


@pytest.mark.parametrize("heading", OF)
def test_a_section_names_every_key_of_its_part_and_no_other(heading: str) -> None:
    """Both ways; the settings of models count as named where the section points to them."""
    known, named = fields(*OF[heading]), set(rows(heading))
    pointed = set(MODELS) if "(#models)" in SECTIONS[heading] else set()
    assert named - set(known) == set()
    assert set(known) - named - pointed == set()


@pytest.mark.parametrize("heading", [*OF, *STEP])
def test_a_section_tells_the_defaults_that_hold(heading: str) -> None:
    """What is given as code in the column of defaults is the default, and each default is told."""
    known = fields(*OF.get(heading, ("StepSpec",)))
    for name, (_, default, _) in rows(heading).items():
        wanted = defaults_of(known[name])
        given = re.findall(r"`([^`]+)`", default) or [default]
        if wanted and name not in ("output", "input"):  # of several models, with a default in one
            assert wanted & set(given), (name, default, wanted)
        elif "`" in default:
            assert name in _WORDED, (name, default)


# Null in the schema: what stands for it is another one's default, or that of a kind.
_WORDED = {
    "idempotent",
    "on_failure",
    "adapt",
    "answer",
    "max_tool_rounds",
    "max_tool_calls_per_reply",
    "conversation",
    "output",
}


def test_every_part_of_the_schema_has_its_section() -> None:
    """No model of the schema is left out."""
    told = {model for models in OF.values() for model in models} | ELSEWHERE
    assert told == {*SCHEMA["$defs"], "Document"}


def test_steps_are_told_whole() -> None:
    """The tables of steps, kinds and settings of models are together the keys of a step."""
    kinds = rows("Steps", "kind")
    named = {name for heading in STEP for name in rows(heading)} | kinds.keys() | MODELS
    assert named == fields("StepSpec").keys()
    assert kinds.keys() == set(ACTIONS)
    assert fields("Action").keys() < named
    assert fields("VoterSpec").keys() == MODELS - {"models"}


def test_conditions_are_told_with_their_fields_and_defaults() -> None:
    """Every condition, and each of its fields; a default is told where it says anything."""
    told = rows("Conditions", "condition")
    assert told.keys() == TAGS.keys()
    for tag, (cells, _) in told.items():
        for one in dataclasses.fields(TAGS[tag]):
            says = one.default is not dataclasses.MISSING and one.default not in (None, ())
            default = json.dumps(one.default) if isinstance(one.default, bool) else one.default
            shown = f"`{one.name}` {default:g}" if isinstance(default, int | float) else ""
            shown = shown or (f"`{one.name}` {default}" if says else f"`{one.name}`")
            assert shown in cells, (tag, shown)
        names = {one.name for one in dataclasses.fields(TAGS[tag])}
        assert set(re.findall(r"`([^`]+)`", cells)) == names


def listed(start: str) -> set[str]:
    """Return the names in the list of templates that begins with a word."""
    text = SECTIONS["Templates"].partition(f"- {start}: ")[2]
    return set(re.findall(r"`([^`]+)`", re.split(r"^(?:- |```)|;", text, flags=re.MULTILINE)[0]))


def test_what_templates_know_is_told() -> None:
    """Tags, filters, methods, tests, and the fields of `loop`: all of them and no other."""
    assert listed("tags") == set(TEMPLATE_TAGS)
    assert listed("filters") == set(FILTERS)
    assert listed("methods") == set(METHODS)
    assert listed("tests") == {name for name in PREDICATES if name.isalpha()}
    assert rows("Templates", "of `loop`").keys() == OF_LOOPS | OF_ITEMS
    for name in OF_ROUNDS:
        assert f"`{name}`" in rows("Templates", "of `loop`")["last"][0]
    roots = {name.partition(".")[0] for name in rows("Templates", "name")}
    assert roots - {"NAME", "loop", "memory"} <= FIXED


REPLY_KEYS = {info.alias or name for name, info in replies.ScriptedReply.model_fields.items()}


def test_replies_are_told() -> None:
    """The keys of rules and replies, and the faults and ends that they can have."""
    assert rows("Replies").keys() == {*replies.Rule.model_fields, *REPLY_KEYS}
    assert set(re.findall(r"`([^`]+)`", rows("Replies")["error"][0])) == set(replies.ERRORS)
    assert set(re.findall(r"`([^`]+)`", rows("Replies")["finish"][0])) == set(replies.FINISHES)
    assert set(get_args(Output)) <= set(
        re.findall(r"`(\w+)`", rows("Commands and Python")["output"][0])
    )


BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SCRIPT = next(block for block in BLOCKS if block.startswith("- {"))


@pytest.mark.parametrize("text", [b for b in BLOCKS if b is not SCRIPT])
def test_examples_run_on_the_replies_of_the_page(text: str, tmp_path: Path) -> None:
    """Each ends as it should: satisfied, or at its limit."""
    whole = text.startswith("schema:")
    part = "  - name: shown\n" + re.sub("^", "    ", text, flags=re.MULTILINE)
    (tmp_path / "shown.yaml").write_text(text if whole else HEAD + part)
    (tmp_path / "replies.yaml").write_text(SCRIPT)
    made = load(tmp_path / "shown.yaml", Settings(replies=str(tmp_path / "replies.yaml")))
    work = run(
        made.step,
        made.default_input or "Rome",
        journal=MemoryJournal(),
        budget=made.budget,
        resources=made.resources,
    )
    result = asyncio.run(work)
    assert result.status in (Status.SATISFIED, Status.EXHAUSTED), result.detail
    assert result.output not in (None, "")
