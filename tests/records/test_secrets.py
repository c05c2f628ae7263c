"""I49: no sink holds a secret, raw or encoded; a replay has what the live run had."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from engine.support import examples
from loopwright import (
    Context,
    Evaluation,
    History,
    Loop,
    MaxIterations,
    MemoryJournal,
    run,
    run_sync,
)
from loopwright.conditions import Condition
from loopwright.errors import ConfigurationError
from loopwright.models import Redactor
from loopwright.tools import call_tool, tool
from loopwright.ui.cli import main

KEY = "sk/proj+4f9a8b7c=6d5e4f3a2b1c"
FORMS = (
    KEY,
    quote(KEY, safe=""),
    base64.b64encode(KEY.encode()).decode(),
    base64.encodebytes(KEY.encode() * 4).decode(),
)
KNOWN = {"redactor": Redactor({"SERVICE_KEY": KEY})}


def leaks(value: int) -> dict[str, str]:
    if value == 2:
        raise ValueError(f"refused {FORMS[0]} and {FORMS[1]}")
    return {form: f"x {form} y" for form in FORMS}


def judges(output: object) -> Evaluation:
    return Evaluation(0.5, False, " ".join(FORMS), improvements=(KEY,))


def made() -> Loop:
    return Loop(
        leaks,
        judges,
        adapt=lambda last: last.number + 1,
        until=MaxIterations(3),
        on_failure="continue",
        name="l",
    )


def test_no_sink_holds_a_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Result, listeners, journal bytes, show and every export have the redacted value, as a replay has."""
    url, heard = f"sqlite:{tmp_path}/runs.db", []
    live = run_sync(
        made(),
        1,
        journal=url,
        run_id="r",
        resources=KNOWN,
        listeners=[lambda e: heard.append(json.dumps(e.to_json()))],
    )
    again = run_sync(made(), 1, journal=url, run_id="r", resources=KNOWN)
    assert again.output == live.output
    assert [item.to_json() for item in again.history] == [item.to_json() for item in live.history]
    said = [json.dumps([live.output, live.detail, [i.to_json() for i in live.history]]), *heard]
    for words in (["show", "r"], ["show", "r", "--json"], ["show", "r", "--output"], ["show", "r", "--trace"],
                  ["export", "r", "-f", "csv"], ["export", "r", "-f", "html"], ["export", "r", "-f", "jsonl"]):  # fmt: skip
        assert main([*words, "--journal", url]) in (0, 1, 3)
        said.append("".join(capsys.readouterr()))
    said += [file.read_bytes().decode("latin-1") for file in tmp_path.iterdir() if file.is_file()]
    assert "[redacted]" in said[0]
    found = [
        form
        for form in (KEY, FORMS[1], FORMS[2].rstrip("="), FORMS[3][:60])
        for text in said
        if form in text
    ]
    assert found == []


def test_an_input_with_a_key_is_refused() -> None:
    """Rule: what is recorded holds no key, so the input names pass_env instead."""
    with pytest.raises(
        ConfigurationError, match=r"value of SERVICE_KEY.*pass_env: \[SERVICE_KEY\]"
    ):
        run_sync(made(), {"a": f"x{FORMS[2]}"}, resources=KNOWN)


LETTERS = st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\"'\\")
LONG = st.text(LETTERS, min_size=16, max_size=80)
PART = 10  # characters of a form that nothing may hold


def forms_of(key: str) -> list[str]:
    encoded = base64.b64encode(key.encode()).decode().rstrip("=")[:-2]
    return [key, quote(key, safe=""), encoded]


def parts_in(text: str, key: str) -> list[str]:
    """Return the parts of a key, however it is written, that a text holds."""
    parts = (f[at : at + PART] for f in forms_of(key) for at in range(len(f) - PART + 1))
    return [part for part in parts if part in text]


def everything_of(key: str, text: str, place: str) -> str:
    """Run a loop that has a text with a key in a place; return all that is said and recorded of it."""
    heard: list[str] = []

    def fails(value: object) -> None:
        if place == "chain":
            try:
                raise KeyError(text)
            except KeyError as error:
                raise ValueError(text) from error
        if place == "group":
            raise ExceptionGroup(text, [ValueError(text), KeyError(text)])
        raise ValueError(text)

    async def says(value: object, ctx: Context) -> object:
        if place == "warning":
            ctx.warn(text)
        if place == "tool":
            return await call_tool(ctx, "call", tool(leaky), {"word": "w"})
        if place == "output":
            return {text: [text], "n": text}
        fails(value)
        return value

    def leaky(word: str) -> str:
        """Fail with a text."""
        raise RuntimeError(word + text)

    class Breaks(Condition):
        def check(self, history: History) -> None:
            if place == "condition":
                raise ValueError(text)

    def hook(result: object) -> None:
        if place == "hook":
            raise ValueError(text)

    body = (lambda value: value) if place in ("condition", "hook") else says
    loop = Loop(
        body, until=MaxIterations(2) | Breaks(), on_terminate=hook, on_failure="continue", name="l"
    )  # fmt: skip
    journal = MemoryJournal()

    async def go() -> list[object]:
        result = await run(
            loop, 1, journal=journal, run_id="r", resources={"redactor": Redactor({"K": key})},
            listeners=[lambda e: heard.append(json.dumps(e.to_json()))],
        )  # fmt: skip
        entries = [entry.to_json() for entry in await journal.entries("r")]
        return [result.to_json(), repr(result), str(result.error), *entries]

    return "\n".join([json.dumps(asyncio.run(go())), *heard])


@functools.cache
def words_of_ours(place: str) -> str:
    """Return what the same run says without a key."""
    return everything_of("a key that is nowhere", "text", place)


PLACES = ("error", "chain", "group", "output", "tool", "warning", "condition", "hook")


@example(
    key="000000)000000000", place="condition", form=0, before=0, lines=0, name="password="
)  # the rule for passwords ends at a bracket
@example(key="000000iterations", place="error", form=0, before=0, lines=0, name="")
@settings(examples(0.3))
@given(
    key=LONG,
    place=st.sampled_from(PLACES),
    form=st.integers(0, 2),
    before=st.one_of(st.integers(0, 40), st.integers(1900, 2010), st.integers(3900, 4010)),
    lines=st.sampled_from([0, 1, 300]),
    name=st.sampled_from(["", "password=", "token=", "user:"]),
)
def test_no_part_of_a_key_is_recorded_wherever_a_text_is_cut(
    key: str, place: str, form: int, before: int, lines: int, name: str
) -> None:
    """Errors are cut at 2,000 characters and tracebacks at 8,192: a key is taken out before that, and
    before the rules for passwords and addresses, which could leave a part of it."""
    text = "x" * before + " " + name + forms_of(key)[form] + "\n" + f"y {key}\n" * lines
    assume(not parts_in(words_of_ours(place), key))  # a key may have a word of our records in it
    if form == 2:  # as programs write it: the last characters of base64 depend on what follows
        text = text.replace(forms_of(key)[2], base64.b64encode(key.encode()).decode())
    assert parts_in(everything_of(key, text, place), key) == []
