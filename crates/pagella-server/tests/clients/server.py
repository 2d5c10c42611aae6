"""A server of its own for a suite: the demo model on a free port, with keys that only this run knows.

The program is `$PAGELLA_BIN`, or the debug build of this checkout.
"""

import json
import os
import re
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
API_KEY = "suite-api-secret"
ADMIN_KEY = "suite-admin-secret"
NARROW_KEY = "suite-narrow-secret"  # one request at a time, none waiting
SHORT_KEY = "suite-short-secret"  # answers of a few tokens
READY_SECONDS = 120

KEYS = f"""
[[key]]
name = "suite"
key = "{API_KEY}"
role = "api"

[[key]]
name = "root"
key = "{ADMIN_KEY}"
role = "admin"

[[key]]
name = "narrow"
key = "{NARROW_KEY}"
role = "api"
max_concurrent = 1
max_queued = 0

[[key]]
name = "short"
key = "{SHORT_KEY}"
role = "api"
max_tokens = 8
"""


def program():
    default = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "pagella"
    return Path(os.environ.get("PAGELLA_BIN", default))


def lines_of(terminal):
    """What is written to a terminal, until its other end is closed: that is an error here, not an end."""
    with os.fdopen(terminal, errors="replace") as output:
        try:
            yield from output
        except OSError:
            return


class Server:
    """Runs while the `with` block does; `base` is its address."""

    def __init__(self, *flags, model="demo", terminal=False):
        """With a `terminal` the server shows a `link` that opens its page."""
        self.flags = flags
        self.model = model
        self.terminal = terminal
        self.link = None
        self.lines = []

    def __enter__(self):
        self.dir = tempfile.TemporaryDirectory()
        keys = Path(self.dir.name) / "keys.toml"
        keys.write_text(KEYS)
        keys.chmod(0o600)
        command = [program(), "serve", self.model, "--port", "0", "--keys", keys, *self.flags]
        output = self.start(command)
        for line in output:
            self.lines.append(line)
            self.link = next(iter(re.findall(r"http://\S+/#c=\w+", line)), None)
            if self.link or "listening on http://" in line:
                self.base = self.link.split("/#")[0] if self.link else line.split("listening on ")[1].strip()
                break
        else:
            raise RuntimeError("the server ended before it listened:\n" + "".join(self.lines))
        threading.Thread(target=lambda: self.lines.extend(output), daemon=True).start()
        self.wait_for("the model to be ready", lambda: self.status("/health/ready") == 200, READY_SECONDS)
        return self

    def start(self, command):
        """Starts the program; the lines that it writes to people."""
        if not self.terminal:
            self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=self.dir.name)
            return iter(self.process.stderr)
        ours, theirs = os.openpty()
        self.process = subprocess.Popen(command, stderr=theirs, cwd=self.dir.name)
        os.close(theirs)
        return lines_of(ours)

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.dir.cleanup()

    def status(self, path):
        try:
            with urllib.request.urlopen(self.base + path, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def get(self, path):
        request = urllib.request.Request(self.base + path, headers={"x-api-key": ADMIN_KEY})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def wait_for(self, what, holds, seconds=20):
        end = time.monotonic() + seconds
        while not holds():
            assert self.process.poll() is None, "the server ended:\n" + "".join(self.lines[-20:])
            assert time.monotonic() < end, f"waited too long for {what}"
            time.sleep(0.02)

    def is_idle(self):
        """No request, no job, no page in use."""
        stats = self.get("/v1/stats")
        engine = stats["engine"]
        counts = [stats["requests"]["running"], stats["requests"]["waiting"], engine["pages"]["referenced"]]
        return not any(counts + [engine["queue"]["active"], engine["queue"]["pending"]])

    def wait_idle(self):
        self.wait_for("all pages to be free", self.is_idle)
