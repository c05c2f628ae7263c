"""An MCP server over stdio that misbehaves as its arguments say; the wire is plain JSON lines.

It speaks the protocol by hand, as only so it can break off at any message. Options:

    --die-at K            exit with 7 when the K-th message comes in, after a word on stderr
    --once FILE           misbehave only as long as FILE does not exist, and make it
    --hang METHOD         never answer this method
    --tools NAMES         the tools that it lists, with commas
    --later NAMES         the tools that it lists from its second start on (needs --count)
    --count FILE          append a line per start, and per call of a tool
    --grandchild FILE     start a process that outlives it and holds its output; its pid in FILE
    --deaf                stop reading after the handshake
    --noise               print what is no message before each answer
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--die-at", type=int, default=0)
    parser.add_argument("--once", default="")
    parser.add_argument("--hang", default="")
    parser.add_argument("--tools", default="echo,flood,fail,slow,env")
    parser.add_argument("--later", default="")
    parser.add_argument("--count", default="")
    parser.add_argument("--grandchild", default="")
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--noise", action="store_true")
    return parser.parse_args()


def note(file: str, line: str) -> int:
    """Append a line and return how many there are that begin with its first word."""
    with Path(file).open("a") as out:
        out.write(line + "\n")
    word = line.split()[0]
    return sum(one.split()[0] == word for one in Path(file).read_text().splitlines())


def called(name: str, given: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    if options.count:
        note(options.count, f"call {name} {json.dumps(given)}")
    failed = name == "fail"
    text = {
        "echo": lambda: str(given.get("text", "")),
        "flood": lambda: "x" * int(given["size"]),
        "fail": lambda: "it did not work",
        "slow": lambda: time.sleep(float(given["seconds"])) or "late",
        "env": lambda: json.dumps(dict(os.environ)),
    }.get(name, lambda: f"called {name}")()
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def answer(message: dict[str, Any], names: list[str], options: argparse.Namespace) -> Any:
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "misbehaving", "version": "1"},
        }
    if method == "tools/list":
        return {
            "tools": [
                {"name": n, "description": n, "inputSchema": {"type": "object"}} for n in names
            ]
        }
    if method == "tools/call":
        return called(params["name"], params.get("arguments") or {}, options)
    return {}


def main() -> None:
    options = parsed()
    starts = note(options.count, "start") if options.count else 1
    wild = not options.once or not Path(options.once).exists()
    if options.once:
        Path(options.once).touch()
    if options.grandchild:
        held = subprocess.Popen(["sleep", "60"])
        Path(options.grandchild).write_text(str(held.pid))
    names = (options.later if options.later and starts > 1 else options.tools).split(",")
    for number, line in enumerate(sys.stdin, 1):
        message = json.loads(line)
        if wild and number == options.die_at:
            print("it was told to die", file=sys.stderr, flush=True)
            os._exit(7)
        if wild and options.hang and message.get("method") == options.hang:
            continue
        if "id" in message:
            result = answer(message, names, options)
            if options.noise:
                print("a debug line", flush=True)
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
        if options.deaf and message.get("method") == "tools/list":
            time.sleep(60)


if __name__ == "__main__":
    main()
