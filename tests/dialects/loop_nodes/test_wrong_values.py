"""Documents with any value in any place: they load, or say what is wrong with them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopwright.documents import Settings, load
from loopwright.documents.yaml.reader import read
from loopwright.errors import DocumentError

from .support import cases

DOCUMENTS = [
    read(case.files["main.yaml"].encode(), "main.yaml").value for case in cases() if case.runs
]
VALUES = st.sampled_from(
    [None, True, 0, -1, 1e308, 3, "", "x", "a b/c", "{{", "(", "1h", [], [[]], [None], ["x", 1], {}, {"id": "x"},
     {"type": "loop"}, {"type": "fork", "id": "f", "targets": 3}, [{"id": "a", "type": "openai-answer"}], {"1": None}]
)  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Iterate over the paths of all values in a document."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield (*at, key)
        yield from places(inner, (*at, key))


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """Return a document of the corpus with other values in up to three places."""
    document = copy.deepcopy(draw(st.sampled_from(DOCUMENTS)))
    for _ in range(draw(st.integers(1, 3))):
        *path, last = draw(st.sampled_from(sorted(places(document), key=repr)))
        owner = document
        for part in path:
            owner = owner[part]
        owner[last] = copy.deepcopy(draw(VALUES))
    return json.dumps(document)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(damaged())
def test_any_value_in_any_place_is_told_or_taken(tmp_path: Path, text: str) -> None:
    """No value whatever gives anything but a document or a list of its problems, each with a place."""
    file = tmp_path / "main.yaml"
    file.write_text(text, encoding="utf-8")
    try:
        load(file)
    except DocumentError as error:
        assert error.problems
        assert all(problem.line > 0 and problem.message for problem in error.problems)


def test_a_need_that_is_no_text_is_told_where_it_stands(tmp_path: Path) -> None:
    """A list or an object among the needs of an agent is a problem, not a defect."""
    file = tmp_path / "main.yaml"
    agent = {"id": "a", "type": "openai-answer", "prompt": "A", "depends_on": [[], {"x": 1}]}
    host = {"id": "host", "model": "gpt-4o", "agents": ["a"]}
    file.write_text(json.dumps({"orchestrator": host, "agents": [agent]}))
    with pytest.raises(DocumentError) as refused:
        load(file)
    said = str(refused.value)
    assert "agents[0].depends_on[0]: expected text, not []" in said
    assert "agents[0].depends_on[1]: expected text, not a mapping with the key x" in said


def test_a_model_that_the_caller_names_is_enough(tmp_path: Path) -> None:
    """Agents that name no model ask the caller's; without one they are an error, of local models too."""
    file = tmp_path / "main.yaml"
    for kind in ("openai-answer", "local_llm"):
        file.write_text(
            "orchestrator: {id: host, agents: [a]}\n"
            f'agents: [{{id: a, type: {kind}, prompt: "{{{{ input }}}}"}}]\n'
        )
        with pytest.raises(DocumentError, match="has no model; set model"):
            load(file)
        assert load(file, Settings(model="openai:gpt-4o")).notes == ()
