"""Answer a question from a folder of files, from Python.

make npm                                                       once: node 20 and the filesystem server
python folder_questions.py                                     on scripted replies, no key needed
LOOPWRIGHT_MODEL=openai:gpt-4o python folder_questions.py "When do carried days lapse?"
"""

import os
import sys
from pathlib import Path

from quotes import FOLDER, grounded

from loopwright import PhasedAgent, prompt, run_sync
from loopwright.models import Models, ScriptedModel
from loopwright.prompts import Selected, tool_prompt
from loopwright.tools import mcp_server

HERE = Path(__file__).parent
QUESTION = "How long may I work from another country, who must agree, and which laptop do I take?"

# Elsewhere: ["npx", "-y", "@modelcontextprotocol/server-filesystem", "handbook"]
files = mcp_server(
    "files",
    ["npx", "--prefix", "../../tests/npm", "mcp-server-filesystem", FOLDER.name],
    cwd=str(HERE),
    idempotent=True,
    start_timeout=60,
)
agent = PhasedAgent(
    tool_prompt(
        "Which files of the handbook are likely to answer this? {{ task }}\nList its folder first: its "
        'path is "." and a file\'s path is its name. Name the files, one line each, and what to look for '
        "in them.",
        [Selected(files, ["list_directory"])],
    ),
    tool_prompt(
        "Question: {{ task }}\nPlan: {{ plan }}\nNotes so far: {{ loop.outputs | join('\n') }}\n"
        "Read the next file of the plan, and note the sentences that answer a part of the question, each "
        "with its file. A file may point to another one: read that too.",
        [Selected(files, ["read_text_file"])],
    ),
    prompt(
        "Question: {{ task }}\nNotes: {{ results | join('\n') }}\n{% if loop.iteration > 1 %}Your last "
        "answer:\n{{ loop.last.output }}\nWhat is wrong with it: {{ loop.last.feedback }}{% endif %}\n"
        'Write "Answer:" and the answer in two or three sentences, then each sentence that it rests on, '
        "word for word, as a line: > sentence (file)"
    ),
    name="answer",
    evaluate=grounded,
    preset="qa_specialist",
    max_execution_iterations=3,
    enable_dynamic_termination=True,
    min_confidence_threshold=1.0,
    max_duration_seconds=300,
)

if __name__ == "__main__":
    models = None  # the model that LOOPWRIGHT_MODEL names, with the keys in the environment
    if not os.environ.get("LOOPWRIGHT_MODEL"):
        replies = ScriptedModel((HERE / "replies.yaml").read_text(encoding="utf-8"))
        models = Models(replies, default="openai:gpt-4o-mini")
    result = run_sync(agent, " ".join(sys.argv[1:]) or QUESTION, models=models)
    report = result.agents["answer"]
    print(f"{result.status}: {result.detail}")
    print(", ".join(f"{phase} {count}" for phase, count in report["phase_iterations"].items()))
    print(f"\n{result.output}")
