"""The providers' own Python clients read what we write, and write what we read.

Each fixture is parsed by the provider's client, written again by it, and read by Windlass: the calls must be the same as
those of the fixture itself. What Windlass answers must satisfy the client's own types for requests.
"""

import json
import subprocess
import sys
from pathlib import Path

from anthropic.types import Message, MessageParam, ToolParam
from google.genai import types as genai
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam, ChatCompletionToolParam
from openai.types.responses import Response, ResponseInputItemParam, ToolParam as ResponsesToolParam
from pydantic import TypeAdapter

FIXTURES = Path(__file__).parent.parent / "fixtures"
PROGRAM = sys.argv[1]


def answer(wire: str, response: str) -> dict:
    done = subprocess.run([PROGRAM, wire], input=response, capture_output=True, text=True)
    assert done.returncode == 0, f"{wire}: {done.stderr}"
    return json.loads(done.stdout)


def check(wire: str, written_again, check_message, check_tools) -> None:
    fixture = (FIXTURES / f"{wire}.json").read_text()
    ours = answer(wire, fixture)
    again = answer(wire, written_again(fixture))
    parsed = lambda calls: [(c["id"], c["tool"], json.loads(c["args"] or "{}")) for c in calls]
    assert parsed(again["calls"]) == parsed(ours["calls"]), f"{wire}: calls differ after a round through the client"
    assert len(ours["calls"]) == 2, wire
    messages = ours["messages"] + ours["notice"]
    for message in messages:
        check_message(message)
    check_tools(ours["tools"])
    print(f"{wire}: {len(messages)} messages, {len(ours['tools'])} entries of tools")


def strictly(kind):
    adapter = TypeAdapter(kind)
    return lambda value: adapter.validate_python(value)


check(
    "openai_chat",
    lambda text: ChatCompletion.model_validate_json(text).model_dump_json(),
    strictly(ChatCompletionMessageParam),
    strictly(list[ChatCompletionToolParam]),
)
check(
    "openai_responses",
    lambda text: Response.model_validate_json(text).model_dump_json(),
    strictly(ResponseInputItemParam),
    strictly(list[ResponsesToolParam]),
)
check(
    "anthropic",
    lambda text: Message.model_validate_json(text).model_dump_json(),
    strictly(MessageParam),
    strictly(list[ToolParam]),
)
check(
    "gemini",
    lambda text: genai.GenerateContentResponse.model_validate_json(text).model_dump_json(by_alias=True, exclude_none=True),
    genai.Content.model_validate,
    lambda tools: [genai.Tool.model_validate(tool) for tool in tools],
)
print("4 passed, 0 failed")
