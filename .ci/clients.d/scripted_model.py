"""A model that follows a script, for OpenAI's and Anthropic's clients: it edits a file, is told that there is none, writes
it, edits it, and says so. What it says depends only on how many results of tools it was sent.

    python3 scripted_model.py PORT_FILE
"""
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

EDIT = ("edit_file", {"path": "hello.txt", "old": "world", "new": "sailor"})
SCRIPT = [[EDIT], [("write_file", {"path": "hello.txt", "text": "hello world"})], [EDIT]]


def openai(messages):
    results = [message for message in messages if message["role"] == "tool"]
    turn = len(results)
    calls = [
        {"id": f"call_{turn}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        for name, args in (SCRIPT[turn] if turn < len(SCRIPT) else [])
    ]
    message = {"role": "assistant", "content": None if calls else said(results[-1]["content"])}
    if calls:
        message["tool_calls"] = calls
    reason = "tool_calls" if calls else "stop"
    return {"id": f"chatcmpl-{turn}", "object": "chat.completion", "created": 1, "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}]}


def anthropic(messages):
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    results = [block for block in blocks if block["type"] == "tool_result"]
    turn = len(results)
    content = [
        {"type": "tool_use", "id": f"toolu_{turn}", "name": name, "input": args}
        for name, args in (SCRIPT[turn] if turn < len(SCRIPT) else [])
    ]
    reason = "tool_use" if content else "end_turn"
    content = content or [{"type": "text", "text": said(results[-1]["content"][0]["text"])}]
    return {"id": f"msg_{turn}", "type": "message", "role": "assistant", "model": "scripted", "content": content,
            "stop_reason": reason, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}


def said(last):
    return f"Done. The file says: {last.strip()}"


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert request["tools"], "the model sees no tools"
        answer = anthropic if self.path.endswith("/messages") else openai
        body = json.dumps(answer(request["messages"])).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
with open(sys.argv[1], "w") as file:
    file.write(str(server.server_port))
server.serve_forever()
