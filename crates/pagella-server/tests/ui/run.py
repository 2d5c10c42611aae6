"""The page in a real browser against a real server.

    python3 run.py --base http://127.0.0.1:5000 --key ADMIN_KEY --shots DIR [--link LINK] [--models NAME NAME] [--only FLOW]

Needs Chromium on the path and the package `playwright`. The server should serve a small model, so that
answers are quick. Prints one line per flow and ends with `N passed, N failed`; the exit code is the number
of failures.
"""

import argparse
import json
import sys
import threading
import traceback
import urllib.request
from pathlib import Path

import flows
import frame
from driver import Page, sync_playwright

HERE = Path(__file__).parent


def background_load(base, key):
    """A few requests outside of the page, so that the map has something to show."""

    def one(n):
        body = json.dumps({"messages": [{"role": "user", "content": f"Tell story number {n}."}], "min_tokens": 600, "max_tokens": 600, "stream": True}).encode()
        request = urllib.request.Request(base.rstrip("/") + "/v1/chat/completions", body, {"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()

    for n in range(12):
        threading.Thread(target=one, args=(n,), daemon=True).start()


def flow_list(options):
    corpus = json.loads((HERE / "hostile.json").read_text())
    desktop = [
        ("chat", flows.chat), ("stop", flows.stop), ("regenerate", flows.regenerate), ("edit", flows.edit), ("edit_answer", flows.edit_answer),
        ("continue", flows.continue_answer), ("delete_and_undo", flows.delete_and_undo), ("branch", flows.branch), ("queued_send", flows.queued_send),
        ("draft_survives", flows.draft_survives), ("two_tabs", flows.two_tabs), ("server_copy", flows.server_copy), ("follow_rule", flows.follow_rule), ("resume", flows.resume), ("samplers", flows.samplers), ("link_cannot_submit", flows.link_cannot_submit), ("keyboard", flows.keyboard),
        ("dot", frame.dot), ("refused_switch", frame.refused_switch), ("navigation", frame.navigation), ("starter_prompts", frame.starter_prompts), ("full_context", frame.full_context),
        ("notebook", flows.notebook), ("notebook_stop", flows.notebook_stop), ("notebook_scores", flows.notebook_scores), ("page_map", lambda page: flows.page_map(page, lambda: background_load(options.base, options.key))),
    ]
    if options.link:
        # It works once, whichever profile opens it.
        desktop.append(("link", lambda page: frame.link(page, options.link) if page.name.startswith("light") else None))
    if options.models:
        desktop.append(("switch_model", lambda page: flows.switch_model(page, options.models)))
    desktop.append(("model_output_cannot_run", lambda page: (page.page.keyboard.press("Alt+1"), flows.model_output_cannot_run(page, corpus))))
    desktop.append(("key_not_exposed", lambda page: flows.key_not_exposed(page, options.key)))
    return {"desktop": desktop, "phone": [("narrow", flows.narrow)]}


def run_all(playwright, options):
    passed = failed = 0
    lists = flow_list(options)
    for dark in (False, True):
        for kind, shape in (("desktop", {"width": 1280, "height": 800}), ("phone", {"width": 390, "height": 844, "phone": True})):
            page = Page(playwright, options.base, options.shots, dark=dark, **shape)
            page.open(key=options.key)
            for name, flow in lists[kind]:
                if options.only and name not in options.only:
                    continue
                try:
                    flow(page)
                    page.check_clean()
                    passed += 1
                    print(f"ok      {page.name} {name}", flush=True)
                except Exception as error:  # a flow may fail in any way; the rest still runs
                    failed += 1
                    page.shot(f"failed-{name}")
                    print(f"FAILED  {page.name} {name}: {error}", flush=True)
                    if options.verbose:
                        traceback.print_exc()
                    page.faults.clear()
                    page.foreign.clear()
            page.close()
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="address of the server")
    parser.add_argument("--key", required=True, help="an admin key")
    parser.add_argument("--link", help="the link that the server's terminal showed, not opened yet")
    parser.add_argument("--shots", required=True, help="directory for screenshots")
    parser.add_argument("--models", nargs="*", default=[], help="models to load one after the other")
    parser.add_argument("--only", nargs="*", help="names of flows")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    with sync_playwright() as playwright:
        passed, failed = run_all(playwright, options)
    print(f"{passed} passed, {failed} failed")
    return min(failed, 100)


if __name__ == "__main__":
    sys.exit(main())
