"""The demonstration: Claude Code in a terminal, on `windlass mcp`. Its model (a script) calls a tool that has an effect and needs an approval. Claude Code shows
the approval as a form; the owner of the folder is killed while the form is open, and again while the tool runs; the result is delivered, and the effect has
happened once. Needs tmux. Prints what it sees; fails if it is anything else.

    python3 demonstration.py WINDLASS CLAUDE FOLDER
"""
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

WINDLASS, CLAUDE, WORK = sys.argv[1], sys.argv[2], Path(sys.argv[3])
DATA, LOG, HOME, RESULTS, PORT = WORK / "data", WORK / "log", WORK / "home", WORK / "results", WORK / "port"
PANE = f"windlass-demonstration-{os.getpid()}"
# The tool hands the order to a shop (this script) that does not die with it, and its reconcile command asks the shop afterwards: so the effect is known after
# a kill.
TOOLS = """
[tools.ship]
description = "Ships the order."
command = ["./ship.sh"]
class = "once"
approval = "ask"
timeout_ms = 120000
reconcile = ["./shipped.sh"]
"""
SHIP = """#!/bin/sh
echo begin >> log
touch order
while [ ! -e shipped ]; do sleep 0.05; done
echo '"shipped"'
"""
SHIPPED = """#!/bin/sh
while [ ! -e shipped ]; do sleep 0.05; done
echo '"shipped"'
"""


def count(word):
    return LOG.read_text().split().count(word) if LOG.exists() else 0


def until(what, is_so, seconds=90):
    for _ in range(seconds * 10):
        if is_so():
            return print(f"  {what}")
        time.sleep(0.1)
    raise SystemExit(f"not in time: {what}\n{screen()}")


def owner():
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"serve" in words and os.fsencode(DATA) in words:
            return int(entry.name)
    return None


def tmux(*words):
    return subprocess.run(["tmux", *words], capture_output=True, text=True, check=True).stdout


def screen():
    return tmux("capture-pane", "-p", "-t", PANE)


def keys(*names):
    tmux("send-keys", "-t", PANE, *names)


def prepare():
    HOME.mkdir()
    (WORK / "windlass.toml").write_text('builtin = ["time"]\n' + TOOLS)
    for name, text in [("ship.sh", SHIP), ("shipped.sh", SHIPPED)]:
        (WORK / name).write_text(text)
        (WORK / name).chmod(0o755)
    servers = {"mcpServers": {"windlass": {"command": WINDLASS, "args": ["--data", str(DATA), "mcp", "--approve"]}}}
    (WORK / "servers.json").write_text(json.dumps(servers))
    # It asks nothing of a new user.
    project = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    state = {"hasCompletedOnboarding": True, "theme": "dark", "bypassPermissionsModeAccepted": True, "projects": {str(WORK): project},
             "customApiKeyResponses": {"approved": ["scripted"], "rejected": []}}
    (HOME / ".claude.json").write_text(json.dumps(state))


def start():
    model = Path(__file__).with_name("scripted_agent_model.py")
    running = subprocess.Popen([sys.executable, str(model), str(PORT), str(RESULTS)])
    until("the scripted model listens", PORT.exists)
    env = {"PATH": os.environ["PATH"], "HOME": HOME, "TERM": "xterm-256color", "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{PORT.read_text()}",
           "ANTHROPIC_API_KEY": "scripted", "DISABLE_TELEMETRY": 1, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": 1, "IS_SANDBOX": 1,
           "ENABLE_TOOL_SEARCH": "false", "MCP_CONNECTION_NONBLOCKING": "false"}
    words = ["env", "-i", *[f"{name}={value}" for name, value in env.items()], CLAUDE, "--mcp-config", str(WORK / "servers.json"),
             "--strict-mcp-config", "--dangerously-skip-permissions"]
    tmux("new-session", "-d", "-s", PANE, "-x", "140", "-y", "45", "-c", str(WORK), *words)
    return running


def play():
    until("Claude Code is ready", lambda: "❯" in screen() or "> " in screen())
    keys("-l", 'Ship it. SCRIPT [["ship", {}]]')
    time.sleep(1)
    keys("Enter")
    until("the approval is shown as a form", lambda: "Let it run" in screen() or "ship" in screen() and "approve" in screen().lower())
    print(screen())
    os.kill(owner(), signal.SIGKILL)
    print("  the owner is killed while the form is open")
    approve()
    until("the tool runs, after the approval", lambda: count("begin") == 1)
    until("an owner is there again", lambda: owner() is not None)
    os.kill(owner(), signal.SIGKILL)
    print("  the owner is killed in the middle of the call")
    assert (WORK / "order").exists()
    with LOG.open("a") as log:
        log.write("effect\n")
    (WORK / "shipped").touch()
    print("  the shop ships the order: that is the effect")
    until("the result is delivered to the model", lambda: RESULTS.exists() and "shipped" in RESULTS.read_text())
    print(screen())
    assert (count("begin"), count("effect")) == (1, 1), LOG.read_text()
    print("one call, two killed owners, one effect, and the result was delivered")


def leave():
    """Ends everything, and waits until it has left: the folder is removed next."""
    subprocess.run(["tmux", "kill-session", "-t", PANE], capture_output=True)
    model.kill()
    if owner():
        os.kill(owner(), signal.SIGTERM)

    def is_there(process):
        try:
            return (process / "cwd").resolve().is_relative_to(WORK.resolve())
        except OSError:
            return False

    for _ in range(200):
        if not any(is_there(process) for process in Path("/proc").iterdir() if process.name.isdigit()):
            return
        time.sleep(0.05)


def approve():
    """Fills in the form: the field is ticked, and the form sent."""
    keys("Space")
    time.sleep(0.5)
    keys("Down")
    time.sleep(0.5)
    keys("Enter")


prepare()
model = start()
try:
    play()
finally:
    leave()
