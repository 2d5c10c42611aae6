"""The command, for as long as whoever started it lives: it ends when its standard input does."""

from __future__ import annotations

import os
import signal
import sys
import threading

__all__ = ["main"]

#: Seconds for answers on their way, whose readers are gone.
_LEAVE_S = 5.0


def _watch() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_LEAVE_S)
    os._exit(1)


def main() -> None:
    """Runs the command with the arguments of this process."""
    threading.Thread(target=_watch, daemon=True).start()
    from pagella.__main__ import main as command

    command()


if __name__ == "__main__":
    main()
