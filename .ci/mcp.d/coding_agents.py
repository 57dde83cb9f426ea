"""Coding agents as clients of `windlass mcp`, driven by a scripted model: Claude Code and Codex without a terminal make a call, an error, a call whose
owner is killed in the middle, and one that a person has to approve.

    python3 coding_agents.py claude|codex WINDLASS PROGRAM FOLDER
"""
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

KIND, WINDLASS, PROGRAM, WORK = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])
DATA, LOG, GO, HOME, RESULTS = WORK / "data", WORK / "log", WORK / "go", WORK / "home", WORK / "results"


def count(word):
    return LOG.read_text().split().count(word) if LOG.exists() else 0


def until(what, is_so):
    for _ in range(1200):
        if is_so():
            return
        time.sleep(0.05)
    raise SystemExit(f"not in time: {what}")


def owner():
    """The process that serves the folder."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"serve" in words and os.fsencode(DATA) in words:
            return int(entry.name)
    raise SystemExit("nobody serves the folder")


def kill_owner():
    os.kill(owner(), signal.SIGKILL)


def agent(port):
    """The command line and the environment of the agent."""
    env = {"PATH": os.environ["PATH"], "HOME": str(HOME)}
    if KIND == "claude":
        servers = {"mcpServers": {"windlass": {"command": WINDLASS, "args": ["--data", str(DATA), "mcp"]}}}
        (WORK / "servers.json").write_text(json.dumps(servers))
        env |= {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}", "ANTHROPIC_API_KEY": "scripted", "DISABLE_TELEMETRY": "1", "IS_SANDBOX": "1",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "ENABLE_TOOL_SEARCH": "false", "MCP_CONNECTION_NONBLOCKING": "false"}
        words = [PROGRAM, "--mcp-config", str(WORK / "servers.json"), "--strict-mcp-config", "--dangerously-skip-permissions", "-p"]
        return words, env
    (HOME / ".codex").mkdir(exist_ok=True)
    (HOME / ".codex" / "config.toml").write_text(f"""
model = "scripted"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
[mcp_servers.windlass]
command = "{WINDLASS}"
args = ["--data", "{DATA}", "mcp"]
startup_timeout_sec = 60
""")
    words = [PROGRAM, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return words, env | {"SCRIPTED_KEY": "scripted"}


class Agent:
    def __init__(self):
        HOME.mkdir(exist_ok=True)
        port = WORK / "port"
        model = Path(__file__).with_name("scripted_agent_model.py")
        self.model = subprocess.Popen([sys.executable, str(model), str(port), str(RESULTS)])
        until("the model listens", port.exists)
        self.words, self.env = agent(port.read_text())

    def start(self, script):
        prompt = "SCRIPT " + json.dumps(script)
        log = open(WORK / "agent.log", "a")
        return subprocess.Popen(self.words + [prompt], env=self.env, cwd=WORK, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def results(self, running, last):
        """What the tools returned, the last ones."""
        if running.wait(timeout=300) != 0:
            raise SystemExit(f"the agent failed: {(WORK / 'agent.log').read_text()[-3000:]}")
        told = [json.loads(line)["text"] for line in RESULTS.read_text().splitlines()]
        return told[-last:]


def check(it):
    called, failed, pictured = it.results(it.start([["echo", {"message": "by an agent"}], ["broken", {}], ["picture", {}]]), 3)
    assert "by an agent" in called and "no such thing" in failed, (called, failed)
    assert "image" in pictured, pictured
    # The owner is killed in the middle of a call with an effect: it is answered, and not made again.
    GO.unlink(missing_ok=True)
    begun = count("begin")
    running = it.start([["work", {}]])
    until("it has begun", lambda: count("begin") == begun + 1)
    kill_owner()
    (told,) = it.results(running, 1)
    GO.touch()
    assert "not known" in told, told
    assert (count("begin"), count("effect")) == (begun + 1, 0), "it was not repeated"
    # A long call is answered, and one effect is had.
    GO.unlink()
    running = it.start([["work", {}]])
    until("it has begun", lambda: count("begin") == begun + 2)
    time.sleep(6)
    GO.touch()
    (told,) = it.results(running, 1)
    assert "worked" in told or "continues as task" in told, told
    until("it has its effect", lambda: count("effect") == 1)
    # Without a person at a terminal the approval stays open, and nothing happens.
    (told,) = it.results(it.start([["ask_first", {}]]), 1)
    assert "continues as task" in told or "approval" in told, told
    assert count("allowed") == 0
    waiting = subprocess.run([WINDLASS, "--data", str(DATA), "approvals", "--json"], capture_output=True, text=True, cwd=WORK)
    (approval,) = json.loads(waiting.stdout)["items"]
    subprocess.run([WINDLASS, "--data", str(DATA), "approve", approval["id"]], check=True, cwd=WORK, stdout=subprocess.DEVNULL)
    until("it runs once it is approved", lambda: count("allowed") == 1)
    print(f"{KIND}: list, call, error, image, kill, long call, approval")


it = Agent()
try:
    check(it)
finally:
    it.model.kill()
    try:
        os.kill(owner(), signal.SIGTERM)
    except SystemExit:
        pass
