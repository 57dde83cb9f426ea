"""The documented toolbox, unchanged, whose steps write to a ledger and stand still at one place until a file is there."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import orders  # noqa: E402

from windlass import serve  # noqa: E402

FOLDER = Path(os.environ["LEDGER"])


def wrote(word: str) -> None:
    """One line, on disk."""
    with (FOLDER / "ledger").open("a") as ledger:
        ledger.write(f"{word}\n")
        ledger.flush()
        os.fsync(ledger.fileno())


def pause(place: str) -> None:
    """Stands still where the test wants to kill, once."""
    wanted = FOLDER / f"pause {place}"
    if wanted.exists():
        wanted.unlink()
        (FOLDER / f"at {place}").touch()
        # Whoever is killed here stays; one whose server is killed goes on when the test says so.
        while not (FOLDER / f"go on {place}").exists():
            time.sleep(0.01)


def slowly(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
    def begun(*args: Any) -> None:
        pause(f"{name} begins")
        wrote(name)

    if name == "send":

        async def run_later(*args: Any) -> Any:
            begun(*args)
            value = await step(*args)
            pause(f"{name} ends")
            return value

        return run_later

    def run(*args: Any) -> Any:
        begun(*args)
        value = step(*args)
        pause(f"{name} ends")
        return value

    return run


if __name__ == "__main__":
    for name in ("reserve", "invoice", "send"):
        setattr(orders, name, slowly(name, getattr(orders, name)))
    serve(orders.price, orders.order, toolbox="shop")
