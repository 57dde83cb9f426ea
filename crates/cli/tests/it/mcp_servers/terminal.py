"""Runs a program on a terminal of its own and types: python3 terminal.py LINES PROGRAM [WORD…]. LINES are separated by `|`, and each is typed once the
program waits behind a question. Prints all that it showed, and exits as it did."""
import os, pty, sys

lines = sys.argv[1].split("|")
child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
shown, seen = b"", 0
while True:
    try:
        piece = os.read(terminal, 65536)
    except OSError:
        break
    if not piece:
        break
    shown += piece
    # A question ends without a new line.
    if lines and len(shown) > seen and shown.endswith((b": ", b"[y/N] ")):
        seen = len(shown)
        os.write(terminal, lines.pop(0).encode() + b"\n")
sys.stdout.write(shown.decode().replace("\r\n", "\n"))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
