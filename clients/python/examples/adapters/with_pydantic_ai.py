"""Pydantic AI with the tools of a Windlass session.

    WINDLASS_TOKEN=$(cat .windlass/token) OPENAI_API_KEY=… python with_pydantic_ai.py "What does tea cost?"
"""

import asyncio
import os
import sys
from typing import Any

from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.models.openai import OpenAIChatModel

from windlass import AsyncClient, model_text


async def windlass_tools(client: AsyncClient) -> list[Tool[None]]:
    """The tools of the session, executed through Windlass. The model's id of a call is its key: asked again, it is answered again."""

    async def invoke(ctx: RunContext[None], **args: Any) -> str:
        return model_text(await client.call(ctx.tool_name or "", args, key=ctx.tool_call_id))

    described = [tool["function"] for tool in (await client.tools(wire="openai_chat"))["tools"]]
    return [
        Tool.from_schema(invoke, tool["name"], tool["description"], tool["parameters"], takes_ctx=True)
        for tool in described
    ]


async def main(question: str) -> None:
    """Runs an agent once."""
    async with AsyncClient(os.environ.get("SESSION", "pydantic")) as client:
        agent = Agent(OpenAIChatModel(os.environ.get("MODEL", "gpt-5-mini")), tools=await windlass_tools(client))
        print((await agent.run(question)).output)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
