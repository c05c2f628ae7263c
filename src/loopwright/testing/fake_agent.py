"""A coding agent for tests: it follows a script, edits files, and prints the events of a real program.

    python -m loopwright.testing.fake_agent --as claude --script SCRIPT.yaml [WORDS OF THAT PROGRAM]

The words of the program are accepted and mostly ignored; it reads the prompt, the session and the limit of
turns from them. A script is a list of calls in YAML or JSON. A call is chosen by `when`, a regular
expression of the prompt, else by the iteration of the loop (`$LOOPWRIGHT_ITERATION`): the first call in
iteration 1, the last one in every further iteration. So it needs no state, and a repeated iteration does the same.

A call is a list of actions, or an object with `when` and `do`:

- `say: TEXT` prints a message, `raw: TEXT` a line as it is, `stderr: TEXT` a line on standard error.
- `write: {PATH: TEXT}` writes files, `delete: PATH` removes one, `run: COMMAND` runs a command of the shell.
- `spend: {input_tokens: N, output_tokens: N, usd: X}` adds to the reported usage.
- `wait: SECONDS` waits. `fail: TEXT` ends with the error event of the format, `stop: max_turns` with its limit.
- `end: false` leaves the last event out, `exit: N` sets the exit code, `ignore_signals: true` ignores SIGINT
  and SIGTERM, `deny: COMMAND` reports a refused command.

As `acp` it speaks the Agent Client Protocol: `write` asks the client to write the file, `deny` asks for the permission
to run the command, `wait` ends early at `session/cancel`, and `$LOOPWRIGHT_FAKE_AGENT_ABLE` has the capabilities that it reports.

Example:

    - - write: {answer.txt: "41"}
      - say: I wrote an answer.
    - - write: {answer.txt: "42"}
      - say: The answer is corrected.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

__all__ = ["FakeAgent", "main", "manifest"]

FORMATS = ("claude", "codex", "gemini", "qwen", "opencode", "aider", "acp", "text")
_ABLE = {"loadSession": True}
_PROMPTS = ("-p", "--print", "--prompt", "--message")
_VALUES = (
    "-o", "-m", "-s", "-c", "-r", "--output-format", "--model", "--session-id", "--max-turns", "--max-budget-usd",
    "--permission-mode", "--approval-mode", "--max-session-turns", "--allowedTools", "--sandbox", "--format",
    "--output-schema", "--agent", "--message-file",
)  # fmt: skip


def manifest(name: str, script: str | Path, *, program: Sequence[str] = ()) -> dict[str, Any]:
    """Return a manifest that runs the fake agent in place of a program, for `Manifest` or a YAML file.

    Args:
        name: `claude`, `codex`, `gemini`, `qwen`, `opencode`, `aider`, `acp` or `text`.
        script: the path of the script.
        program: the words that start Python. Default: this interpreter.

    Returns:
        The keys of the manifest. `tested` is empty, because the fake agent has no version of its own.

    Example:
        >>> manifest("codex", "script.yaml", program=["python"])["program"][:4]
        ['python', '-m', 'loopwright.testing.fake_agent', '--as']
    """
    from ..coding.agents import load_manifest, manifest_names
    from ..coding.agents.manifest import ACP, base_of

    words = [
        *(program or [sys.executable, "-P"]),
        "-m",
        "loopwright.testing.fake_agent",
        "--as",
        name,
    ]
    base = load_manifest(name).model_dump(exclude_unset=True) if name in manifest_names() else {}
    if name == ACP:
        base = base_of(ACP)
    return {
        **base,
        "name": name,
        "program": [*words, "--script", str(script)],
        "tested": [],
        "home": {},
    }


class FakeAgent:
    """One call of the fake agent.

    Args:
        form: the program whose events it prints.
        words: the words of the command line, without those of the fake agent.
        stdin: standard input, the prompt if the words have none.
    """

    def __init__(self, form: str, words: Sequence[str], stdin: str = "") -> None:
        self.form = form
        self.options, rest = _parsed(words)
        self.prompt = self._prompt(rest) or stdin
        self.resumed = (
            self.options.get("resume")
            or self.options.get("-r")
            or (self.options.get("-s", "") if form == "opencode" else "")
        )
        self.session = self.resumed or self.options.get("--session-id") or str(uuid.uuid4())
        self.usage = {"input_tokens": 0, "output_tokens": 0, "usd": 0.0}
        self.text = ""
        self.ended = True
        self.code = 0
        self.denials: list[str] = []
        self.turns = 0
        self.number = 0
        self.request: Any = None  # the ID of the prompt, in the Agent Client Protocol

    def _prompt(self, rest: list[str]) -> str:
        if (file := self.options.get("--message-file")) is not None:
            return Path(file).read_text(encoding="utf-8")
        named = next((self.options[name] for name in _PROMPTS if self.options.get(name)), "")
        words = [
            word
            for word in rest
            if word not in ("exec", "run", "resume", "-", self.options.get("resume"))
        ]
        return named or (words[-1] if words else "")

    def play(self, script: Sequence[Any], iteration: int) -> int:
        """Follow the script and return the exit code."""
        self._begin()
        for action in chosen_call(script, self.prompt, iteration):
            for name, value in action.items():
                if name not in _ACTIONS:
                    sys.exit(f"the script: {name!r} is no action; use one of {', '.join(_ACTIONS)}")
                if _ACTIONS[name](self, value):
                    return self.code
        self._end()
        return self.code

    # The events of each format.

    def _begin(self) -> None:
        kind = self.form
        if kind in ("claude", "qwen"):
            self.emit(type="system", subtype="init", session_id=self.session, cwd=str(Path.cwd()))
        elif kind == "codex":
            self.emit(type="thread.started", thread_id=self.session)
            self.emit(type="turn.started")
        elif kind == "gemini":
            self.emit(type="init", session_id=self.session, model="fake")
        elif kind == "opencode":
            self.emit(type="step_start", sessionID=self.session, part={})

    def say(self, text: str) -> None:
        """Print a message."""
        self.text, kind = text, self.form
        self.turns += 1
        self.usage["output_tokens"] = self.usage["output_tokens"] or 1
        if kind in ("claude", "qwen"):
            content = [{"type": "text", "text": text}]
            self.emit(
                type="assistant",
                session_id=self.session,
                message={"id": f"m{self.turns}", "content": content},
            )
        elif kind == "codex":
            self.emit(type="item.completed", item={"type": "agent_message", "text": text})
        elif kind == "gemini":
            self.emit(type="message", role="assistant", content=text, delta=True)
        elif kind == "opencode":
            self.emit(type="text", sessionID=self.session, part={"text": text})
        elif kind == "acp":
            for piece in (text[:1], text[1:]):
                block = {"type": "text", "text": piece}
                self.update("agent_message_chunk", content=block, messageId=f"m{self.turns}")
        else:
            write_line(text)

    def used(self, tool: str, argument: str, value: str) -> None:
        """Print the call of a tool."""
        kind = self.form
        self.number += 1
        arguments = {argument: value}
        if kind in ("claude", "qwen"):
            content = [
                {"type": "tool_use", "id": f"t{self.number}", "name": tool, "input": arguments}
            ]
            self.emit(
                type="assistant",
                session_id=self.session,
                message={"id": f"t{self.number}", "content": content},
            )
        elif kind == "codex" and argument == "command":
            self.emit(type="item.started", item={"type": "command_execution", "command": value})
        elif kind == "codex":
            changes = [{"path": value, "kind": "update"}]
            self.emit(
                type="item.completed",
                item={"type": "file_change", "changes": changes, "status": "completed"},
            )
        elif kind == "gemini":
            self.emit(
                type="tool_use",
                tool_id=f"t{self.number}",
                tool_name=tool.lower(),
                parameters=arguments,
            )
            self.emit(type="tool_result", tool_id=f"t{self.number}", status="success")
        elif kind == "opencode":
            state = {"status": "completed", "input": arguments}
            self.emit(
                type="tool_use", sessionID=self.session, part={"tool": tool.lower(), "state": state}
            )
        elif kind == "acp":
            what = "execute" if argument == "command" else "edit"
            call = {"toolCallId": f"t{self.number}", "title": tool, "kind": what}
            self.update("tool_call", **call, status="pending")
            self.update("tool_call_update", **call, status="completed", rawInput=arguments)
        elif kind == "aider" and argument != "command":
            write_line(f"Applied edit to {value}")

    def fail(self, message: str) -> None:
        """Print the error event of the format."""
        kind = self.form
        self.code = 1
        if kind == "claude":
            self.emit(**self._result(message, is_error=True))
        elif kind == "qwen":
            self.code = 0
            self.emit(**self._result(f"[API Error: {message}]", is_error=False))
        elif kind == "codex":
            self.emit(type="turn.failed", error={"message": message})
        elif kind == "gemini":
            error = {"type": "Error", "message": message}
            self.emit(type="result", status="error", error=error, stats=self._tokens())
        elif kind == "opencode":
            self.emit(
                type="error",
                sessionID=self.session,
                error={"name": "APIError", "data": {"message": message}},
            )
        elif kind == "acp":
            data = {"details": message}
            failure = {"code": -32603, "message": "Internal error", "data": data}
            self.emit(jsonrpc="2.0", id=self.request, error=failure)
        else:
            self.code = 0
            write_line(f"litellm.APIError: {message}")

    def stop(self, reason: str) -> None:
        """End at a limit, as the format reports it."""
        self.code = 1
        if self.form == "claude":
            names = {"max_turns": "error_max_turns", "max_usd": "error_max_budget_usd"}
            self.emit(**{**self._result("", is_error=False), "subtype": names[reason]})
        elif self.form == "gemini":
            error = {"type": "FatalTurnLimitedError", "message": "Reached max session turns limit"}
            self.emit(type="result", status="error", error=error, stats=self._tokens())
        elif self.form == "acp":
            self.answer("max_turn_requests")
        else:
            self.code = 53

    def _result(self, text: str, *, is_error: bool) -> dict[str, Any]:
        usage = {key: self.usage[key] for key in ("input_tokens", "output_tokens")}
        denials = [{"tool_name": "Bash", "tool_input": {"command": what}} for what in self.denials]
        cost = {"total_cost_usd": self.usage["usd"]} if self.form == "claude" else {}
        return {
            "type": "result", "subtype": "success", "is_error": is_error, "result": text, "num_turns": self.turns,
            "session_id": self.session, "usage": usage, "permission_denials": denials, **cost,
        }  # fmt: skip

    def _tokens(self) -> dict[str, Any]:
        return {key: self.usage[key] for key in ("input_tokens", "output_tokens")}

    def _end(self) -> None:
        if not self.ended:
            return
        kind = self.form
        if kind in ("claude", "qwen"):
            self.emit(**self._result(self.text, is_error=False))
        elif kind == "codex":
            self.emit(type="turn.completed", usage=self._tokens())
        elif kind == "gemini":
            self.emit(type="result", status="success", stats=self._tokens())
        elif kind == "opencode":
            tokens = {"input": self.usage["input_tokens"], "output": self.usage["output_tokens"]}
            part = {"tokens": tokens, "cost": self.usage["usd"], "reason": "stop"}
            self.emit(type="step_finish", sessionID=self.session, part=part)
        elif kind == "aider":
            sent, received, usd = self.usage.values()
            cost = f"Cost: ${usd:.2f} message, ${usd:.2f} session."
            write_line(f"Tokens: {sent} sent, {received} received. {cost}")
        elif kind == "acp":
            self.answer("end_turn")

    # Of the Agent Client Protocol.

    def update(self, name: str, /, **fields: Any) -> None:
        """Send a notification about the session."""
        update = {"sessionUpdate": name, **fields}
        params = {"sessionId": self.session, "update": update}
        self.emit(jsonrpc="2.0", method="session/update", params=params)

    def answer(self, reason: str) -> None:
        """Answer the prompt."""
        sent, received, usd = self.usage.values()
        if usd:
            self.update("usage_update", used=sent, size=1, cost={"amount": usd, "currency": "USD"})
        tokens = {"inputTokens": sent, "outputTokens": received, "totalTokens": sent + received}
        usage = {"usage": tokens} if sent else {}
        self.emit(jsonrpc="2.0", id=self.request, result={"stopReason": reason, **usage})

    def ask(self, method: str, **params: Any) -> None:
        """Send a request and wait for its answer."""
        self.number += 1
        params["sessionId"] = self.session
        self.emit(jsonrpc="2.0", id=f"r{self.number}", method=method, params=params)
        for line in iter(sys.stdin.readline, ""):
            if json.loads(line).get("id") == f"r{self.number}":
                return

    def cancelled(self, seconds: float) -> bool:
        """Wait, and return whether the client cancelled the prompt meanwhile."""
        if self.form != "acp":
            time.sleep(seconds)
            return False
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        if not ready or json.loads(sys.stdin.readline()).get("method") != "session/cancel":
            return False
        self.answer("cancelled")
        return True

    def emit(self, **event: Any) -> None:
        """Print an event."""
        write_line(json.dumps(event))


def write_line(text: str) -> None:
    """Print a line at once: the reader must not wait for a full buffer."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def chosen_call(script: Sequence[Any], prompt: str, iteration: int) -> list[dict[str, Any]]:
    """Return the actions for a prompt and an iteration."""
    calls: list[Any] = []
    for call in script:
        if isinstance(call, Mapping) and "when" in call:
            if re.search(str(call["when"]), prompt):
                return list(call["do"])
        else:
            calls.append(call)
    if not calls:
        return []
    call = calls[min(max(iteration, 1), len(calls)) - 1]
    return list(call["do"] if isinstance(call, Mapping) else call)


def _write(agent: FakeAgent, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = Path(name)
        if agent.form == "acp":
            agent.ask("fs/write_text_file", path=str(path.absolute()), content=text)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        agent.used("Write", "file_path", name)


def _delete(agent: FakeAgent, name: str) -> None:
    Path(name).unlink(missing_ok=True)
    agent.used("Bash", "command", f"rm {name}")


def _run(agent: FakeAgent, command: str) -> None:
    agent.used("Bash", "command", command)
    # In a session of its own, as real programs start their tools.
    subprocess.run(
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        check=False,
        start_new_session=True,
    )


def _spend(agent: FakeAgent, amounts: Mapping[str, float]) -> None:
    for name, amount in amounts.items():
        agent.usage[name] += amount
    if agent.form in ("claude", "qwen"):
        usage = agent._tokens()
        agent.emit(
            type="assistant",
            session_id=agent.session,
            message={"id": f"s{agent.number}", "content": [], "usage": usage},
        )


def _deny(agent: FakeAgent, what: str) -> None:
    agent.denials.append(what)
    if agent.form == "acp":
        options = [
            {"optionId": kind, "name": kind, "kind": kind} for kind in ("allow_once", "reject_once")
        ]
        call = {"toolCallId": "denied", "title": what, "kind": "execute"}
        agent.ask("session/request_permission", toolCall=call, options=options)


def _fail(agent: FakeAgent, message: str) -> bool:
    agent.fail(message)
    return True


def _stop(agent: FakeAgent, reason: str) -> bool:
    agent.stop(reason)
    return True


def _ignore(agent: FakeAgent, wanted: bool) -> None:
    del agent
    if wanted:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _raw(agent: FakeAgent, text: str) -> None:
    del agent
    write_line(text)


def _stderr(agent: FakeAgent, text: str) -> None:
    del agent
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


_ACTIONS: dict[str, Callable[[FakeAgent, Any], object]] = {
    "say": lambda agent, text: agent.say(str(text)),
    "write": _write,
    "delete": _delete,
    "run": _run,
    "spend": _spend,
    "wait": FakeAgent.cancelled,
    "fail": _fail,
    "stop": _stop,
    "raw": _raw,
    "stderr": _stderr,
    "deny": _deny,
    "end": lambda agent, wanted: setattr(agent, "ended", wanted),
    "exit": lambda agent, code: setattr(agent, "code", code),
    "ignore_signals": _ignore,
}


def _parsed(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options with values, and the other words."""
    options: dict[str, str] = {}
    rest: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            return options, [*rest, *waiting]
        if word == "resume" and waiting and rest == ["exec"]:
            options["resume"] = waiting.pop(0)
        elif (word in _VALUES or word in _PROMPTS) and waiting and not waiting[0].startswith("--"):
            options[word] = waiting.pop(0)
        elif not word.startswith("-"):
            rest.append(word)
    return options, rest


def _serve(script: Sequence[Any], iteration: int) -> int:
    """Speak the Agent Client Protocol until the prompt is answered and standard input ends."""
    code, session = 0, str(uuid.uuid4())
    able = json.loads(os.environ.get("LOOPWRIGHT_FAKE_AGENT_ABLE", json.dumps(_ABLE)))
    info = {"name": "fake agent", "version": "1.0"}
    results: dict[str, Any] = {
        "initialize": {"protocolVersion": 1, "agentCapabilities": able, "agentInfo": info},
        "session/new": {"sessionId": session},
        "session/load": {},
    }
    for line in iter(sys.stdin.readline, ""):
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        if method in results:
            session = params.get("sessionId", session)
            write_line(
                json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[method]})
            )
        elif method == "session/prompt":
            agent = FakeAgent("acp", [], "".join(part["text"] for part in params["prompt"]))
            agent.session, agent.request = session, message["id"]
            code = agent.play(script, iteration)
            if not agent.ended:
                break
        elif "method" in message and "id" in message:
            error = {"code": -32601, "message": f"Method not found: {method}"}
            write_line(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}))
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fake agent and return its exit code; `arguments` default to the process's own."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    form, script = "text", os.environ.get("LOOPWRIGHT_FAKE_AGENT", "")
    while words[:1] in (["--as"], ["--script"]):
        name, value, words = words[0], words[1], words[2:]
        form, script = (value, script) if name == "--as" else (form, value)
    if words == ["--version"]:
        write_line("fake agent 1.0")
        return 0
    if form not in FORMATS or not script:
        sys.stderr.write(f"usage: fake_agent --as {'|'.join(FORMATS)} --script FILE [WORDS]\n")
        return 2
    calls = yaml.safe_load(Path(script).read_text(encoding="utf-8"))
    iteration = int(os.environ.get("LOOPWRIGHT_ITERATION") or 1)
    if form == "acp":
        return _serve(calls, iteration)
    stdin = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
    return FakeAgent(form, words, stdin).play(calls, iteration)


if __name__ == "__main__":
    sys.exit(main())
