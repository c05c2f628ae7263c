"""Use a wheel as somebody who installs it: `python tests/release/use_wheel.py WHEEL`, in an environment with nothing else in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

DOCUMENT = """\
schema: loopwright/1
name: count_words
steps:
  - name: refine
    loop:
      execute: {shell: "printf 'word %.0s' $(seq $SIZE)", env: {SIZE: "{{ loop.iteration * 2 }}"}}
      evaluate: {checklist: [{name: long enough, min_words: 5}]}
      until: [passed, {max_iterations: 6}]
"""


def main(wheel: Path) -> None:
    """Check, run and show a loop, with a folder and a home of their own."""
    uv = Path(sys.executable).parent / "uv"
    with tempfile.TemporaryDirectory(prefix="loopwright-wheel-") as name:
        folder = Path(name)
        (folder / "words.yaml").write_text(DOCUMENT)
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LOOPWRIGHT"))}
        env = keep | {"XDG_STATE_HOME": str(folder / "state")}

        def loopwright(*words: str) -> str:
            tool = [uv, "tool", "run", "--quiet", "--isolated", "--python", sys.executable]
            return subprocess.run(
                [*tool, "--from", wheel.resolve(), "loopwright", *words],
                cwd=folder, env=env, check=True, stdout=subprocess.PIPE, text=True,
            ).stdout  # fmt: skip

        version = wheel.name.split("-")[1]
        assert loopwright("--version") == f"loopwright {version}\n"
        assert "can run" in loopwright("check", "words.yaml")
        result = json.loads(loopwright("run", "words.yaml", "--yes", "--json"))
        assert (result["status"], result["iterations"]) == ("satisfied", 3), result
        assert result["run_id"] in loopwright("show", result["run_id"])
        assert "run: cd text && loopwright run text.yaml" in loopwright("new", "text")
        words = ("text/text.yaml", "--replies", "text/replies.yaml", "--json")
        assert json.loads(loopwright("run", *words))["status"] == "satisfied"
        print(
            f"{wheel.name}: checks, runs and shows a loop, and has its templates, in an environment of its own"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
