"""A model for coding agents that follows the script in its prompt: `SCRIPT [["tool", {args}], ...]`. It makes these calls one by one and then says
DONE. It speaks Anthropic's Messages and OpenAI's Responses, both as streams, and writes what each tool returned as a line of JSON.

    python3 scripted_agent_model.py PORT_FILE RESULTS_FILE
"""
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOCK = threading.Lock()
TOLD = set()


def text_of(content):
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(text_of_block(block) if isinstance(block, dict) else str(block) for block in blocks)


def text_of_block(block):
    return "(image)" if "image" in block.get("type", "") else block.get("text", "")


def script_in(text):
    at = text.rfind("SCRIPT [")
    return json.JSONDecoder().raw_decode(text[at + 7:])[0] if at >= 0 else None


def is_early(result):
    """Whether the agent had not connected to the server yet: then the call is made again."""
    if "unsupported call" in result or "No such tool available" in result:
        time.sleep(1)
        return True
    return False


def tell(key, result):
    """Writes a result down, once."""
    with LOCK:
        if key not in TOLD:
            TOLD.add(key)
            with open(sys.argv[2], "a") as file:
                file.write(json.dumps(result) + "\n")


def next_call(script, done, tools):
    """The next call of the script, by the agent's own name for the tool."""
    name, args = script[done]
    found = [tool for tool in tools if tool == name or tool.endswith(f"__{name}") or tool.endswith(f".{name}")]
    return (found or [name])[0], args


def messages(request):
    """The blocks of the answer."""
    script, results = None, []
    for message in request["messages"]:
        content = message["content"]
        if message["role"] == "user":
            found = script_in(text_of(content))
            if found is not None:
                script, results = found, []
            elif script is not None and text_of(content).strip():
                # The agent tells of a task that has ended.
                tell(text_of(content), {"text": text_of(content), "is_error": False})
        for block in content if isinstance(content, list) else []:
            if block.get("type") == "tool_result":
                if not is_early(text_of(block.get("content", ""))):
                    results.append(block)
    if script is None:
        return [{"type": "text", "text": "ok"}]
    for block in results:
        tell(block["tool_use_id"], {"text": text_of(block.get("content", "")), "is_error": bool(block.get("is_error"))})
    tools = [tool["name"] for tool in request.get("tools", [])]
    if len(results) >= len(script):
        return [{"type": "text", "text": "DONE"}]
    name, args = next_call(script, len(results), tools)
    return [{"type": "tool_use", "id": f"toolu_{os.urandom(8).hex()}", "name": name, "input": args}]


def message_events(request):
    blocks = messages(request)
    reason = "tool_use" if blocks[0]["type"] == "tool_use" else "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    yield "message_start", {"message": {"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"], "content": [],
                                        "stop_reason": None, "stop_sequence": None, "usage": usage}}
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            start, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            start, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield "content_block_start", {"index": index, "content_block": start}
        yield "content_block_delta", {"index": index, "delta": delta}
        yield "content_block_stop", {"index": index}
    yield "message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield "message_stop", {}


def response_events(request):
    script, results = None, []
    for item in request["input"]:
        if item.get("type", "message") == "message" and item.get("role") == "user":
            found = script_in(text_of(item["content"]))
            if found is not None:
                script, results = found, []
        elif item.get("type") == "function_call_output":
            if not is_early(text_of(item["output"])):
                results.append(item)
    for item in results:
        output = item["output"]
        tell(item["call_id"], {"text": output if isinstance(output, str) else text_of(output), "is_error": False})
    if script is None or len(results) >= len(script):
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "DONE" if script else "ok", "annotations": []}]}
    else:
        tools = []
        for tool in request.get("tools", []):
            # Tools of a server may stand in a namespace of their own.
            tools += [(inner["name"], tool["name"]) for inner in tool.get("tools", [])] or [(tool.get("name", ""), None)]
        name, args = next_call(script, len(results), [tool for tool, _ in tools])
        item = {"type": "function_call", "id": f"fc_{len(results)}", "call_id": f"call_{os.urandom(8).hex()}", "name": name,
                "arguments": json.dumps(args), "status": "completed"}
        space = dict(tools).get(name)
        if space:
            item["namespace"] = space
    response = {"id": "resp_1", "object": "response", "model": request["model"], "status": "in_progress", "output": []}
    yield "response.created", {"response": response}
    yield "response.output_item.added", {"output_index": 0, "item": item}
    yield "response.output_item.done", {"output_index": 0, "item": item}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield "response.completed", {"response": {**response, "status": "completed", "output": [item], "usage": usage}}


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.reply({"data": []})

    def do_HEAD(self):
        self.reply({})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        path = self.path.split("?")[0]
        if path.endswith("/count_tokens"):
            return self.reply({"input_tokens": 1})
        if path.endswith("/messages"):
            if not request.get("stream"):
                return self.reply({"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"], "content": messages(request),
                                   "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}})
            events = message_events(request)
        elif path.endswith("/responses"):
            events = response_events(request)
        else:
            return self.reply({})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for kind, data in events:
            self.wfile.write(f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode())
        self.close_connection = True

    def reply(self, body):
        body = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(server.server_port))
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
