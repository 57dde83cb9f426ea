"""A model that follows a script, for OpenAI's and Anthropic's clients. What it says depends only on what it was sent.

Asked to greet, it edits a file, is told that there is none, writes it, edits it, and says so. Asked to fix the tests, it reads two files at
once, makes two edits at once of which one comes too late, makes that one again, runs the tests in the background, and shows the diff.

    python3 scripted_model.py PORT_FILE
"""
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

EDIT = ("edit_file", {"path": "hello.txt", "old": "world", "new": "sailor"})
GREETING = [[EDIT], [("write_file", {"path": "hello.txt", "text": "hello world"})], [EDIT]]


def greet(turns):
    """The next calls, or what it says at the end."""
    if len(turns) < len(GREETING):
        return GREETING[len(turns)]
    return f"Done. The file says: {turns[-1][0].strip()}"


def edit(path, hash, old, new):
    return ("edit_file", {"path": path, "expected_hash": hash, "old_text": old, "new_text": new})


COUNT = ("    for price in prices[1:]:", "    for price in prices:")
SHOWN = ('{cents // 100}.{cents % 100}"', '{cents // 100}.{cents % 100:02}"')
TESTS = {"argv": ["python3", "-B", "-m", "unittest", "-v"], "read_only": True}


def fix(turns):
    match len(turns):
        case 0:
            return [("read_file", {"path": "prices.py"}), ("read_file", {"path": "test_prices.py"}),
                    ("grep_files", {"pattern": "def "})]
        case 1:
            assert "prices[1:]" in turns[0][0] and "450" in turns[0][1] and "prices.py:12:def shown" in turns[0][2], turns
            hash = json.loads(turns[0][0].splitlines()[0])["hash"]
            # Both for the same content: whichever comes second is refused.
            return [edit("prices.py", hash, *COUNT), edit("prices.py", hash, *SHOWN)]
        case 2:
            refused = json.loads(turns[1][1])
            assert refused["tool_code"] == "stale" and "+    for price in prices:" in refused["error"], refused
            now = re.search("its hash is ([0-9a-f]{32}) now", refused["error"])
            return [edit("prices.py", now[1], *SHOWN)]
        case 3:
            return [("spawn_background", {"tool": "run_command", "args": TESTS, "title": "the tests"})]
        case 4:
            return [("wait_task", {"task": json.loads(turns[3][0])["task"]})]
    tests = turns[4][0]
    passed = "3 tests, OK" if "Ran 3 tests" in tests and "\\n\\nOK\\n" in tests else tests
    diffs = "".join(result.split("\n", 1)[1] for result in (turns[1][0], turns[2][0]))
    return f"Fixed: all prices count, and cents have two digits. {passed}\n\n{diffs}"


def say(messages, turns):
    question = next(message["content"] for message in messages if message["role"] == "user")
    return (fix if "Fix" in str(question) else greet)(turns)


def openai(messages):
    turns = []
    for message in messages:
        if message["role"] == "assistant":
            turns.append([])
        elif message["role"] == "tool":
            turns[-1].append(message["content"])
    said, turn = say(messages, turns), len(turns)
    is_over = isinstance(said, str)
    message = {"role": "assistant", "content": said if is_over else None}
    if not is_over:
        message["tool_calls"] = [
            {"id": f"call_{turn}_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
            for n, (name, args) in enumerate(said)
        ]
    reason = "stop" if is_over else "tool_calls"
    return {"id": f"chatcmpl-{turn}", "object": "chat.completion", "created": 1, "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}]}


def anthropic(messages):
    turns = []
    for message in messages:
        blocks = message["content"] if isinstance(message["content"], list) else []
        results = [block["content"][0]["text"] for block in blocks if block["type"] == "tool_result"]
        turns += [results] if results else []
    said, turn = say(messages, turns), len(turns)
    if isinstance(said, str):
        content, reason = [{"type": "text", "text": said}], "end_turn"
    else:
        content = [{"type": "tool_use", "id": f"toolu_{turn}_{n}", "name": name, "input": args}
                   for n, (name, args) in enumerate(said)]
        reason = "tool_use"
    return {"id": f"msg_{turn}", "type": "message", "role": "assistant", "model": "scripted", "content": content,
            "stop_reason": reason, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}


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
