"""The kill rig: server, boxes and both are killed at random while calls of every class run; then a box of each language is frozen until it
has lost its call and goes on; then the ledger is compared with the answers.

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
from typing import Any

import httpx
from harness import Box, Server

from windlass import Client

HERE = Path(__file__).parent
KINDS = ("pay", "book", "ship")
GIVE_UP_S = 600
"""How long a driver waits for an answer: after that, a call is lost."""
START_S = 0.3
"""How long the start of a server takes at least, for the pauses between kills."""
ROUND = 250
"""The kills on one folder: a longer run begins with a new one."""


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
    until = time.monotonic() + 120
    while time.monotonic() < until:
        listed = httpx.get(f"{server.url}/v1/toolboxes", headers=headers).json()["items"]
        if sum(toolbox["served"] for toolbox in listed) == count:
            return
        time.sleep(0.02)
    raise AssertionError("the toolboxes are not served")


class Round:
    """A server with boxes, on a folder of its own, and drivers that call their tools until the kills are over."""

    def __init__(self, folder: Path, seed: str, typescript: Path | None) -> None:
        self.seed = seed
        self.server = Server(folder / "data")
        self.ledger = folder / "ledger"
        self.server.start()
        self.boxes = [Box(self.server, HERE / "rig_tools.py", f"box{place}", LEDGER=str(self.ledger)) for place in range(2)]
        self.kinds = [(kind, kind) for kind in KINDS]
        if typescript:
            self.boxes.append(Box(self.server, typescript, "node", LEDGER=str(self.ledger)))
            self.kinds += [(kind, f"{kind}_ts") for kind in KINDS]
        for box in self.boxes:
            box.start()
        until_served(self.server, 2 if typescript else 1)
        self.calls: dict[str, dict[str, object]] = {}
        self.failed: list[BaseException] = []
        self.done = threading.Event()
        self.start_s = START_S

    def run(self, kills: int) -> collections.Counter[str]:
        drivers = [threading.Thread(target=self.drive, args=(number,)) for number in range(4)]
        for driver in drivers:
            driver.start()
        chance = random.Random(self.seed)
        for _ in range(kills):
            self.kill(chance)
        self.done.set()
        for driver in drivers:
            driver.join(timeout=GIVE_UP_S)
            assert not driver.is_alive(), "a call was lost: its driver still waits"
        if self.failed:
            raise self.failed[0]
        self.freeze(self.boxes[0], "pay")
        if len(self.boxes) > 2:
            self.freeze(self.boxes[2], "pay_ts")
        self.end()
        return check(self.calls, [line.split() for line in self.ledger.read_text().splitlines()])

    def end(self) -> None:
        for box in self.boxes:
            box.kill()
        self.server.kill()

    def kill(self, chance: random.Random) -> None:
        # In terms of how long a start takes, so that kills find work also on a slow machine.
        time.sleep(chance.uniform(0.2, 2.0) * self.start_s)
        victim = chance.choice(["server", "box", "both"])
        box = chance.choice(self.boxes)
        if victim in ("server", "both"):
            self.server.kill()
        if victim in ("box", "both"):
            box.kill()
            box.start()
        if victim in ("server", "both"):
            began = time.monotonic()
            self.server.start()
            self.start_s = max(START_S, time.monotonic() - began)

    def drive(self, number: int) -> None:
        """Calls tools until it is told to end. A batch is asked for until its calls have ended."""
        chosen = random.Random(f"{self.seed}/{number}")
        client = Client(f"rig-{number}", url=self.server.url, token=self.server.token, timeout=GIVE_UP_S)
        turn = 0
        try:
            while not self.done.is_set():
                turn += 1
                batch = [self.ask(chosen, f"{number}-{turn}-{place}", place) for place in range(3)]
                while True:
                    answered = client.batch(batch, key=f"turn-{turn}", timeout=5)
                    if all("outcome" in call for call in answered):
                        break
                for asked, call in zip(batch, answered):
                    self.calls[asked["args"]["order"]] = call
        except BaseException as error:
            self.failed.append(error)

    def ask(self, chosen: random.Random, order: str, place: int) -> dict[str, Any]:
        kind, name = chosen.choice(self.kinds)
        return {"id": f"c{place}", "tool": name, "args": {"order": f"{kind}-{order}", "ms": chosen.randrange(5, 120)}}

    def freeze(self, frozen: Box, name: str) -> None:
        """One process of the toolbox is left. It is frozen until it has lost its call, goes on, and is refused."""
        for box in self.boxes:
            if box is not frozen and box.program == frozen.program:
                box.kill()
        order = f"pay-frozen-{name}"
        with Client("frozen", url=self.server.url, token=self.server.token) as client:
            asked = [{"id": "p", "tool": name, "args": {"order": order, "ms": 500}}]
            client.batch(asked, key=name, wait="none")
            until = time.monotonic() + 60
            while not any(line.split()[1] == order for line in self.ledger.read_text().splitlines()):
                assert time.monotonic() < until, f"{order} was not paid"
                time.sleep(0.01)
            frozen.freeze()
            lost = client.batch(asked, key=name, timeout=60)[0]
            assert lost["state"] == "unknown", f"frozen: {lost}"
            frozen.thaw()
            # It works again, so that its late end was told, and has changed nothing.
            other = [{"id": "b", "tool": name.replace("pay", "book"), "args": {"order": f"book-{order}", "ms": 600}}]
            again = client.batch(other, key=f"{name} again", timeout=60)[0]
            assert again["state"] == "succeeded", f"thawed: {again}"
            self.calls[order] = client.batch(asked, key=name)[0]
            assert self.calls[order]["state"] == "unknown", f"refused: {self.calls[order]}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--typescript", type=Path, help="the tools of the rig in TypeScript, where the package is installed")
    options = parser.parse_args()
    ends: collections.Counter[str] = collections.Counter()
    began, left = time.monotonic(), options.kills
    while left > 0:
        kills = min(left, ROUND)
        with tempfile.TemporaryDirectory() as folder:
            running = Round(Path(folder), f"{options.seed}/{left}", options.typescript)
            try:
                ends += running.run(kills)
            except BaseException:
                print((running.server.folder / "server.log").read_text()[-4000:], file=sys.stderr)
                raise
            finally:
                running.end()
        left -= kills
        told = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
        took = f"{options.kills - left} kills with seed {options.seed} in {time.monotonic() - began:.0f} s"
        print(f"{took}: {sum(ends.values())} calls, none lost: {told}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
