"""A server that speaks as much of OpenAI's chat API as a client needs, on the standard library."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any], dict[str, str]], tuple[int, str | dict[str, Any]]]


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """Serve `answer(body, headers)`, a status and a text or a message, as completions or errors; yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, text = answer(body, {k.lower(): v for k, v in self.headers.items()})
            message = {"role": "assistant", "content": text}
            if isinstance(text, dict):  # a message with calls of tools
                message = {"role": "assistant", "content": None, **text}
            data = json.dumps(
                {
                    "id": "c1", "object": "chat.completion", "created": 1, "model": body["model"],
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12},
                }
                if status == 200
                else {"error": {"message": text, "type": "error", "code": "error"}}
            ).encode()  # fmt: skip
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
