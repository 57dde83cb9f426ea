"""A server of the protocol's authors, asked directly and through `windlass mcp`: the definitions and the results of its tools are the same.

    python3 reference.py WINDLASS FOLDER COMMAND…
"""
import json
import subprocess
import sys

WINDLASS, WORK, COMMAND = sys.argv[1], sys.argv[2], sys.argv[3:]
# The calls, each with its arguments. Left out: what differs from call to call (the environment, times) and what only a client of its own could answer.
CALLS = [
    ("echo", {"message": "grüß 世界"}),
    ("echo", {}),
    ("get-sum", {"a": 2, "b": 40}),
    ("get-sum", {"a": "two", "b": 40}),
    ("get-tiny-image", {}),
    ("get-annotated-message", {"messageType": "error", "includeImage": True}),
    ("get-structured-content", {"location": "New York"}),
    ("get-resource-links", {"count": 3}),
    ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
    ("get-resource-reference", {"resourceType": "Blob", "resourceId": 2}),
]


class Server:
    """A server on pipes, before 2026-07-28."""

    def __init__(self, words):
        self.process = subprocess.Popen(words, cwd=WORK, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.last = 0
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "reference", "version": "1"}}
        self.ask("initialize", hello)
        self.send({"method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.last += 1
        self.send({"id": self.last, "method": method, "params": params})
        while True:
            told = json.loads(self.process.stdout.readline())
            if told.get("id") == self.last and "method" not in told:
                return told.get("result", told)

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=20)


def defined(tool):
    """What a client goes by. The draft that a schema names is left out: an older one is read as today's."""
    schemas = [{name: value for name, value in (tool.get(kind) or {}).items() if name != "$schema"} for kind in ("inputSchema", "outputSchema")]
    return {"title": tool.get("title"), "description": tool.get("description"), "schemas": schemas}


direct, through = Server(COMMAND), Server([WINDLASS, "--data", f"{WORK}/data", "mcp", "--session", "reference"])
theirs = {tool["name"]: tool for tool in direct.ask("tools/list", {})["tools"]}
ours = {tool["name"]: tool for tool in through.ask("tools/list", {})["tools"]}
assert set(theirs) <= set(ours), set(theirs) - set(ours)
for name, tool in theirs.items():
    assert defined(tool) == defined(ours[name]), (name, defined(tool), defined(ours[name]))
compared = 0
for name, args in CALLS:
    asked = {"name": name, "arguments": args}
    expected, got = direct.ask("tools/call", asked), through.ask("tools/call", asked)
    if expected.get("isError") or "error" in expected:
        # Wrong arguments are refused before the server sees them, in words of our own.
        assert got.get("isError"), (asked, expected, got)
    else:
        got.setdefault("isError", False)
        expected.setdefault("isError", False)
        assert expected == got, (asked, expected, got)
    compared += 1
direct.end()
through.end()
print(f"reference server: {len(theirs)} definitions and {compared} results are the same directly and through windlass")
