"""A browser on the page: starts Chromium, watches for everything that must never happen, knows the page's words.

Fails a run on: a console error, an unhandled rejection, a content-security-policy or Trusted-Types report,
and any request to another origin than the server's.
"""

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")

# Runs before any script of the page: violations are kept where the driver can read them.
WATCH_VIOLATIONS = """
window.__violations = [];
document.addEventListener('securitypolicyviolation', (event) => {
  window.__violations.push(event.violatedDirective + ' ' + event.blockedURI + ' ' + event.sample);
});
"""

# A refusal by the server is an answer, not a fault of the page; Chromium logs it all the same.
EXPECTED_CONSOLE = ("Failed to load resource: the server responded with a status of",)


def launch(playwright):
    path = next((shutil.which(name) for name in CHROMIUM_NAMES if shutil.which(name)), None)
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


class Page:
    """One page in its own browser profile."""

    def __init__(self, playwright, base, shots, *, dark=False, width=1280, height=800, phone=False, browser=None):
        self.base = base.rstrip("/") + "/"
        self.shots = Path(shots)
        self.shots.mkdir(parents=True, exist_ok=True)
        self.name = f"{'dark' if dark else 'light'}-{width}"
        self.faults = []
        self.foreign = []
        self.browser = browser or launch(playwright)
        self.context = self.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            has_touch=phone,
            is_mobile=phone,
            permissions=["clipboard-read", "clipboard-write"],
        )
        self.context.add_init_script(WATCH_VIOLATIONS)
        self.context.route("**/*", self._route)
        self.page = self.context.new_page()
        self.page.set_default_timeout(15000)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))

    def other_profile(self):
        """A browser that has never seen the page."""
        return Page(None, self.base, self.shots, browser=self.browser)

    def other_device(self):
        """The page in a profile of its own: nothing of this one is known there but the key."""
        other = self.other_profile()
        other.open(key=self.key)
        return other

    def _route(self, route):
        url = route.request.url
        if url.startswith(self.base):
            route.continue_()
        else:
            self.foreign.append(url)
            route.abort()

    def _console(self, message):
        if message.type == "error" and not message.text.startswith(EXPECTED_CONSOLE):
            self.faults.append(f"console: {message.text}")

    def open(self, path="", key=None):
        """Opens the page and gives it the key through its own dialog, as a person would."""
        self.key = key
        self.page.goto(self.base + path)
        self.unlock()

    def unlock(self):
        """Waits for the page to start and types the key if it asks for one: what was typed is forgotten with each reload."""
        self.page.wait_for_selector("html[data-ready]")
        if self.page.locator("dialog input[type=password]").count():
            self.page.fill("dialog input[type=password]", self.key)
            self.page.click("dialog button[type=submit]")
            self.page.wait_for_selector("dialog", state="detached")
        self.wait_connected()

    def wait_connected(self):
        """Until the page is known to the server."""
        self.page.wait_for_selector("html[data-ready]")
        self.page.wait_for_selector(".connection-state[data-state=ok]", state="attached")

    def shot(self, name):
        self.page.screenshot(path=str(self.shots / f"{self.name}-{name}.png"))

    def send(self, text, waits=True):
        """Sends a message; `waits` until it stands in the transcript, which a queued one does not yet."""
        before = self.page.locator(".message.user").count()
        self.page.fill("#composer", text)
        self.page.locator("#composer").press("Control+Enter")
        if waits:
            self.page.wait_for_function("n => document.querySelectorAll('.message.user').length > n", arg=before)
            self.page.wait_for_selector(".message.assistant:last-child")

    def wait_idle(self, timeout_s=120):
        """Until no answer is being written."""
        self.page.wait_for_selector(".message.assistant:last-child .stats", timeout=timeout_s * 1000)
        self.page.wait_for_selector(".message.running", state="detached", timeout=timeout_s * 1000)

    def ask(self, path, body=None):
        """What the server says to the same key, outside of the page."""
        headers = {"Authorization": f"Bearer {self.key}"}
        method = self.page.request.get if body is None else self.page.request.post
        return method(self.base + path, headers=headers, **({} if body is None else {"data": body})).json()

    def texts(self, role="assistant"):
        return self.page.locator(f".message.{role} .message-body").all_inner_texts()

    def check_clean(self):
        """Nothing that must never happen has happened."""
        violations = self.page.evaluate("window.__violations")
        assert not self.faults, self.faults
        assert not violations, violations
        assert not self.foreign, self.foreign

    def close(self):
        self.browser.close()


__all__ = ["Page", "sync_playwright"]
