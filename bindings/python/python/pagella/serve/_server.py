"""A server of its own for one replica: the command `serve` on a loopback port, in a child process.

Every route, parameter and error is the server's, and whoever closes a connection to it cancels the job
behind it. The child ends with its parent, however that ends: it watches a pipe.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Sequence

__all__ = ["Server"]

#: Seconds between two looks at a server that starts.
_LOOK_S = 0.1
#: Seconds for an answer about itself. Steps of large models on slow machines take some.
_ANSWER_S = 20.0
_ADDRESS = re.compile(r"listening on (http://\S+)")
#: Lines of its log that an error quotes.
_QUOTED_LINES = 20


class Server:
    """A server for this process alone."""

    def __init__(self, model: str, flags: Sequence[str] = ()) -> None:
        words = ["serve", model, "--host", "127.0.0.1", "--port", "0", *flags]
        if not any(flag.startswith(("--keys", "--auth.keys_file")) for flag in flags):
            words.append("--disable-auth")
        self._child = subprocess.Popen(
            [sys.executable, "-m", "pagella.serve._child", *words],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        assert self._child.stderr is not None
        self._log = self._child.stderr
        self._said: deque[str] = deque(maxlen=_QUOTED_LINES)
        self.base = self._address()
        threading.Thread(target=self._pass_on, daemon=True).start()

    def _address(self) -> str:
        for line in self._log:
            self._said.append(line)
            found = _ADDRESS.search(line)
            if found:
                self._said.clear()
                return found[1]
        raise RuntimeError("the server ended before it listened:\n" + "".join(self._said))

    def _pass_on(self) -> None:
        """Its log is part of this process's."""
        for line in self._log:
            self._said.append(line)
            sys.stderr.write(line)

    @property
    def pid(self) -> int:
        """The process that computes."""
        return self._child.pid

    def wait_ready(self, timeout: float) -> None:
        """Until the model is loaded."""
        deadline = time.monotonic() + timeout
        while True:
            said = self.health()
            if said == "healthy":
                return
            if self._child.poll() is not None or said == "failed":
                raise RuntimeError("the server could not load the model:\n" + "".join(self._said))
            if time.monotonic() > deadline:
                raise TimeoutError(f"the model was not loaded within {timeout:.0f} s: it is {said!r}")
            time.sleep(_LOOK_S)

    def health(self) -> str:
        """What the server says of itself; it asks the engine's thread. `failed` is a model that was not
        loaded and will not be."""
        try:
            said = json.loads(self._ask("/health"))
        except OSError as problem:
            return f"unreachable ({problem})"
        is_over = said.get("engine", {}).get("state") == "failed"
        return "failed" if is_over else str(said.get("status", "unknown"))

    def numbers(self) -> dict[str, float]:
        """The server's metrics without labels, by name."""
        found = {}
        for line in self._ask("/metrics").splitlines():
            name, _, value = line.rpartition(" ")
            if name and not name.startswith("#") and "{" not in name:
                found[name] = float(value)
        return found

    def _ask(self, path: str) -> str:
        try:
            with urllib.request.urlopen(self.base + path, timeout=_ANSWER_S) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as refused:
            return refused.read().decode()

    def close(self) -> None:
        """Ends it."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(timeout=_ANSWER_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
