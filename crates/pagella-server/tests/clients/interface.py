"""Requests made from the server's own description, by the hundred, and answers held to it.

    python interface.py [--examples N] [--seed N]

No answer may be a 5xx, and each must have a status, a type, headers and a body that the description
names. The demo model answers; a key that caps answers at a few tokens keeps them quick.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import sysconfig
import urllib.request
from pathlib import Path

from server import ADMIN_KEY, SHORT_KEY, Server

HERE = Path(__file__).parent

CHECKS = [
    "nothing_fails",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "events_conform",
]

# Routes that never end, or that end the model that the others need; other tests are about them.
EXCLUDED = ["/v1/events", "/v1/model/load", "/v1/model/unload", "/v1/template/unload", "/v1/download"]

# Whatever is off unless chosen.
EVERYTHING_ON = ["--network.api_servers", "oai,anthropic,ollama,llamacpp,kobold,ws", "--network.slots", "true", "--ui.server_store", "true"]

MUST_ANSWER = [
    "POST /v1/chat/completions",
    "POST /v1/completions",
    "POST /v1/responses",
    "POST /v1/messages",
    "POST /v1/embeddings",
    "POST /v1/token/encode",
    "GET /v1/models",
    "GET /v1/stats",
    "GET /v1/cache/pages",
    "POST /api/v1/generate",
    "POST /api/chat",
    "POST /api/generate",
    "GET /api/tags",
    "POST /completion",
    "GET /slots",
    "GET /v1/ui/store",
]


def run(server, key, paths, examples, seed):
    command = [
        Path(sysconfig.get_path("scripts")) / "schemathesis",
        "run",
        f"{server.base}/openapi.json",
        "--checks", ",".join(CHECKS),
        "--max-examples", str(examples),
        "--seed", str(seed),
        # Alone: threads of Python 3.11 that call ast.parse at the same time can fail with a SystemError.
        "--workers", "1",
        "--request-timeout", "60",
        "--suppress-health-check", "all",
        "--continue-on-failure",
        "--warnings", "off",
        "--header", f"Authorization: Bearer {key}",
    ]  # fmt: skip
    for path in EXCLUDED:
        command += ["--exclude-path", path]
    for path in paths:
        command += ["--include-path", path]
    environment = os.environ | {
        "SCHEMATHESIS_HOOKS": "hooks",
        "PYTHONPATH": str(HERE),
        "PAGELLA_OPENAPI": f"{server.base}/openapi.json",
    }
    return subprocess.run(command, env=environment, cwd=server.dir.name).returncode


def answers(server):
    """How often each route gave each status."""
    with urllib.request.urlopen(f"{server.base}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r'http_requests_total\{method="(\w+)",path="([^"]+)",status="(\d+)"\} (\d+)', text)
    counts = {}
    for method, path, status, n in found:
        counts.setdefault(f"{method} {path}", {})[int(status)] = int(n)
    return counts


def check_reach(counts):
    """Requests that were all refused would prove nothing."""
    for route, statuses in sorted(counts.items()):
        print(f"  {route:45} " + "  ".join(f"{status}: {n}" for status, n in sorted(statuses.items())))
    unanswered = [route for route in MUST_ANSWER if not counts.get(route, {}).get(200)]
    assert not unanswered, f"never answered: {unanswered}"


def admin_paths(server):
    """Routes that only administrators may ask for."""
    with urllib.request.urlopen(f"{server.base}/openapi.json", timeout=10) as answer:
        paths = json.load(answer)["paths"]
    needs = lambda operation: "administrator" in operation.get("description", "")
    return [path for path, operations in paths.items() if any(map(needs, operations.values())) and path not in EXCLUDED]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=4, help="requests per route and kind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with Server("--no-access-log", *EVERYTHING_ON) as server:
        everything = run(server, SHORT_KEY, [], options.examples, options.seed)
        administration = run(server, ADMIN_KEY, admin_paths(server), options.examples, options.seed)
        server.wait_idle()
        check_reach(answers(server))
    return max(everything, administration)


if __name__ == "__main__":
    sys.exit(main())
