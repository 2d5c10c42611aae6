"""The page in Chromium against a server of its own; see ../ui/run.py for what is driven.

    python page.py --shots DIR [--only FLOW ...]

The server has a folder with the demo model under two names, so that models can be switched.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from server import ADMIN_KEY, ROOT, Server

RUN = Path(__file__).resolve().parents[1] / "ui" / "run.py"
MODELS = ["demo", "demo-again"]


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            # Links to one folder would be one model.
            shutil.copytree(ROOT / "models" / "demo", Path(folder) / name, ignore=shutil.ignore_patterns("draft"))
        with Server("--no-access-log", "--ui.server_store", "true", "--model-dir", folder, model=str(Path(folder) / MODELS[0]), terminal=True) as server:
            command = [sys.executable, RUN, "--base", server.base, "--key", ADMIN_KEY, "--link", server.link, "--models", *reversed(MODELS), *sys.argv[1:]]
            return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
