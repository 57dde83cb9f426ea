"""The tools of the kill rig. Each effect is a line in a ledger, written before anything else happens."""

from __future__ import annotations

import asyncio
import os
import time

from windlass import Context, SyncContext, serve, tool


def wrote(*words: object) -> None:
    """One line, whole or not at all, and on disk."""
    line = (" ".join(str(word) for word in words) + "\n").encode()
    ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(ledger, line)
        os.fsync(ledger)
    finally:
        os.close(ledger)


@tool(effect="once", claims=[])
def pay(order: str, ms: int, ctx: SyncContext) -> str:
    """Must not happen twice."""
    wrote("pay", order, ctx.idempotency_key)
    time.sleep(ms / 1000)
    return f"paid {order}"


@tool(effect="keyed", claims=[], retry={"attempts": 50, "base_ms": 20, "cap_ms": 50})
async def book(order: str, ms: int, ctx: Context) -> str:
    """The other side deduplicates by the key."""
    wrote("book", order, ctx.idempotency_key)
    await asyncio.sleep(ms / 1000)
    return f"booked {order}"


@tool(effect="stepped", claims=[], retry={"attempts": 50, "base_ms": 20, "cap_ms": 50})
async def ship(order: str, ms: int, ctx: Context) -> str:
    """Two steps around a sleep."""

    def run(name: str) -> str:
        wrote("step", order, name)
        time.sleep(ms / 3000)
        return f"{name} of {order}"

    first = await ctx.step("pick", run, "pick")
    wrote("recorded", order, "pick")
    await ctx.sleep("rest", ms / 1000)
    second = await ctx.step("pack", run, "pack")
    wrote("recorded", order, "pack")
    return f"{first}, {second}"


def main() -> None:
    serve(pay, book, ship, toolbox="rig", slots=8)


if __name__ == "__main__":
    main()
