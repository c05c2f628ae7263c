"""Import paths of version 0.1 work for one more release.

Each test uses a process of its own: an import changes the process that it runs in.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loopwright._aliases import MODULES


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(("old", "new"), MODULES.items())
def test_a_former_path_is_the_module_itself(old: str, new: str) -> None:
    """A module has one copy, whichever path was imported first, so that its classes are the same."""
    for first, second in ((old, new), (new, old)):
        python(
            f"import importlib\n"
            f"first = importlib.import_module('loopwright.{first}')\n"
            f"second = importlib.import_module('loopwright.{second}')\n"
            f"assert first is second, (first, second)\n"
            f"assert first.__name__ == first.__spec__.name == 'loopwright.{new}', first.__spec__"
        )


def test_a_former_path_is_an_attribute_of_the_package() -> None:
    """`import loopwright.adapters` makes `loopwright.adapters` usable."""
    assert (
        python("import loopwright.adapters; print(loopwright.adapters.feedback.__name__)")
        == "feedback"
    )


def test_names_can_be_imported_from_a_former_path() -> None:
    """`from loopwright.stores import open_journal` gives the function of its new path."""
    python(
        "from loopwright.stores import open_journal\n"
        "from loopwright.journal.open import open_journal as new\n"
        "assert open_journal is new"
    )


@pytest.mark.parametrize("name", ["run", "step"])
def test_functions_of_the_package_stay_functions(name: str) -> None:
    """`import loopwright.run` does not replace the function `loopwright.run`."""
    python(
        f"import loopwright\n"
        f"function = loopwright.{name}\n"
        f"import loopwright.{name}\n"
        f"assert loopwright.{name} is function and callable(function)\n"
        f"from loopwright.{name} import {name} as same\n"
        f"assert same is function"
    )


def test_an_unknown_path_is_an_import_error() -> None:
    """The finder finds former paths and nothing else."""
    code = "try:\n    import loopwright.nothing\nexcept ModuleNotFoundError as error:\n    print(error.name)"
    assert python(code) == "loopwright.nothing"


@pytest.mark.parametrize("name", ["Prompt", "Judge", "Rubric", "ReasoningAgent"])
def test_settings_of_model_calls_have_their_former_name(name: str) -> None:
    """`asking` of version 0.1 sets `model_settings`."""
    from loopwright.agents import ReasoningAgent
    from loopwright.evaluators import Judge, Rubric
    from loopwright.prompts import Prompt, PromptSettings

    settings = PromptSettings(("openai:gpt-4o",))
    makers: dict[str, Any] = {
        "Prompt": lambda **options: Prompt("Hello", **options),
        "Judge": lambda **options: Judge({"short": "It is short."}, **options),
        "Rubric": lambda **options: Rubric(["It is short."], **options),
        "ReasoningAgent": lambda **options: ReasoningAgent("Hello", **options),
    }
    former, current = makers[name](asking=settings), makers[name](model_settings=settings)
    assert former.model_settings.models == current.model_settings.models == settings.models
    assert former.fingerprint == current.fingerprint


def test_methods_have_their_former_names(tmp_path: Path) -> None:
    """`Loaded.deeds()` and `Reading.fault` of version 0.1."""
    from loopwright.documents import load
    from loopwright.models import read_value

    file = tmp_path / "a.yaml"
    file.write_text("schema: loopwright/1\nname: a\nsteps: [{name: a, shell: [ls]}]\n")
    loaded = load(file)
    assert loaded.deeds() == loaded.local_actions()
    reading = read_value("none", {"type": "object"})
    assert reading.fault == reading.failure != ""
