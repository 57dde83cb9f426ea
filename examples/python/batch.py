#!/usr/bin/env python3
"""Submits a batch to `windlass dev`, follows its events, answers the call that waits, and prints how every call ended.

    python3 batch.py [URL] [DATA_FOLDER]

Uses only the standard library. If the connection is lost, or the server is killed, it reconnects: a batch sent again under
its key is the same batch, and a cursor says which events were seen.
"""
import http.client
import json
import pathlib
import sys
import time
import urllib.error
import urllib.request

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7420"
DATA = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ".windlass-dev")
TOKEN = (DATA / "token").read_text().strip()
SESSION = "python"
BATCH = {
    "key": "turn-1",
    "calls": [
        {"id": "sum", "tool": "add", "args": {"a": 19, "b": 23}},
        {"id": "slow", "tool": "sleep", "args": {"ms": 500}},
        {"id": "approval", "tool": "ask_approval", "args": {"order": "order-8"}},
    ],
}
TRIES = 60


def ask(path, body=None):
    """Sends a request until it is answered; with a body it is a POST. Exits with the reason if it is refused."""
    data = None if body is None else json.dumps(body).encode()
    for attempt in range(TRIES):
        request = urllib.request.Request(URL + path, data, {"Authorization": "Bearer " + TOKEN})
        try:
            return urllib.request.urlopen(request, timeout=90)
        except urllib.error.HTTPError as refused:
            problem = json.load(refused)
            if refused.code not in (429, 503):
                sys.exit(f"{path}: {problem['code']}: {problem['detail']}")
            time.sleep(float(refused.headers.get("Retry-After", 1)))
        except (urllib.error.URLError, http.client.HTTPException, OSError) as lost:
            print(f"{lost}; trying again", file=sys.stderr)
            time.sleep(1)
    sys.exit(f"{URL} does not answer; is `windlass dev` running?")


def submit(wait):
    """Submits the batch. `none` returns when it is recorded, `settled` when every call has ended."""
    with ask(f"/v1/sessions/{SESSION}/batches", {**BATCH, "wait": wait}) as answer:
        return json.load(answer)


def events(cursor=0):
    """Yields the events of the session, each once, and reconnects when the stream breaks."""
    while True:
        try:
            with ask(f"/v1/sessions/{SESSION}/events?after={cursor}") as stream:
                for line in stream:
                    if line.startswith(b"data:"):
                        event = json.loads(line[len(b"data:"):])
                        cursor = event.get("cursor", cursor)
                        yield event
        except (http.client.HTTPException, OSError) as lost:
            print(f"{lost}; going on behind cursor {cursor}", file=sys.stderr)


def complete(order, result):
    """Answers a call that waits. This tool wrote its key to a file; another may send it by mail."""
    key = (DATA / f"{order}.key").read_text().strip()
    ask(f"/v1/completions/{key}", {"ok": result}).close()


def main():
    left = {call["id"] for call in submit(wait="none")["calls"] if "outcome" not in call}
    following = events()
    while left:
        event = next(following)
        if event.get("batch") != BATCH["key"]:
            continue
        print(event["kind"], event["id"], event.get("narration", ""))
        if event["id"] == "approval" and event["kind"] == "suspended":
            complete("order-8", {"approved": True})
        if event["kind"] == "ended":
            left.discard(event["id"])
    for call in submit(wait="settled")["calls"]:
        print(call["id"], call["state"], json.dumps(call["outcome"].get("value")))


if __name__ == "__main__":
    main()
