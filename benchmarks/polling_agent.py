"""The coding agent of `benchmarks.wait_agents`: each turn is one request to a model with the whole conversation.

    polling_agent.py URL FOLDER SECONDS FORMAT [WORDS OF THAT PROGRAM]

The server at URL is the model and CI. The model answers with a tool (push, check) or with the actions of a last message. Conversations are
kept in FOLDER by session. SECONDS is the time between two checks. The events are those of FORMAT.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from loopwright.testing.fake_agent import FakeAgent


def post(url: str, value: Any = None) -> Any:
    """Send JSON and return the JSON of the answer."""
    with urllib.request.urlopen(url, json.dumps(value).encode()) as answer:
        return json.load(answer)


def main(url: str, folder: str, seconds: float, form: str, words: list[str]) -> int:
    """Ask the model until it ends the turn of the user, and print what it says."""
    if words == ["--version"]:
        print("polling agent 1.0")
        return 0
    post(f"{url}/start")
    agent = FakeAgent(form, words, sys.stdin.read())
    # Aider names no session, and has one per folder.
    known = bool(agent.resumed) or "--restore-chat-history" in words
    file = Path(folder, "aider" if form == "aider" else agent.session)
    talk = json.loads(file.read_text()) if known else {"messages": [], "tokens": [0, 0]}
    before = talk["tokens"]
    talk["messages"].append({"role": "user", "content": agent.prompt})
    began = time.monotonic()
    while True:
        answer = post(f"{url}/model", talk["messages"])
        talk["tokens"] = [sum(pair) for pair in zip(talk["tokens"], answer["tokens"], strict=True)]
        talk["messages"].append({"role": "assistant", "content": json.dumps(answer["do"])})
        if (tool := answer["tool"]) is None:
            break
        if (
            tool == "check"
        ):  # at fixed times, so that the time of a request does not reduce their number
            time.sleep(seconds - (time.monotonic() - began) % seconds)
        said = post(f"{url}/{tool}")
        if tool == "push":
            Path("pushed.txt").write_text("1")
            began = time.monotonic()
        talk["messages"].append({"role": "tool", "content": said})
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(talk))
    spent = talk["tokens"]
    if form not in ("codex", "qwen"):  # these two report what the conversation has cost so far
        spent = [now - then for now, then in zip(spent, before, strict=True)]
    spend = {"spend": {"input_tokens": spent[0], "output_tokens": spent[1]}}
    return agent.play([[spend, *answer["do"]]], 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4], sys.argv[5:]))
