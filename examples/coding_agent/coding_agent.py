"""Change the code until the tests pass, from Python.

python coding_agent.py                                     on scripted replies, no key needed
LOOPWRIGHT_MODEL=openai:gpt-4o python coding_agent.py      on a real model, with OPENAI_API_KEY set
"""

import os
from pathlib import Path

from workspace import diff, prepare, read_file, run_tests, tested, write_file

from loopwright import Loop, MaxIterations, Passed, run_sync, tool
from loopwright.models import Models, ScriptedModel
from loopwright.prompts import tool_prompt

repair = Loop(
    tool_prompt(
        "Make the tests of this project pass. Its files: {{ value | join(', ') }}."
        "{% if loop.iteration > 1 %}\nYou said: {{ loop.last.output }}\nBut the tests say:\n"
        "{{ loop.last.feedback }}{% endif %}",
        [tool(each, idempotent=True) for each in (read_file, write_file, run_tests)],
        system="You repair Python projects. Change as little as you can, and never the tests.",
        max_rounds=12,
    ),
    lambda said: tested(),
    until=Passed() | MaxIterations(5),
    name="repair",
    on_iteration=lambda item: print(f"{item.number}: {item.score:.2f}  {item.output}"),
)

if __name__ == "__main__":
    models = None  # the model that LOOPWRIGHT_MODEL names, with the keys in the environment
    if not os.environ.get("LOOPWRIGHT_MODEL"):
        replies = ScriptedModel(
            Path(__file__).with_name("replies.yaml").read_text(encoding="utf-8")
        )
        models = Models(replies, default="openai:gpt-4o-mini")
    result = run_sync(repair, prepare(), models=models)
    print(f"{result.status}: {result.detail}\n\n{diff()}", end="")
