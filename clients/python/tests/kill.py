"""The kill rig: server, boxes and both are killed at random while calls of every class run; then a box of each language is frozen until it
has lost its call and goes on; then the ledger and the journals are compared with the answers.

    WINDLASS_BIN=target/release/windlass python kill.py --kills 20 --seed 1 [--worlds 4] [--typescript rig_tools.mjs] [--results results.jsonl]

Each world is a server with its boxes on a folder of its own; after some kills it ends, is checked, and another one begins. The folder of a
world that breaks a rule is kept, and its place is told.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness import Box, Nursery, Server

from windlass import Client

HERE = Path(__file__).parent
KINDS = ("pay", "book", "ship")
TOOLBOXES = {".py": "rig", ".mjs": "rigts"}
"""The toolbox that a program serves."""
GIVE_UP_S = 600
"""How long a driver waits for an answer: after that, a call is lost."""
START_S = 0.15
"""How long the start of a server takes at least, for the pauses between kills."""
ROUND = 250
"""The kills on one folder: a longer run begins with a new one."""
DRIVERS = 6
"""How many sessions call tools at once."""
CONFIG = """
[limits]
toolbox_silence_ms = 700
toolbox_wait_ms_max = 200
"""
"""A short silence: whoever called something of a process that was killed waits that long."""
WORK_S_MAX = 1.0
"""How long a kill waits at most until something has happened since the last one."""
DEATHS_MAX = 3
"""A call is set aside after so many deaths of whoever ran it."""
TOLD_S = 15
"""How often it is told how far the run is."""


class Ledger:
    """The effects that there were, line by line."""

    def __init__(self, lines: list[list[str]]) -> None:
        self.runs: collections.Counter[tuple[str, ...]] = collections.Counter()
        self.keys: dict[str, set[str]] = collections.defaultdict(set)
        self.recorded: set[tuple[str, str]] = set()
        for kind, order, *rest in lines:
            if kind == "step":
                assert (order, rest[0]) not in self.recorded, f"{order}: the step {rest[0]} ran after it was recorded"
                self.runs[(kind, order, rest[0])] += 1
            elif kind == "recorded":
                self.recorded.add((order, rest[0]))
            else:
                self.runs[(kind, order)] += 1
                self.keys[order].add(rest[0])

    def check(self, order: str, call: dict[str, Any]) -> None:
        """Compares the end of a call with its effects."""
        kind, state, told = order.split("-")[0], call["state"], f"{order}: {call}"
        if kind == "pay":
            times = self.runs[("pay", order)]
            assert times <= 1, f"{order} was paid {times} times"
            assert state in ("succeeded", "unknown"), told
            assert state == "unknown" or times == 1, f"{order} is {state} and was paid {times} times"
        if kind == "book":
            assert state == "succeeded" and self.runs[("book", order)] >= 1, told
            assert len(self.keys[order]) == 1, f"{order} has the keys {self.keys[order]}"
        if kind == "ship":
            assert state == "succeeded", told
            assert {(order, "pick"), (order, "pack")} <= self.recorded, f"{told}: {self.recorded}"


class Deaths:
    """The attempts that a call lost with the process that ran them, by its journal; and how many of these a kill explains."""

    def __init__(self, journal: list[dict[str, Any]], killed: list[tuple[float, str]]) -> None:
        self.attempts: set[str] = set()
        self.by_kill = 0
        handed, toolbox = 0.0, ""
        for entry in journal:
            at = datetime.datetime.fromisoformat(entry["at"].replace("Z", "+00:00")).timestamp()
            if entry["kind"] == "handed":
                handed, toolbox = at, entry["text"].rsplit(" ", 1)[1]
            elif entry["kind"] == "lost" and (found := re.fullmatch(r"the owner died while attempt (\d+) was running", entry["text"])):
                self.attempts.add(found[1])
                # The clocks of the journal and of the rig differ by milliseconds.
                self.by_kill += any(name == toolbox and handed - 0.1 <= when <= at + 0.1 for when, name in killed)


def until_served(server: Server, count: int) -> None:
    """The tools must be known before the first call."""
    until = time.monotonic() + 120
    while sum(server.served()) < count:
        assert time.monotonic() < until, "the toolboxes are not served"
        time.sleep(0.02)


class Round:
    """A server with boxes, on a folder of its own, and drivers that call their tools until the kills are over."""

    def __init__(self, folder: Path, seed: str, nursery: Nursery, typescript: Path | None) -> None:
        self.seed = seed
        self.killed: collections.Counter[str] = collections.Counter()
        self.killed_boxes: list[tuple[float, str]] = []
        self.deaths: collections.Counter[str] = collections.Counter()
        self.server = Server(folder / "data", CONFIG)
        self.ledger = folder / "ledger"
        self.server.start()
        self.boxes = [Box(self.server, HERE / "rig_tools.py", f"box{place}", nursery, LEDGER=str(self.ledger)) for place in range(2)]
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
        drivers = [threading.Thread(target=self.drive, args=(number,)) for number in range(DRIVERS)]
        for driver in drivers:
            driver.start()
        chance = random.Random(self.seed)
        while self.killed.total() < kills:
            self.kill(chance)
        self.done.set()
        for driver in drivers:
            driver.join(timeout=GIVE_UP_S)
            assert not driver.is_alive(), "a call was lost: its driver still waits"
        if self.failed:
            raise self.failed[0]
        frozen = [(self.boxes[0], "pay"), *((box, "pay_ts") for box in self.boxes[2:])]
        with ThreadPoolExecutor() as threads:
            for done in [threads.submit(self.freeze, box, name) for box, name in frozen]:
                done.result()
        ends = self.check()
        self.end()
        return ends

    def check(self) -> collections.Counter[str]:
        """Compares every answer with the effects and the journal. Returns how many calls ended how."""
        ends: collections.Counter[str] = collections.Counter()
        ledger = Ledger([line.split() for line in self.ledger.read_text().splitlines()])
        for order, call in self.calls.items():
            kind, is_poison = order.split("-")[0], "poison" in str(call.get("outcome"))
            ends[f"{kind} {'poison' if is_poison else call['state']}"] += 1
            # Fewer attempts are fewer deaths.
            deaths = 0
            if is_poison or call["attempts"] >= DEATHS_MAX or call["state"] == "unknown":
                shown = self.server.shows(f"/v1/calls/{call['call']}?journal=true")
                found = Deaths(shown["journal"], self.killed_boxes)
                deaths = len(found.attempts)
                self.deaths["by a kill"] += found.by_kill
                self.deaths["by silence alone"] += deaths - found.by_kill
            assert is_poison == (deaths >= DEATHS_MAX), f"{order}: {deaths} deaths are recorded, and it is {call}"
            assert call["state"] != "unknown" or deaths == 1, f"{order}: {deaths} deaths are recorded, and it is {call}"
            if is_poison:
                assert kind != "pay", f"{order}: {call}"
            else:
                ledger.check(order, call)
        return ends

    def end(self) -> None:
        for box in self.boxes:
            box.kill()
        self.server.kill()

    def kill(self, chance: random.Random) -> None:
        # In terms of how long a start takes, and not before something was done, so that kills find work also on a slow machine.
        before, until = self.size(), time.monotonic() + WORK_S_MAX
        time.sleep(chance.uniform(0.2, 2.0) * self.start_s)
        while self.size() == before and time.monotonic() < until:
            time.sleep(0.005)
        victim = chance.choice(["server", "starting", "box", "both"])
        box = chance.choice(self.boxes)
        if victim != "box":
            self.server.kill()
        if victim in ("box", "both"):
            self.killed_boxes.append((time.time(), TOOLBOXES[box.program.suffix]))
            box.kill()
            box.start()
        if victim == "starting":
            # While it takes over what the one before it had.
            self.server.start(wait=False)
            time.sleep(chance.uniform(0.0, 1.2) * self.start_s)
            self.server.kill()
            self.killed["server"] += 1
        if victim != "box":
            began = time.monotonic()
            self.server.start()
            self.start_s = max(START_S, time.monotonic() - began)
        self.killed[victim] += 1

    def size(self) -> int:
        """How many bytes the ledger has."""
        return self.ledger.stat().st_size if self.ledger.exists() else 0

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
            self.killed_boxes.append((time.time(), TOOLBOXES[frozen.program.suffix]))
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


class Run:
    """Worlds of several threads, until there were enough kills."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.lock = threading.Lock()
        self.left: int = options.kills
        # As many for each world.
        self.round = min(ROUND, -(-options.kills // options.worlds))
        self.rounds = 0
        self.nursery = Nursery(HERE / "rig_tools.py")
        self.ends: collections.Counter[str] = collections.Counter()
        self.deaths: collections.Counter[str] = collections.Counter()
        self.killed: collections.Counter[str] = collections.Counter()
        self.under_way: dict[int, Round] = {}
        self.broken: list[str] = []
        self.began = time.monotonic()

    def work(self, number: int) -> None:
        while True:
            with self.lock:
                kills = min(self.left, self.round)
                self.left -= kills
                self.rounds += 1
                seed = f"{self.options.seed}/{self.rounds}"
            if kills <= 0 or self.broken:
                return
            folder = Path(tempfile.mkdtemp(prefix="windlass-kill-"))
            world: Round | None = None
            try:
                world = self.under_way[number] = Round(folder, seed, self.nursery, self.options.typescript)
                ends = world.run(kills)
                with self.lock:
                    self.ends += ends
                    self.deaths += world.deaths
            except BaseException as error:
                self.broken.append(f"{seed} in {folder}: {type(error).__name__}: {error}")
                print(f"BROKEN: {self.broken[-1]}", file=sys.stderr, flush=True)
            finally:
                if world is not None:
                    world.end()
                    with self.lock:
                        self.killed += world.killed
                        del self.under_way[number]
            if not self.broken:
                shutil.rmtree(folder)

    def tell(self) -> None:
        with self.lock:
            killed = self.killed.total() + sum(world.killed.total() for world in self.under_way.values())
            calls = self.ends.total() + sum(len(world.calls) for world in self.under_way.values())
        print(f"{time.monotonic() - self.began:.0f} s: {killed} kills, {calls} calls answered", flush=True)

    def run(self) -> int:
        threads = [threading.Thread(target=self.work, args=(number,)) for number in range(self.options.worlds)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(timeout=TOLD_S / len(threads))
            self.tell()
        self.nursery.close()
        seconds = time.monotonic() - self.began
        took = f"{self.killed.total()} kills with seed {self.options.seed} in {seconds:.0f} s, {60 * self.killed.total() / seconds:.0f} in a minute"
        told = ", ".join(f"{count} {end}" for end, count in sorted(self.ends.items()))
        print(f"{took}: {self.ends.total()} calls, {'none lost' if not self.broken else 'BROKEN'}: {told}; deaths in looked-up journals: {dict(self.deaths)}", flush=True)
        if self.options.results:
            self.record()
        return 1 if self.broken else 0

    def record(self) -> None:
        """In the form of the other proofs."""
        commit = subprocess.run(["git", "describe", "--always", "--dirty=+", "--abbrev=12"], cwd=HERE, text=True, stdout=subprocess.PIPE, check=True).stdout.strip()
        line = {
            "at": int(time.time()),
            "commit": commit,
            "count": self.killed.total(),
            "more": {"calls": self.ends.total(), "deaths": dict(sorted(self.deaths.items())), "ends": dict(sorted(self.ends.items())), "killed": dict(sorted(self.killed.items())), "typescript": self.options.typescript is not None, "worlds": self.rounds - self.options.worlds},
            "proof": "kill-toolboxes",
            "seconds": round(time.monotonic() - self.began, 1),
            "seed": self.options.seed,
            "version": "0.1.0",
            "violations": len(self.broken),
        }
        with self.options.results.open("a") as results:
            results.write(json.dumps(line, separators=(",", ":")) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worlds", type=int, default=1, help="how many servers with boxes run at once")
    parser.add_argument("--typescript", type=Path, help="the tools of the rig in TypeScript, where the package is installed")
    parser.add_argument("--results", type=Path, help="the file to which a line about the run is appended")
    return Run(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
