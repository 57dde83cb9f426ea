"""Agent SDKs of others as clients of `windlass mcp`: list, call, error, a call that outlasts their own deadline, and the owner killed in the middle
of a call that has an effect. No model is needed: the tools are called as the SDK's agent would call them.

    python3 agent_sdks.py openai|pydantic|langchain WINDLASS FOLDER
"""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

KIND, WINDLASS, WORK = sys.argv[1], sys.argv[2], Path(sys.argv[3])
DATA, LOG, GO = WORK / "data", WORK / "log", WORK / "go"
COMMAND = {"command": WINDLASS, "args": ["--data", str(DATA), "mcp", "--session", KIND], "cwd": str(WORK), "env": dict(os.environ)}


def count(word: str) -> int:
    return LOG.read_text().split().count(word) if LOG.exists() else 0


async def until(what: str, is_so) -> None:
    for _ in range(1200):
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


async def check(names, call) -> None:
    """`names()` lists the tools; `call(name, args)` returns the text of a result, and whether it is an error."""
    listed = await names()
    assert {"work", "echo", "wait_task"} <= set(listed), listed
    text, is_error = await call("echo", {"message": KIND})
    assert KIND in text and not is_error, text
    text, is_error = await call("picture", {})
    assert not is_error, text
    text, is_error = await call("broken", {})
    assert is_error and "no such thing" in text, text
    # It is answered before the deadline of the SDK (5 s in one of them), which hears how to go on.
    GO.unlink(missing_ok=True)
    begun, effects = count("begin"), count("effect")
    running = asyncio.create_task(call("work", {}))
    await asyncio.wait([running], timeout=8)
    if running.done():
        text, is_error = running.result()
        task = re.search(r"task (\S+?)\.", text)
        assert task and not is_error, text
    GO.touch()
    if running.done():
        for _ in range(20):
            text, is_error = await call("wait_task", {"task": task[1]})
            if "continues as task" not in text:
                break
    else:
        # An SDK that repeats a call by itself was told to do so meanwhile.
        text, is_error = await running
    assert "worked" in text and not is_error, text
    assert (count("begin"), count("effect")) == (begun + 1, effects + 1), "one effect"
    # The owner dies in the middle: the call is answered, and not made again.
    GO.unlink()
    running = asyncio.create_task(call("work", {}))
    await until("it has begun", lambda: count("begin") == begun + 2)
    os.kill(owner(), signal.SIGKILL)
    text, is_error = await running
    assert is_error and "not known" in text, text
    assert (count("begin"), count("effect")) == (begun + 2, effects + 1), "it was not repeated"
    GO.touch()
    print(f"{KIND}: list, call, error, image, long call, kill")


async def openai() -> None:
    from agents.mcp import MCPServerStdio

    async with MCPServerStdio(params=COMMAND) as server:  # with its own deadline of 5 s

        async def call(name, args):
            result = await server.call_tool(name, args)
            is_error = getattr(result, "is_error", None) or getattr(result, "isError", False)
            return "\n".join(block.text for block in result.content if block.type == "text"), bool(is_error)

        async def names():
            return [tool.name for tool in await server.list_tools()]

        await check(names, call)


async def pydantic() -> None:
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai import ModelRetry
    from pydantic_ai.mcp import MCPToolset

    transport = StdioTransport(command=COMMAND["command"], args=COMMAND["args"], env=COMMAND["env"], cwd=COMMAND["cwd"])
    async with MCPToolset(transport) as server:

        async def call(name, args):
            try:
                return str(await server.direct_call_tool(name, args)), False
            except ModelRetry as error:
                return str(error), True

        async def names():
            return [tool.name for tool in await server.list_tools()]

        await check(names, call)


async def langchain() -> None:
    from langchain_core.tools import ToolException
    from langchain_mcp_adapters.client import MultiServerMCPClient

    client = MultiServerMCPClient({"windlass": {"transport": "stdio", **COMMAND}})
    tools = {tool.name: tool for tool in await client.get_tools()}

    async def call(name, args):
        try:
            # A process for each call.
            said = await tools[name].ainvoke(args)
        except ToolException as error:
            return str(error), True
        text = said if isinstance(said, str) else "\n".join(block.get("text", "") for block in said)
        # The adapters hand an error to the model as any other text.
        return text, text.startswith('{"error"')

    async def names():
        return list(tools)

    await check(names, call)


asyncio.run({"openai": openai, "pydantic": pydantic, "langchain": langchain}[KIND]())
