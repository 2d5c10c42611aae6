"""The page in Chromium against a server of its own; see ../ui/run.py for what is driven.

    python page.py --shots DIR [--only FLOW ...]
"""

import subprocess
import sys
from pathlib import Path

from server import ADMIN_KEY, ROOT, Server

RUN = Path(__file__).resolve().parents[1] / "ui" / "run.py"


def main():
    with Server("--no-access-log", model=str(ROOT / "models" / "demo")) as server:
        command = [sys.executable, RUN, "--base", server.base, "--key", ADMIN_KEY, *sys.argv[1:]]
        return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
