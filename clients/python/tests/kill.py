"""The kill rig: server, boxes and both are killed at random while calls of every class run; then the ledger is compared with the answers.

    WINDLASS_BIN=target/debug/windlass python kill.py --kills 20 --seed 1 [--typescript rig_tools.mjs]
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
from harness import Box, Server

from windlass import Client

HERE = Path(__file__).parent
KINDS = ("pay", "book", "ship")


def check(calls: dict[str, dict[str, object]], ledger: list[list[str]]) -> collections.Counter[str]:
    """Compares every answer with the effects. Returns how many calls ended how."""
    ends: collections.Counter[str] = collections.Counter()
    runs: dict[tuple[str, ...], int] = collections.Counter()
    keys: dict[str, set[str]] = collections.defaultdict(set)
    recorded: set[tuple[str, str]] = set()
    for kind, order, *rest in ledger:
        if kind == "step":
            assert (order, rest[0]) not in recorded, f"{order}: the step {rest[0]} ran after it was recorded"
            runs[(kind, order, rest[0])] += 1
        elif kind == "recorded":
            recorded.add((order, rest[0]))
        else:
            runs[(kind, order)] += 1
            keys[order].add(rest[0])
    for order, call in calls.items():
        kind, state = order.split("-")[0], str(call["state"])
        ends[f"{kind} {state}"] += 1
        if kind == "pay":
            times = runs[("pay", order)]
            assert times <= 1, f"{order} was paid {times} times"
            assert state in ("succeeded", "unknown"), f"{order}: {call}"
            assert state == "unknown" or times == 1, f"{order} is {state} and was paid {times} times"
        if kind == "book":
            assert state == "succeeded" and runs[("book", order)] >= 1, f"{order}: {call}"
            assert len(keys[order]) == 1, f"{order} has the keys {keys[order]}"
        if kind == "ship":
            assert state == "succeeded", f"{order}: {call}"
            assert {(order, "pick"), (order, "pack")} <= recorded, f"{order}: {recorded}"
    return ends


def until_served(server: Server, count: int) -> None:
    """The tools must be known before the first call."""
    headers = {"Authorization": f"Bearer {server.token}"}
    until = time.monotonic() + 30
    while time.monotonic() < until:
        listed = httpx.get(f"{server.url}/v1/toolboxes", headers=headers).json()["items"]
        if sum(toolbox["served"] for toolbox in listed) == count:
            return
        time.sleep(0.02)
    raise AssertionError("the toolboxes are not served")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--typescript", type=Path, help="the tools of the rig in TypeScript, where the package is installed")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "data")
        ledger = Path(folder) / "ledger"
        server.start()
        boxes = [Box(server, HERE / "rig_tools.py", f"box{place}", LEDGER=str(ledger)) for place in range(2)]
        kinds = [(kind, kind) for kind in KINDS]
        if options.typescript:
            boxes.append(Box(server, options.typescript, "node", LEDGER=str(ledger)))
            kinds += [(kind, f"{kind}_ts") for kind in KINDS]
        for box in boxes:
            box.start()
        until_served(server, 2 if options.typescript else 1)
        calls: dict[str, dict[str, object]] = {}
        failed: list[BaseException] = []
        done = threading.Event()

        def drive(number: int) -> None:
            chosen = random.Random(f"{options.seed}/{number}")
            client = Client(f"rig-{number}", url=server.url, token=server.token, timeout=120)
            turn = 0
            try:
                while not done.is_set():
                    turn += 1
                    chosen_kinds = [chosen.choice(kinds) for _ in range(3)]
                    batch = [
                        {"id": f"c{place}", "tool": name, "args": {"order": f"{kind}-{number}-{turn}-{place}", "ms": chosen.randrange(5, 120)}}
                        for place, (kind, name) in enumerate(chosen_kinds)
                    ]
                    while True:
                        answered = client.batch(batch, key=f"turn-{turn}", timeout=5)
                        if all("outcome" in call for call in answered):
                            break
                    for asked, call in zip(batch, answered):
                        calls[asked["args"]["order"]] = call
            except BaseException as error:
                failed.append(error)

        drivers = [threading.Thread(target=drive, args=(number,)) for number in range(4)]
        for driver in drivers:
            driver.start()
        for _ in range(options.kills):
            time.sleep(chance.uniform(0.05, 0.6))
            victim = chance.choice(["server", "box", "both"])
            box = chance.choice(boxes)
            if victim in ("server", "both"):
                server.kill()
            if victim in ("box", "both"):
                box.kill()
                box.start()
            if victim in ("server", "both"):
                server.start(wait=False)
                server.until_ready()
        done.set()
        for driver in drivers:
            driver.join(timeout=120)
            assert not driver.is_alive(), "a call was lost: its driver still waits"
        for box in boxes:
            box.kill()
        server.kill()
        if failed:
            raise failed[0]
        ends = check(calls, [line.split() for line in ledger.read_text().splitlines()])
    told = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    print(f"{options.kills} kills with seed {options.seed}: {sum(ends.values())} calls, none lost: {told}")


if __name__ == "__main__":
    sys.exit(main())
