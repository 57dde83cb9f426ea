"""Loads a program once and forks it on demand, for the harness: a request for each start on stdin, its process id on stdout.

The program has a function `main`, reads its environment when that is called, and has no threads before.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import traceback
from types import ModuleType
from typing import Any


def main() -> None:
    spec = importlib.util.spec_from_file_location("program", sys.argv[1])
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    sys.modules["program"] = program
    spec.loader.exec_module(program)
    # Whoever ended is forgotten at once; the harness sees it by its descriptor.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run(program, json.loads(line))
        print(child, flush=True)


def run(program: ModuleType, asked: dict[str, Any]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for place, kept in ((0, nothing), (1, log), (2, log)):
        os.dup2(kept, place)
    os.environ.update(asked["environment"])
    status = 1
    try:
        program.main()
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
