#!/usr/bin/env python3
"""Submits a batch to a `windlass dev`, follows its events, answers the call that waits, and prints how all of them ended.

    python3 batch.py [URL] [DATA_FOLDER]

Nothing but the standard library. Whenever the connection is lost, also because the server was killed, it comes back: a batch
that is sent again under its key is the same batch, and a cursor says which events were seen.
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
    """Asks the API until it answers; with a body it is a POST. What it refuses is an error that says why."""
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
    """The events of the session, each once, for as long as somebody wants them."""
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
    """Answers a call that waits: the tool wrote the key to a file, elsewhere it may come in a mail."""
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
