"""Writes what Windlass answers as programs whose values have the types of the providers' clients: FOLDER/typed.py for mypy,
FOLDER/typed.mts for tsc. A field that a client does not know, or of another type, is an error of the type checker.

    typed.py PROGRAM FOLDER
"""

import json
import subprocess
import sys
from pathlib import Path

FIXTURES = Path(__file__).parent.parent / "fixtures"
PROGRAM, FOLDER = sys.argv[1], Path(sys.argv[2])

# The types of messages and of tools, in Python and in TypeScript. Google's Python client has no types for the API's own names:
# check.py has it parse them.
TYPES = {
    "openai_chat": ("ChatCompletionMessageParam", "ChatCompletionToolParam", "OpenAI.ChatCompletionMessageParam", "OpenAI.ChatCompletionTool"),
    "openai_responses": ("ResponseInputItemParam", "ResponsesToolParam", "OpenAI.Responses.ResponseInputItem", "OpenAI.Responses.Tool"),
    "anthropic": ("MessageParam", "ToolParam", "Anthropic.MessageParam", "Anthropic.Tool"),
    "gemini": (None, None, "Content", "Tool"),
}
python = [
    "from anthropic.types import MessageParam, ToolParam",
    "from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam",
    "from openai.types.responses import ResponseInputItemParam, ToolParam as ResponsesToolParam",
]
typescript = [
    'import type Anthropic from "@anthropic-ai/sdk";',
    'import type { Content, Tool } from "@google/genai";',
    'import type OpenAI from "openai";',
]
values = 0
for wire, (message_type, tool_type, message_ts, tool_ts) in TYPES.items():
    fixture = (FIXTURES / f"{wire}.json").read_text()
    report = json.loads(subprocess.run([PROGRAM, wire], input=fixture, capture_output=True, text=True, check=True).stdout)
    # The assistant's own message of this wire stays the bytes that came, with fields of compatible servers that OpenAI has not.
    messages = report["messages"][1:] if wire == "openai_chat" else report["messages"]
    for place, message in enumerate(messages + report["notice"]):
        if message_type:
            python.append(f"{wire}_{place}: {message_type} = {message!r}")
        typescript.append(f"export const {wire}_{place}: {message_ts} = {json.dumps(message)};")
        values += 1
    if tool_type:
        python.append(f"{wire}_tools: list[{tool_type}] = {report['tools']!r}")
    typescript.append(f"export const {wire}_tools: {tool_ts}[] = {json.dumps(report['tools'])};")
    values += 1
FOLDER.mkdir(parents=True, exist_ok=True)
(FOLDER / "typed.py").write_text("\n".join(python) + "\n")
(FOLDER / "typed.mts").write_text("\n".join(typescript) + "\n")
print(f"{values} values for the type checkers")
