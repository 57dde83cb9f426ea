"""The OpenAI Agents SDK with the tools of a Windlass session.

    WINDLASS_TOKEN=$(cat .windlass/token) OPENAI_API_KEY=… python with_openai_agents.py "What does tea cost?"
"""

import asyncio
import json
import os
import sys

from agents import Agent, FunctionTool, Runner, set_default_openai_api, set_tracing_disabled
from agents.tool_context import ToolContext

from windlass import AsyncClient, model_text


async def windlass_tools(client: AsyncClient) -> list[FunctionTool]:
    """The tools of the session, executed through Windlass. The model's id of a call is its key: asked again, it is answered again."""

    async def invoke(ctx: ToolContext, args: str) -> str:
        return model_text(await client.call(ctx.tool_name, json.loads(args or "{}"), key=ctx.tool_call_id))

    described = [tool["function"] for tool in (await client.tools(wire="openai_chat"))["tools"]]
    return [
        FunctionTool(
            name=tool["name"],
            description=tool["description"],
            params_json_schema=tool["parameters"],
            on_invoke_tool=invoke,
            strict_json_schema=False,
        )
        for tool in described
    ]


async def main(question: str) -> None:
    """Runs an agent once."""
    set_default_openai_api("chat_completions")
    set_tracing_disabled(True)
    async with AsyncClient(os.environ.get("SESSION", "agents")) as client:
        agent = Agent(name="shop", model=os.environ.get("MODEL", "gpt-5-mini"), tools=list(await windlass_tools(client)))
        print((await Runner.run(agent, question)).final_output)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
