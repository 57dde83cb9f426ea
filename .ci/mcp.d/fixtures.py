"""An MCP server (2026-07-28) with the tools of the conformance suite that ask a person, behind Windlass: its questions become questions of the call, and those
become forms of the client."""
import json
import sys


def form(field, kind="string"):
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": f"The {field}?", "requestedSchema": schema}}


# What each asks in one go.
ASKS = {
    "confirm_delete": {"confirm": form("confirm", "boolean")},
    "multi_input": {"first": form("confirm", "boolean"), "second": form("confirm", "boolean")},
}


def answer(method, params):
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    if method == "tools/list":
        return {"tools": [{"name": name, "description": "Asks.", "inputSchema": {"type": "object"}} for name in ASKS]}
    given = params.get("inputResponses")
    if given is None:
        return {"resultType": "input_required", "inputRequests": ASKS[params["name"]], "requestState": "asked"}
    return {"content": [{"type": "text", "text": f"answered: {json.dumps(given)}"}]}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    known = message["method"] in ("server/discover", "tools/list", "tools/call")
    result = {"result": answer(message["method"], message["params"])} if known else {"error": {"code": -32601, "message": "no such method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **result}), flush=True)
