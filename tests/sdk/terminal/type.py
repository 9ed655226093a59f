"""Runs a command in a pseudo-terminal, and types into it: `type.py STEPS COMMAND…`.

The terminal has the size that TYPE_SIZE says, such as 24x80. STEPS is a JSON list: {"see": TEXT} waits until the terminal has shown it, {"type": TEXT} types it. All that was shown
is printed, and the command's status is the status.
"""

import fcntl
import json
import os
import pty
import select
import struct
import sys
import termios
import time

# Only a run that fails waits so long.
PATIENCE = 60

steps, command = json.loads(sys.argv[1]), sys.argv[2:]
child, terminal = pty.fork()
if child == 0:
    if size := os.environ.get("TYPE_SIZE"):
        lines, columns = map(int, size.split("x"))
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    os.execvp(command[0], command)

shown = b""


def read(seconds):
    """What comes within some seconds; None at the end."""
    ready, _, _ = select.select([terminal], [], [], seconds)
    if not ready:
        return b""
    try:
        return os.read(terminal, 65536) or None
    except OSError:
        return None


def give_up(why):
    os.kill(child, 9)
    sys.exit(f"{why}; shown so far:\n{shown.decode(errors='replace')}")


seen = 0
for step in steps:
    if "type" in step:
        os.write(terminal, step["type"].encode())
        continue
    wanted, begun = step["see"].encode(), time.monotonic()
    while wanted not in shown[seen:]:
        piece = read(1)
        if piece is None or time.monotonic() - begun > PATIENCE:
            give_up(f"{step['see']!r} does not come")
        shown += piece
    seen = shown.index(wanted, seen) + len(wanted)

begun = time.monotonic()
while (piece := read(1)) is not None:
    shown += piece
    if time.monotonic() - begun > PATIENCE:
        give_up("it does not end")
_, status = os.waitpid(child, 0)
sys.stdout.buffer.write(shown)
sys.exit(os.waitstatus_to_exitcode(status))
