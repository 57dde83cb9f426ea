"""LangGraph, with models of LangChain, and the tools of a Windlass session.

    WINDLASS_TOKEN=$(cat .windlass/token) OPENAI_API_KEY=… python with_langgraph.py "What does tea cost?"
"""

import os
import sys
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition

from windlass import Client, model_text


def windlass_node(client: Client) -> Any:
    """A node in place of `ToolNode`: all calls of a message are one batch of Windlass, under a key of the message's own calls."""

    def run(state: MessagesState) -> dict[str, Any]:
        asked = state["messages"][-1].tool_calls
        calls = [{"id": call["id"], "tool": call["name"], "args": call["args"]} for call in asked]
        answered = client.batch(calls, key="+".join(call["id"] for call in calls))
        return {"messages": [ToolMessage(model_text(call), tool_call_id=call["id"]) for call in answered]}

    return run


def main(question: str) -> None:
    """Runs an agent once."""
    with Client(os.environ.get("SESSION", "langgraph")) as client:
        tools = client.tools(wire="openai_chat")["tools"]
        model = ChatOpenAI(model=os.environ.get("MODEL", "gpt-5-mini")).bind_tools(tools)
        graph = StateGraph(MessagesState)
        graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
        graph.add_node("tools", windlass_node(client))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        print(graph.compile().invoke({"messages": [("user", question)]})["messages"][-1].content)


if __name__ == "__main__":
    main(sys.argv[1])
