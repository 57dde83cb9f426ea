"""A server of the protocol's authors, asked directly and through `windlass mcp`: the definitions and the results of its tools are the same, and so are its prompts
and resources.

    python3 reference.py WINDLASS FOLDER COMMAND…
"""
import json
import re
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


# What is no call: the method, its parameters, and the field of the result that is compared.
REQUESTS = [
    ("prompts/list", {}, "prompts"),
    ("prompts/get", {"name": "simple-prompt"}, "messages"),
    ("prompts/get", {"name": "args-prompt", "arguments": {"city": "Wien", "state": "AT"}}, "messages"),
    ("prompts/get", {"name": "resource-prompt", "arguments": {"resourceType": "Text", "resourceId": "1"}}, "messages"),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "completable-prompt"}, "argument": {"name": "department", "value": "E"}}, "completion"),
    ("resources/list", {}, "resources"),
    ("resources/templates/list", {}, "resourceTemplates"),
    ("resources/read", {"uri": "demo://resource/dynamic/text/1"}, "contents"),
    ("resources/read", {"uri": "demo://resource/dynamic/blob/2"}, "contents"),
    ("resources/read", {"uri": "demo://resource/dynamic/text/none"}, "code"),
    ("prompts/get", {"name": "args-prompt", "arguments": {}}, "code"),
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
                return told.get("result", told.get("error", told))

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
    if expected.get("isError") or "code" in expected:
        # Wrong arguments are refused before the server sees them, in words of our own.
        assert got.get("isError"), (asked, expected, got)
    else:
        got.setdefault("isError", False)
        expected.setdefault("isError", False)
        assert expected == got, (asked, expected, got)
    compared += 1


def comparable(result, field):
    """The field, in one order and without the times of day that the server puts into its texts."""
    assert field in result, result
    kept = result[field]
    if isinstance(kept, list):
        # The artifacts of sessions have a template of their own.
        kept = sorted((entry for entry in kept if entry.get("name") != "artifact"), key=lambda entry: json.dumps(entry, sort_keys=True))
    undated = re.sub(r"\d{1,2}:\d{2}:\d{2}( [AP]M)?", "TIME", json.dumps(kept, sort_keys=True))
    return re.sub(r'"blob": "[^"]*"', '"blob": "BYTES"', undated)


for method, params, field in REQUESTS:
    expected, got = direct.ask(method, params), through.ask(method, params)
    assert comparable(expected, field) == comparable(got, field), (method, params, expected, got)
direct.end()
through.end()
asked = len(REQUESTS)
print(f"reference server: {len(theirs)} definitions, {compared} results and {asked} prompts and resources are the same directly and through windlass")
