"""A coding agent repairs a git repository in one conversation; sealed tests decide.

python coding_agent.py                      a fake agent, no key needed
python coding_agent.py --agent claude       Claude Code; also codex, gemini, qwen, opencode, aider, or a manifest
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from repository import REPOSITORY, git, make

from loopwright import Iteration, Loop, Workspace, agent, run_sync, until
from loopwright.coding.agents import load_manifest
from loopwright.errors import ConfigurationError
from loopwright.tools import Sandbox

HIDDEN = Path(__file__).parent / "hidden"
PROMPT = """\
{% if loop.iteration == 1 %}Repair basket.py so that its tests pass. Do not change the tests.
{% endif %}The tests say:
{{ loop.feedback }}"""


def repair(cli: str, model: str) -> Loop[object, object]:
    """Return the loop of an agent, with the settings that the agent supports."""
    manifest = load_manifest(cli)
    step = agent(
        manifest,
        PROMPT,
        model=model,
        session="loop" if manifest.resumable else "fresh",
        permissions="edit",
        max_turns=30,
        timeout=600,
        sandbox=Sandbox("auto", hide=[HIDDEN]),
    )
    return until(
        "python -m pytest -q",
        step,
        max_iterations=6,
        usd=2 if manifest.usd else None,
        sandbox="auto",
        held_out=HIDDEN,
        workspace=Workspace(REPOSITORY, branch="repaired"),
        name="repair",
        on_iteration=show,
    )


def show(item: Iteration[object, object]) -> None:
    """Print an iteration once it is recorded, and the protected files that it changed."""
    score = "-----" if item.score is None else f"{item.score:.3f}"
    print(f"{item.number}  {score}  {item.output if item.error is None else item.error.message}")
    if item.evaluation is not None and item.evaluation.tampered is not None:
        print(f"   changed and put back: {', '.join(item.evaluation.tampered.paths)}")


def main() -> int:
    """Run the loop, and print the held-out tests and the changes of the branch."""
    parser = argparse.ArgumentParser(description="A coding agent repairs a git repository.")
    parser.add_argument("--agent", default="", help="claude, codex, … or the path of a manifest")
    parser.add_argument("--model", default="", help="the model of the agent")
    options = parser.parse_args()
    make()
    try:
        loop = repair(options.agent or str(REPOSITORY / "fake" / "agent.yaml"), options.model)
    except ConfigurationError as error:
        parser.error(str(error))
    result = run_sync(loop, "")
    print(f"{result.status}: {result.detail}")
    if result.satisfied and result.held_out is not None:
        print(f"held-out tests: {result.held_out['tests']['score']:.3f}\n")
        print(git("diff", "--stat", "main", "repaired"), end="")
    return result.status.exit_code


if __name__ == "__main__":
    sys.exit(main())
