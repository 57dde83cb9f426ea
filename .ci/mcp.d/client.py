#!/usr/bin/env python3
"""Windlass as a client of the conformance suite: puts the server at the URL behind itself, accepts its tools, calls each of them once and answers what they
ask. The scenario may name calls with arguments in MCP_CONFORMANCE_CONTEXT.

    WINDLASS=… client.py URL
"""
import json
import os
import subprocess
import sys
import tempfile
import threading

WINDLASS, URL = os.environ["WINDLASS"], sys.argv[1]
ARGS = {"add_numbers": {"a": 5, "b": 3}, "valid_tool": {"region": "north"}}
ANSWERS = {"confirmed": True}


def windlass(*words, check=False):
    ran = subprocess.run([WINDLASS, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    sys.stderr.write(ran.stdout + ran.stderr)
    if check and ran.returncode != 0:
        raise SystemExit(ran.returncode)
    return ran.stdout


def calls(tools):
    """What is called: as the scenario says, else every tool once."""
    asked = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}").get("toolCalls")
    if asked:
        names = {tool["tool"]: tool["name"] for tool in tools}
        # An argument that is null is left out, as it is by models that have nothing to say.
        return [(names[call["name"]], {name: value for name, value in call["arguments"].items() if value is not None}) for call in asked]
    args = dict(ARGS)
    # A server without tools leaves no file.
    accepted = json.load(open("windlass.mcp.json"))["servers"].get("suite", {}) if os.path.exists("windlass.mcp.json") else {}
    if "json_schema_echo" in accepted:
        # The scenario compares the schema that was accepted with the one that it sent.
        args["json_schema_echo"] = {"schema": accepted["json_schema_2020_12_tool"]["inputSchema"]}
        args["json_schema_2020_12_tool"] = {"name": "a", "contactMethod": "phone", "phone": "1"}
    return [(tool["name"], args.get(tool["tool"], {})) for tool in tools]


def answer(over):
    """Answers questions until there is nothing more to answer. What a person leaves out is the form's own value."""
    while not over.wait(0.3):
        listed = json.loads(windlass("questions", "--json") or "{}")
        for question in listed.get("items", []):
            fields = (question.get("schema") or {}).get("properties", {})
            windlass("answer", question["id"], json.dumps({name: value for name, value in ANSWERS.items() if name in fields}))


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    with open("windlass.toml", "w") as file:
        file.write(f'[mcp.suite]\nurl = "{URL}"\ninternal = true\nprefix = ""\nclass = "read"\napproval = "never"\ntimeout_ms = 20000\n')
    windlass("mcp", "accept", "suite", "--yes", check=True)
    over = threading.Event()
    answering = threading.Thread(target=answer, args=[over])
    answering.start()
    try:
        for name, args in calls(json.loads(windlass("mcp", "ls", "--json", check=True))["tools"]):
            windlass("call", name, json.dumps(args))
    finally:
        over.set()
        answering.join()
