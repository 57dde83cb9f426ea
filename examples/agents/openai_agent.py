"""An agent in Python: OpenAI's client asks the model, Windlass runs the tools. Needs `pip install openai`.

    WINDLASS_TOKEN=… python3 openai_agent.py "Write a greeting."

SESSION names the conversation, and FOLDER a project for its file tools and commands, if the server allows it.
A lost connection or a killed server changes nothing: a response that is posted again runs nothing twice.
"""
import os
import sys
import time

import httpx
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

SESSION = os.environ.get("SESSION", "openai-agent")
URL = os.environ.get("WINDLASS_URL", "http://127.0.0.1:7420") + "/v1/sessions"
TOKEN = {"Authorization": "Bearer " + os.environ["WINDLASS_TOKEN"]}


def ask(method, path, **body):
    while True:
        try:
            answer = httpx.request(method, URL + path, headers=TOKEN, timeout=90, **body)
            if answer.status_code != 503:
                return answer.raise_for_status().json()
        except httpx.TransportError as lost:
            print(f"{lost}; trying again", file=sys.stderr)
        time.sleep(0.2)


model, over = OpenAI(), False
messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": sys.argv[1]}]
folder = {"folder": os.environ["FOLDER"]} if "FOLDER" in os.environ else {}
ask("POST", "", json={"id": SESSION, **folder})
while not over:
    tools = ask("GET", f"/{SESSION}/tools?wire=openai_chat")["tools"]
    response = model.chat.completions.create(model="gpt-5.2", messages=messages, tools=tools)
    turn = ask("POST", f"/{SESSION}/batches?wire=openai_chat", content=response.to_json())
    messages, over = messages + turn["messages"], turn["over"]
print(messages[-1]["content"])
