"""The adapters, each with a whole agent against a scripted endpoint: the agent asks for a tool, Windlass runs it in a toolbox, and the
agent's last word holds the result. Each is run twice in one session: the model asks under the same ids, and the tool runs once.

    WINDLASS_BIN=target/debug/windlass python adapters.py with_openai_agents.py … with_ai_sdk.mjs
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from harness import Box, Server

EXAMPLES = Path(__file__).parent.parent / "examples"
ASKED = {"id": "call_1", "type": "function", "function": {"name": "price", "arguments": '{"item": "tea"}'}}


def scripted(request: dict[str, Any]) -> dict[str, Any]:
    """A model that asks for the price of tea, and then says what it was told."""
    assert any(tool["function"]["name"] == "price" for tool in request["tools"]), request["tools"]
    last = request["messages"][-1]
    if last["role"] == "user":
        return {"role": "assistant", "content": None, "tool_calls": [ASKED]}
    assert (last["role"], last["tool_call_id"]) == ("tool", "call_1"), last
    told = last["content"] if isinstance(last["content"], str) else last["content"][0]["text"]
    return {"role": "assistant", "content": f"Tea costs {told}."}


class Endpoint(BaseHTTPRequestHandler):
    """The scripted endpoint."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = scripted(request)
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": "chat-1", "object": "chat.completion", "created": 1, "model": request["model"], "usage": usage}
        answer["choices"] = [{"index": 0, "finish_reason": reason, "message": message}]
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def check(server: Server, program: Path, endpoint: str) -> None:
    """Runs the agent twice, at different times, and looks at the calls of its session."""
    session = program.stem.replace("_", "-")
    keys = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": endpoint, "MODEL": "scripted", "SESSION": session}
    environment = {**os.environ, "WINDLASS_URL": server.url, "WINDLASS_TOKEN": server.token, **keys}
    interpreter = "node" if program.suffix == ".mjs" else sys.executable
    for _ in range(2):
        words = [interpreter, str(program), "What does tea cost?"]
        ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
        assert ran.stdout.strip() == "Tea costs 4.", f"{program.name}: {ran.stdout}\n{ran.stderr}"
    headers = {"Authorization": f"Bearer {server.token}"}
    calls = httpx.get(f"{server.url}/v1/sessions/{session}/calls", headers=headers).json()["items"]
    assert [(call["tool"], call["state"], call["attempts"]) for call in calls] == [("price", "succeeded", 1)], calls


def until_served(server: Server) -> None:
    headers = {"Authorization": f"Bearer {server.token}"}
    until = time.monotonic() + 30
    while not any(box["served"] for box in httpx.get(f"{server.url}/v1/toolboxes", headers=headers).json()["items"]):
        assert time.monotonic() < until, "the toolbox is not served"
        time.sleep(0.02)


def main() -> None:
    listener = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{listener.server_address[1]}/v1"
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        server.start()
        box = Box(server, EXAMPLES / "orders.py")
        box.start()
        until_served(server)
        try:
            failed: list[BaseException] = []

            def run(program: Path) -> None:
                began = time.monotonic()
                try:
                    check(server, program, endpoint)
                    print(f"{program.name}: ok in {time.monotonic() - began:.1f} s", flush=True)
                except BaseException as error:
                    failed.append(error)

            # They mostly import: side by side they take half of the time.
            threads = [threading.Thread(target=run, args=(Path(name),)) for name in sys.argv[1:]]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if failed:
                raise failed[0]
        finally:
            box.kill()
            server.kill()


if __name__ == "__main__":
    main()
