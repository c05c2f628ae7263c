"""What models are told over the whole corpus of both dialects, read from the transcript, and what rounds see of the last."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from loopwright import run
from loopwright.documents import Loaded
from loopwright.documents.load import to_native_yaml
from loopwright.journal import MemoryJournal
from loopwright.memory import InMemory
from loopwright.models import Models, Reply, Request, ScriptedModel
from loopwright.records.codec import text_of
from loopwright.testing import run_virtual

from .leftovers import leftovers
from .loop_nodes import support as loop_nodes
from .workflow_v2.support import Case, cases, converted, loaded, written

RUNNABLE = [case for case in (*cases(), *loop_nodes.cases()) if case.runs]
names = {"ids": lambda case: case.name}

# What every prompt inside of a loop is asked to tell besides, in native templates and in those of loop nodes.
NATIVE = (
    "\n@@{{ loop.iteration }}@{{ loop.history | length }}@{{ loop.outputs | length }}@{{ loop.output }}"
    "@{{ loop.last.output }}@{{ loop.last.score }}@{{ loop.last.feedback }}@@"
)
NODES = (
    "\n@@{{ loop_number }}@{{ get_loop_number() }}@{{ score }}@{{ has_past_loops() }}"
    "@{{ past_loops_metadata.score }}@@"
)
PROBE = re.compile(r"\n?@@(.*?)@@\Z", re.DOTALL)


@pytest.mark.parametrize("case", RUNNABLE, **names)
def test_nothing_is_left_over_in_what_a_model_reads(case: Case, tmp_path: Path) -> None:
    """By the transcript, no placeholder, None, wrapper or printed object is in any prompt."""
    records: list[dict[str, Any]] = []
    play(loaded(case, written(case, tmp_path)), case, ScriptedModel(case.replies), records.append)
    assert not [text for record in records for text in leftovers(record, literal=case.literal)]


def test_leftovers_are_found() -> None:
    """Each kind of what is looked for is seen where it is, and not in what a tool or the model said."""
    for text in ("a {{ b", "is None.", "{'a': 1}", "see $agents", "{% if x"):
        wrong = {"path": "p", "messages": [{"role": "user", "content": text}]}
        assert leftovers(wrong), text
        wrong["messages"][0]["role"] = "tool"
        assert not leftovers(wrong)
    assert not leftovers({"path": "p", "messages": [{"role": "user", "content": "NONE of {it}"}]})


def play(
    found: Loaded, case: Case, model: Any, transcript: Callable[[Any], None] | None = None
) -> MemoryJournal:
    """Run a document in virtual time; return its journal."""
    journal = MemoryJournal()
    resources = {**found.resources, "models": Models(model, transcript=transcript)}
    value = found.default_input if case.input is None else case.input
    work = run(
        found.step,
        value,
        resources={**resources, "memory": InMemory()},
        journal=journal,
        run_id="r",
    )
    run_virtual(work)
    return journal


class Told(ScriptedModel):
    """A scripted model that keeps what it was told at the end of each prompt, and answers without it."""

    def __init__(self, rules: Any) -> None:
        super().__init__(rules)
        self.told: list[tuple[str, list[str]]] = []

    async def complete(
        self, request: Request, *, on_text: Callable[[str], None] | None = None
    ) -> Reply:
        *before, last = request.messages
        if (found := PROBE.search(last.content)) is not None:
            self.told.append((request.path, found[1].split("@")))
            last = replace(last, content=last.content[: found.start()])
        return await super().complete(replace(request, messages=(*before, last)), on_text=on_text)


def prompts_in_loops(data: Any, inside: bool = False) -> Iterator[dict[str, Any]]:
    """Iterate over the actions of a native document that are a prompt inside of a loop; lists have rounds of their own."""
    if isinstance(data, list):
        for item in data:
            yield from prompts_in_loops(item, inside)
    elif isinstance(data, dict):
        if inside and isinstance(data.get("prompt"), str):
            yield data
        for key, value in data.items():
            if key == "loop":
                yield from prompts_in_loops(value.get("execute"), True)
            elif key in ("steps", "parallel", "fallback"):
                yield from prompts_in_loops(value, inside)


def probed(case: Case, folder: Path) -> Loaded | None:
    """Return the native form of a case whose prompts in loops tell what they see; None if there are none."""
    found = loaded(case, written(case, folder))
    file = folder / next(iter(case.files))
    native = converted(found, file, folder)
    asked = 0
    for name, document in found.documents.items():
        data = yaml.safe_load(to_native_yaml(document))
        for action in prompts_in_loops(data):
            action["prompt"] += NODES if document.templates == "loop_node" else NATIVE
            asked += 1
        (folder / Path(name).relative_to(file.parent.resolve())).write_text(
            yaml.safe_dump(data, sort_keys=False), encoding="utf-8"
        )
    return loaded(case, native) if asked else None


def test_every_round_sees_what_the_round_before_gave(tmp_path: Path) -> None:
    """Over all documents of the corpus: from round 2 on, each way to look back tells of the round before."""
    seen = 0
    for case in RUNNABLE:
        folder = tmp_path / case.name
        folder.mkdir()
        found = probed(case, folder)
        if found is None:
            continue
        model = Told(case.replies)
        journal = play(found, case, model)
        rounds: dict[tuple[str, int], Any] = {
            (entry.path, entry.value.number): entry.value
            for entry in run_virtual(journal.entries("r"))
            if entry.kind == "iteration"
        }
        lenient = any(document.templates == "loop_node" for document in found.documents.values())
        for path, told in model.told:
            loop, number = innermost(path, rounds)
            if number > 1:
                seen += 1
                wanted = as_nodes if lenient else as_native
                assert told == wanted(loop, number, rounds), f"{case.name}: {path}"
    assert seen >= 60


def innermost(path: str, rounds: dict[tuple[str, int], Any]) -> tuple[str, int]:
    """Return the path of the loop that is nearest around a call, and the number of its round."""
    loops = {loop for loop, _ in rounds}
    parts = path.split("/")
    for end in range(len(parts) - 1, 0, -1):
        if parts[end].isdecimal() and (loop := "/".join(parts[:end])) in loops:
            return loop, int(parts[end])
    return "", 0


def as_native(loop: str, number: int, rounds: dict[tuple[str, int], Any]) -> list[str]:
    """Return what a round should be told of those before it, by native names."""
    before = [rounds[loop, n] for n in range(1, number)]
    whole = [text_of(item.output) for item in before if item.error is None and not item.interrupted]
    last = before[-1]
    output = "" if last.output is None else text_of(last.output)
    return [
        str(number), str(len(before)), str(len(whole)), whole[-1] if whole else "", output,
        "" if last.score is None else text_of(last.score), last.feedback,
    ]  # fmt: skip


def as_nodes(loop: str, number: int, rounds: dict[tuple[str, int], Any]) -> list[str]:
    """Return the same by the names of loop nodes."""
    last = rounds[loop, number - 1]
    score = "" if last.score is None else text_of(last.score)
    scored = [n for n in range(1, number) if rounds[loop, n].evaluation is not None]
    known = rounds[loop, scored[-1]].score if scored else None
    shown = score if not scored else "" if known is None else text_of(known)
    return [str(number), str(number), score, str(bool(scored)), shown]
