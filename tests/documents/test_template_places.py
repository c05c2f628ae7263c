"""A problem in a template has the line and column of the placeholder, in whatever style the text is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopwright.documents import Settings, load
from loopwright.documents.yaml.reader import read
from loopwright.errors import DocumentError

HEAD = "schema: loopwright/1\nname: x\nsteps:\n  - name: a\n"

STYLES = {
    "plain": "    set: some {{ zork }}\n",
    "plain of several lines": "    set: some\n      text with\n      {{ zork }} in it\n",
    "quoted once": "    set: 'it''s {{ zork }}'\n",
    "quoted twice": '    set: "a \\"q\\"\\t\\u00e9 \\n {{ zork }}"\n',
    "quoted over lines": '    set: "one \\\n      two\n\n      {{ zork }}"\n',
    "a block": "    set: |\n      one\n\n        two {{ zork }}\n",
    "a block with an indicator": "    set: |2-  # as it is\n        one {{ zork }}\n",
    "a folded block": "    set: >-\n      one\n      two {{ zork }}\n      three\n",
    "a tag and an anchor": "    set: &a !!str 'one {{ zork }}'\n",
    "inside a mapping": "    set: {k: [1, {z: 'one {{ zork }}'}]}\n",
    "after other words of that name": "    set: zork and {{ input }} and zork {{ zork }}\n",
}


def problem(folder: Path, text: str) -> DocumentError:
    (folder / "document.yaml").write_text(text)
    with pytest.raises(DocumentError) as caught:
        load(folder / "document.yaml", Settings())
    return caught.value


@pytest.mark.parametrize("style", STYLES)
def test_an_unknown_name_is_reported_where_it_stands(style: str, tmp_path: Path) -> None:
    text = HEAD + STYLES[style]
    before = text[: text.index("zork }}")]
    (found,) = problem(tmp_path, text).problems
    assert (found.line, found.column) == (before.count("\n") + 1, len(before.split("\n")[-1]) + 1)
    assert found.path.startswith("steps[0].set")


@pytest.mark.parametrize("style", STYLES)
def test_a_template_that_cannot_be_read_is_reported_where_it_goes_wrong(
    style: str, tmp_path: Path
) -> None:
    """With the message alone: a line of the template would be a second, other line."""
    text = HEAD + STYLES[style].replace("{{ zork }}", "{{ input | uper }}")
    before = text[: text.index("uper }}")]
    (found,) = problem(tmp_path, text).problems
    assert (found.line, found.column) == (before.count("\n") + 1, len(before.split("\n")[-1]) + 1)
    assert found.message == "template: there is no filter 'uper'; did you mean 'upper'?"


def test_all_texts_of_a_value_are_reported(tmp_path: Path) -> None:
    """A template that cannot be read hides no unknown name beside it."""
    found = problem(
        tmp_path, HEAD + "    set: {a: '{{ zork }}', b: '{% if %}', c: '{{ }}'}\n"
    ).problems
    assert [p.path for p in found] == ["steps[0].set.a", "steps[0].set.b", "steps[0].set.c"]


def test_an_alias_has_the_place_of_the_alias(tmp_path: Path) -> None:
    """Its text stands somewhere else, and may be right there."""
    text = HEAD + "    set: &t 'one {{ b }}'\n  - {name: b, set: 1}\n  - {name: c, set: *t}\n"
    (found,) = problem(tmp_path, text).problems
    assert (found.line, found.path) == (5, "steps[0].set")
    source = read("a: &t 'one'\nb: *t\n", "x.yaml")
    assert source.place_inside(("b",), 1) is None
    assert source.place_inside(("a",), 1) == (1, 9)


NODE = """\
orchestrator: {id: o, agents: [v], model: gpt-4o, provider: openai}
agents:
  - id: v
    type: %s
    %s: |
      %s
      and {{ x | uper }}
"""


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("openai-answer", "prompt"), ("openai-binary", "prompt"), ("loop_validator", "prompt"),
        ("plan_validator", "custom_prompt"), ("memory-reader", "prompt"),
        ("validate_and_structure", "prompt"),
    ],
)  # fmt: skip
def test_a_prompt_of_an_agent_is_named_with_its_field(kind: str, key: str, tmp_path: Path) -> None:
    (found,) = problem(tmp_path, NODE % (kind, key, "Judge the work.")).problems
    assert (found.line, found.column, found.path) == (7, 18, f"agents[0].{key}")


def test_a_prompt_in_params_is_named_with_its_field(tmp_path: Path) -> None:
    text = NODE % ("openai-answer", "prompt", "Hi")
    text = (
        text.replace("    prompt: |", "    params:\n      prompt: |")
        .replace("      Hi", "        Hi")
        .replace("      and", "        and")
    )
    (found,) = problem(tmp_path, text).problems
    assert (found.line, found.column, found.path) == (8, 20, "agents[0].params.prompt")
