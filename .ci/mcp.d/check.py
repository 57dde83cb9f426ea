"""The Python SDK as a client of `windlass mcp` and of /mcp, in both eras: list, call, error, approval by a form, and the owner
killed in the middle of a call that has an effect."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

WINDLASS, WORK = sys.argv[1], Path(sys.argv[2])
DATA, LOG, GO = WORK / "data", WORK / "log", WORK / "go"


def count(word: str) -> int:
    return LOG.read_text().split().count(word) if LOG.exists() else 0


def text(result) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


async def until(what: str, is_so) -> None:
    for _ in range(600):
        if is_so():
            return
        await asyncio.sleep(0.05)
    raise SystemExit(f"not in time: {what}")


def owner() -> int:
    """The process that serves the folder."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"serve" in words and os.fsencode(DATA) in words:
            return int(entry.name)
    raise SystemExit("nobody serves the folder")


async def allow(_context, params) -> ElicitResult:
    assert "ask_first" in params.message, params.message
    return ElicitResult(action="accept", content={"approve": True})


async def check(client: Client, name: str, kills: bool) -> None:
    tools = [tool.name for tool in (await client.list_tools()).tools]
    assert tools == sorted(tools) and {"work", "ask_first", "wait_task"} <= set(tools), tools
    echoed = await client.call_tool("echo", {"message": name})
    assert name in text(echoed) and not echoed.is_error, echoed
    broken = await client.call_tool("broken", {})
    assert broken.is_error and "no such thing" in text(broken), broken
    before = count("allowed")
    allowed = await client.call_tool("ask_first", {})
    assert "allowed" in text(allowed) and count("allowed") == before + 1, allowed
    GO.unlink(missing_ok=True)
    begun, effects = count("begin"), count("effect")

    async def heard(_progress, _total, _message) -> None:
        pass

    running = asyncio.create_task(client.call_tool("work", {}, progress_callback=heard))
    await until("it has begun", lambda: count("begin") == begun + 1)
    if kills:
        os.kill(owner(), signal.SIGKILL)
    else:
        GO.touch()
    ended = await running
    GO.touch()
    if kills:
        assert ended.is_error and "not known" in text(ended), ended
        assert (count("begin"), count("effect")) == (begun + 1, effects), "it was not repeated"
    else:
        assert "worked" in text(ended) and count("effect") == effects + 1, ended
    print(f"python, {name}: list, call, error, form{', kill' if kills else ''}")


async def main() -> None:
    for mode in ["auto", "legacy"]:
        args = ["--data", str(DATA), "mcp", "--approve", "--session", f"python-{mode}"]
        server = StdioServerParameters(command=WINDLASS, args=args, cwd=WORK, env=dict(os.environ))
        async with Client(server, mode=mode, elicitation_callback=allow) as client:
            await check(client, f"stdio, {mode}", kills=True)
        headers = {"Authorization": f"Bearer {os.environ['WINDLASS_TOKEN']}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http_client(os.environ["WINDLASS_URL"] + "/mcp", http_client=http)
            async with Client(transport, mode=mode, elicitation_callback=allow) as client:
                await check(client, f"HTTP, {mode}", kills=False)


asyncio.run(main())
