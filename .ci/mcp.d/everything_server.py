"""The fixtures of `everything.py` as an MCP server: on standard input and output, or over HTTP. With `ERA=older` it does not know the revision of 2026.

    python3 everything_server.py [PORT]
"""
import base64
import binascii
import itertools
import json
import os
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from everything import MODERN, VERSIONS, Refused, answer

IS_OLDER = os.environ.get("ERA") == "older"
META = "io.modelcontextprotocol/"
LOCAL = ("localhost", "127.0.0.1", "::1")
# Requests of ours that wait for the client's answer, by their ids.
waiting, numbers = {}, itertools.count(1)


class Peer:
    """One request of a client: what it says of itself, and what it hears before its answer."""

    def __init__(self, message, tell):
        self.params = message.get("params") or {}
        self.meta = self.params.get("_meta") or {}
        self.is_modern = META + "protocolVersion" in self.meta and not IS_OLDER
        self.capabilities = self.meta.get(META + "clientCapabilities") or {}
        self.tell = tell

    def report(self, progress, total):
        token = self.meta.get("progressToken")
        if token is not None:
            params = {"progressToken": token, "progress": progress, "total": total}
            self.tell({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    def log(self, said):
        if not self.is_modern or META + "logLevel" in self.meta:
            self.tell({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": said}})

    def ask(self, method, params):
        number = f"ask-{next(numbers)}"
        waiting[number] = queue.Queue()
        self.tell({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        told = waiting[number].get(timeout=30)
        del waiting[number]
        if "result" not in told:
            raise Refused(-32603, f"the client refused: {told.get('error')}")
        return told["result"]


def heard(message):
    """Whether a message is the answer to a request of ours."""
    if "method" in message:
        return False
    if message.get("id") in waiting:
        waiting[message["id"]].put(message)
    return True


def answered(message, tell):
    """The answer to a request, with the status that goes with it."""
    peer = Peer(message, tell)
    try:
        told = {"result": answer(peer, message["method"], peer.params)}
    except Refused as refused:
        told = {"error": refused.error}
    code = told.get("error", {}).get("code")
    status = {-32601: 404, -32021: 400}.get(code, 200) if peer.is_modern else 200
    return status, {"jsonrpc": "2.0", "id": message["id"], **told}


def serve_pipes():
    lock = threading.Lock()

    def tell(message):
        with lock:
            print(json.dumps(message), flush=True)

    for line in sys.stdin:
        message = json.loads(line)
        if not heard(message) and "id" in message:
            threading.Thread(target=lambda asked=message: tell(answered(asked, tell)[1]), daemon=True).start()


def plain(header):
    if header and header.startswith("=?base64?") and header.endswith("?="):
        try:
            return base64.b64decode(header[9:-2], validate=True).decode()
        except (binascii.Error, ValueError):
            return None
    return header


class Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.say(405, None)

    do_DELETE = do_GET

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        origin = self.headers.get("origin")
        if urlsplit("//" + self.headers.get("host", "")).hostname not in LOCAL or (origin and urlsplit(origin).hostname not in LOCAL):
            return self.say(403, None)
        try:
            message = json.loads(body)
            assert isinstance(message, dict)
        except (ValueError, AssertionError):
            return self.say(400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no message"}})
        if heard(message) or "id" not in message:
            return self.say(202, None)
        wrong = self.wrong(message)
        if wrong:
            return self.say(400, {"jsonrpc": "2.0", "id": message["id"], "error": wrong})
        if message["method"] != "tools/call":
            return self.say(*answered(message, None))
        return self.stream(message)

    def wrong(self, message):
        """The error of a request whose headers and metadata are not what its era wants."""
        params = message.get("params") or {}
        meta, header = params.get("_meta") or {}, self.headers.get("mcp-protocol-version")
        version = meta.get(META + "protocolVersion")
        if version is None and header != MODERN and message["method"] != "server/discover":
            return None if header in (None, *VERSIONS) else {"code": -32022, "message": "unknown version", "data": {"supported": [MODERN], "requested": header}}
        if not isinstance(version, str) or not isinstance(meta.get(META + "clientCapabilities"), dict):
            return {"code": -32602, "message": "the metadata of the request is not complete"}
        named = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}.get(message["method"])
        expected = {"mcp-protocol-version": version, "mcp-method": message["method"], **({"mcp-name": params.get(named)} if named else {})}
        for name, value in expected.items():
            if plain((self.headers.get(name) or "").strip() or None) != value:
                return {"code": -32020, "message": f"the header {name} must be {value!r}"}
        if version != MODERN:
            return {"code": -32022, "message": "unknown version", "data": {"supported": [MODERN], "requested": version}}
        return None

    def stream(self, message):
        """A call: an error at once has its status; what is told before the answer makes a stream of it."""
        is_open = False

        def tell(told):
            nonlocal is_open
            if not is_open:
                is_open = True
                self.close_connection = True
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
            self.wfile.write(f"event: message\ndata: {json.dumps(told)}\n\n".encode())
            self.wfile.flush()

        status, told = answered(message, tell)
        if is_open:
            tell(told)
        else:
            self.say(status, told)

    def say(self, status, message):
        body = json.dumps(message).encode() if message else b""
        self.send_response(status)
        if message:
            self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if len(sys.argv) > 1:
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Door)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_port}/mcp", flush=True)
    server.serve_forever()
else:
    serve_pipes()
