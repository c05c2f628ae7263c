"""Change the code until the tests pass, from Python.

python coding_agent.py                                     on scripted replies, no key needed
LOOPWRIGHT_MODEL=openai:gpt-4o python coding_agent.py      on a real model, with OPENAI_API_KEY set
"""

import os
from pathlib import Path

from workspace import diff, prepare, read_file, run_tests, tested, write_file

from loopwright import Loop, MaxIterations, Passed, run_sync, tool
from loopwright.models import Models, ProviderModel, ScriptedModel
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
    named = os.environ.get("LOOPWRIGHT_MODEL")
    model = (
        ProviderModel({k: v for k, v in os.environ.items() if k.endswith("_API_KEY")})
        if named
        else ScriptedModel(Path(__file__).with_name("replies.yaml").read_text(encoding="utf-8"))
    )
    resources = {"models": Models(model), "model": named or "openai:gpt-4o-mini"}
    result = run_sync(repair, prepare(), resources=resources)
    print(f"{result.status}: {result.detail}\n\n{diff()}", end="")
