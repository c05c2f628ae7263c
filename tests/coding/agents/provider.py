"""A loopback server that speaks the wire formats of the providers, for real coding agents.

It answers `/responses` (Codex, OpenCode), `/chat/completions` (Qwen Code), `:streamGenerateContent` (Gemini CLI) and
`/messages` (Claude Code). A request without a tool result gets a tool call that does `job`, any other a text.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

INPUT, OUTPUT = 100, 20  # tokens that each reply reports


class Provider:
    """The server. `mode` is edit, tools (a tool call in every reply), hang, cut, or an HTTP status."""

    def __init__(self, folder: Path, mode: str = "edit") -> None:
        self.folder, self.mode = folder, mode
        self.content = "42"
        self.command = ""  # a command of the shell instead of an edit
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.replies = 0
        self.stop = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.stop.set()
        self.server.shutdown()
        self.server.server_close()

    def wants_tool(self, body: dict[str, Any]) -> bool:
        if self.mode == "tools":
            return True
        last = (body.get("input") or body.get("messages") or body.get("contents") or [{}])[-1]
        text = json.dumps(last)
        return not (
            "function_call_output" in text
            or '"tool"' in text
            or "functionResponse" in text
            or "tool_result" in text
        )

    def tool(self, names: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return a call of one of the offered tools that writes the answer, or runs the command."""
        file = str(self.folder / "answer.txt")
        if self.command or not {"write_file", "write", "Write"} & set(names):
            command = self.command or f"printf %s {self.content} > {file}"
            for name, arguments in (
                ("exec_command", {"cmd": command}),
                ("shell_command", {"command": command}),
                ("shell", {"command": ["sh", "-c", command]}),
                (
                    "run_shell_command",
                    {"command": command, "description": "runs", "is_background": False},
                ),
                ("bash", {"command": command, "description": "runs"}),
                ("Bash", {"command": command}),
            ):
                if name in names:
                    return name, arguments
        if "write_file" in names:
            return "write_file", {"file_path": file, "content": self.content}
        if "write" in names:
            return "write", {"filePath": file, "content": self.content}
        return "Write", {"file_path": file, "content": self.content}


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            provider.paths.append(self.path)
            self.reply(200, {"object": "list", "data": [], "models": []})

        def do_POST(self) -> None:
            body = json.loads(
                self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}"
            )
            provider.paths.append(self.path)
            provider.requests.append(body)
            if provider.mode.isdigit():
                code = int(provider.mode)
                kinds = {
                    400: "invalid_request_error",
                    429: "rate_limit_exceeded",
                    529: "overloaded_error",
                }
                words = {400: "bad request", 429: "Rate limit reached", 529: "Overloaded"}
                error = {
                    "type": kinds.get(code, "error"),
                    "code": code,
                    "message": words.get(code, "failed"),
                    "status": "FAILED",
                }
                self.reply(code, {"error": error})
                return
            if provider.mode == "hang":
                provider.stop.wait(60)
                self.close_connection = True
                return
            self.answer(body)

        def answer(self, body: dict[str, Any]) -> None:
            provider.replies += 1
            for part, events in (
                ("/responses", responses),
                ("/chat/completions", chat),
                ("Content", gemini),
                ("/messages", claude),
            ):
                if part in self.path:
                    stream = (
                        body.get("stream", True)
                        if part == "/chat/completions"
                        else "generateContent" not in self.path
                    )
                    lines = list(events(provider, body))
                    break
            else:
                self.reply(404, {"error": {"message": "no such path"}})
                return
            if not stream:
                self.reply(200, whole(part, lines))
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            if provider.mode == "cut":
                lines = lines[:1]
            for line in lines:
                kind = f"event: {line['type']}\n" if "type" in line else ""
                self.wfile.write(f"{kind}data: {json.dumps(line)}\n\n".encode())
                self.wfile.flush()
            if part == "/chat/completions" and provider.mode != "cut":
                self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True

        def reply(self, code: int, data: Any) -> None:
            text = json.dumps(data).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    return Handler


def whole(part: str, lines: list[dict[str, Any]]) -> Any:
    """Return the reply to a request that does not stream."""
    if part == "/chat/completions":
        message = {"role": "assistant", "content": "{}"}
        usage = lines[-1].get("usage") or {}
        return {
            "id": "c",
            "object": "chat.completion",
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": usage,
        }
    return lines[-1]


def responses(provider: Provider, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The OpenAI Responses API."""
    number = provider.replies
    base = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "in_progress",
        "output": [],
    }
    yield {"type": "response.created", "response": base}
    names = {tool.get("name"): tool for tool in body.get("tools") or ()}
    if names and provider.wants_tool(body):
        name, arguments = provider.tool(names)
        item = {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": name,
            "arguments": json.dumps(arguments),
            "status": "completed",
        }
        yield {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "arguments": "", "status": "in_progress"},
        }
        yield {
            "type": "response.function_call_arguments.delta",
            "item_id": item["id"],
            "output_index": 0,
            "delta": item["arguments"],
        }
        yield {
            "type": "response.function_call_arguments.done",
            "item_id": item["id"],
            "output_index": 0,
            "arguments": item["arguments"],
        }
    else:
        part = {"type": "output_text", "text": "done", "annotations": []}
        item = {
            "type": "message",
            "id": f"msg_{number}",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
        yield {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "content": [], "status": "in_progress"},
        }
        yield {
            "type": "response.content_part.added",
            "item_id": item["id"],
            "output_index": 0,
            "content_index": 0,
            "part": {**part, "text": ""},
        }
        yield {
            "type": "response.output_text.delta",
            "item_id": item["id"],
            "output_index": 0,
            "content_index": 0,
            "delta": "done",
        }
        yield {
            "type": "response.output_text.done",
            "item_id": item["id"],
            "output_index": 0,
            "content_index": 0,
            "text": "done",
        }
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    usage = {
        "input_tokens": INPUT,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": OUTPUT,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": INPUT + OUTPUT,
    }
    yield {
        "type": "response.completed",
        "response": {**base, "status": "completed", "output": [item], "usage": usage},
    }


def chat(provider: Provider, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The OpenAI chat API."""
    names = {tool["function"]["name"]: tool for tool in body.get("tools") or ()}
    base = {
        "id": f"chat-{provider.replies}",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
    }
    reason = "stop"
    if names and provider.wants_tool(body):
        name, arguments = provider.tool(names)
        reason = "tool_calls"
        call = {
            "index": 0,
            "id": f"call_{provider.replies}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        yield {
            **base,
            "choices": [
                {
                    "index": 0,
                    "delta": {"role": "assistant", "tool_calls": [call]},
                    "finish_reason": None,
                }
            ],
        }
    else:
        yield {
            **base,
            "choices": [
                {
                    "index": 0,
                    "delta": {"role": "assistant", "content": "done"},
                    "finish_reason": None,
                }
            ],
        }
    yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    usage = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
    yield {**base, "choices": [], "usage": usage}


def gemini(provider: Provider, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The Gemini API."""
    names = {
        one["name"]: one
        for tool in body.get("tools") or ()
        for one in tool.get("functionDeclarations") or ()
    }
    usage = {
        "promptTokenCount": INPUT,
        "candidatesTokenCount": OUTPUT,
        "totalTokenCount": INPUT + OUTPUT,
    }
    part: dict[str, Any] = {"text": "done"}
    if names and provider.wants_tool(body):
        name, arguments = provider.tool(names)
        part = {"functionCall": {"name": name, "args": arguments}}
    content = {"role": "model", "parts": [part]}
    yield {
        "candidates": [{"content": content, "index": 0, "finishReason": "STOP"}],
        "usageMetadata": usage,
        "modelVersion": "m",
        "responseId": f"r{provider.replies}",
    }


def claude(provider: Provider, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The Anthropic Messages API."""
    names = {tool.get("name"): tool for tool in body.get("tools") or ()}
    usage = {"input_tokens": INPUT, "output_tokens": 1}
    message = {
        "id": f"msg_{provider.replies}",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield {"type": "message_start", "message": message}
    reason = "end_turn"
    if names and provider.wants_tool(body):
        name, arguments = provider.tool(names)
        reason = "tool_use"
        yield {
            "type": "content_block_start",
            "index": 0,
            "content_block": {
                "type": "tool_use",
                "id": f"toolu_{provider.replies}",
                "name": name,
                "input": {},
            },
        }
        yield {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": json.dumps(arguments)},
        }
    else:
        yield {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        }
        yield {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "done"},
        }
    yield {"type": "content_block_stop", "index": 0}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": None},
        "usage": {"output_tokens": OUTPUT},
    }
    yield {"type": "message_stop"}
