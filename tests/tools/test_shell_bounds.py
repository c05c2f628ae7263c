"""Long outputs: the beginning and the end go on, bounded in memory, and a prompt is never too large."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from processes import done

from loopwright import Workflow, run_sync
from loopwright.errors import ConfigurationError, StepError
from loopwright.models import Models, ScriptedModel
from loopwright.prompts import prompt
from loopwright.records.display import VALUE_CHARS, shortened
from loopwright.tools import ShellStep, run_command

MODEL = "openai:gpt-4o"


def printing(count: int, letter: str = "x") -> str:
    return f"head -c {count} /dev/zero | tr '\\0' {letter}"


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 5_000, 300_000])
def test_a_stream_keeps_its_beginning_and_its_end(count: int) -> None:
    """What is left out is counted, and a marker stands in its place."""
    text = "".join(chr(97 + i % 26) for i in range(count))
    result = done(run_command(["cat"], stdin=text, keep=100))
    if count <= 100:
        assert (result.stdout, result.omitted) == (text, 0)
    else:
        marker = f"\n[... {count - 100} bytes omitted ...]\n"
        assert (result.stdout, result.omitted) == (text[:75] + marker + text[-25:], count - 100)


def test_characters_stay_whole_where_a_text_is_cut() -> None:
    """Neither side of the marker has half a character."""
    result = done(run_command(["cat"], stdin="🙂" * 1000, keep=99))
    head, marker, end = result.stdout.split("\n")
    assert (set(head), set(end), marker[:5]) == ({"🙂"}, {"🙂"}, "[... ")
    assert not result.decoded_with_loss


def test_a_step_warns_of_what_was_left_out() -> None:
    """Its output is the beginning and the end; `max_output` says how much."""
    result = run_sync(ShellStep(printing(5_000), max_output=1_000, name="big"))
    assert result.output == "x" * 750 + "\n[... 4000 bytes omitted ...]\n" + "x" * 250
    assert result.warnings == (
        "output_shortened: big: 4,000 bytes of its output were left out. Raise max_output (1,000) to keep more.",
    )
    told = run_sync(ShellStep(printing(5_000), max_output=1_000, output="result")).output
    assert told["omitted"] == 4_000
    with pytest.raises(ConfigurationError, match="max_output"):
        ShellStep("true", max_output=0)


def test_json_goes_on_whole() -> None:
    """Half of it would be none."""
    script = f"printf '\"'; {printing(5_000)}; printf '\"'"
    assert run_sync(ShellStep(script, max_output=1_000, output="json")).output == "x" * 5_000


@pytest.mark.parametrize("count", [1_900_000, 5_000_000])
def test_a_long_output_is_cut_before_the_prompt_is_built(count: int) -> None:
    """The step after a loud command does not fail, and the model is sent a bounded prompt."""
    steps = {"loud": ShellStep(printing(count)), "ask": prompt("Sum up: {{ loud }}", model=MODEL)}
    flow = Workflow("flow", steps)
    for limit in (VALUE_CHARS, 1_000):
        sent: list[Any] = []
        models = Models(ScriptedModel([{"replies": ["fine"]}]), transcript=sent.append)
        given = {"models": models, **({} if limit == VALUE_CHARS else {"max_value_chars": limit})}
        result = run_sync(flow, resources=given)
        assert (result.output, result.status.value) == ("fine", "satisfied")
        (message,) = sent[0]["messages"]
        assert len(message["content"]) <= limit + len("Sum up: ")
        assert "bytes omitted ...]" in message["content"]
        assert any("it was cut in the prompt" in warning for warning in result.warnings)


def test_only_long_texts_are_cut() -> None:
    """A value in which nothing is too long is the same object."""
    value = {"a": ["b", {"c": "d" * 50}], "n": 1}
    assert shortened(value, 50) is value
    cut = shortened({"a": ["b", {"c": "d" * 500}], "n": 1}, 100)
    assert len(cut["a"][1]["c"]) <= 100
    assert (cut["a"][0], cut["n"]) == ("b", 1)


@pytest.mark.slow
def test_fifty_megabytes_of_output_do_not_stay_in_memory(tmp_path: Path) -> None:
    """A run with a journal over 50 MB of output takes less than 100 MB."""
    program = (
        "import resource\n"
        "from loopwright import run_sync\n"
        "from loopwright.tools import ShellStep\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"journal = 'sqlite:{tmp_path}/runs.db'\n"
        "run_sync(ShellStep('true'), journal=journal)\n"
        "before = used()\n"
        f"found = run_sync(ShellStep({printing(50_000_000)!r}), journal=journal)\n"
        "assert 'bytes omitted' in found.output\n"
        "print(used() - before)\n"
    )
    result = done(run_command([sys.executable, "-c", program]))
    assert result.exit_code == 0, result.stderr
    assert int(result.stdout) * (1024 if sys.platform == "linux" else 1) < 100_000_000


def test_a_step_is_given_the_variables_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has no keys but those of `pass_env`; one that is not set is left out."""
    monkeypatch.setenv("A_KEY", "k1")
    monkeypatch.setenv("ANOTHER_KEY", "k2")
    script = 'echo "$A_KEY ${ANOTHER_KEY-no} ${NOT_SET-no}"'
    assert run_sync(ShellStep(script, pass_env=["A_KEY", "NOT_SET"])).output == "k1 no no"
    assert run_sync(ShellStep(script)).output == " no no"
    assert ShellStep(script).fingerprint != ShellStep(script, pass_env=["A_KEY"]).fingerprint
    with pytest.raises(ConfigurationError, match="is not a list of variable names"):
        ShellStep(script, pass_env="A_KEY")


def test_endless_output_ends_a_step() -> None:
    """A command that prints without end is ended at its limit, and has failed."""
    with pytest.raises(StepError, match="its output passed 1000000 bytes"):
        done(ShellStep("yes", limit=1_000_000, max_output=10).run_command(None, None))  # type: ignore[arg-type]
