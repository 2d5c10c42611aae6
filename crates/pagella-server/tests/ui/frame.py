"""What a person does with the frame around the views: key and link, dot, settings, navigation.

Each function takes an open `Page`, as in `flows.py`.
"""

import re

from flows import import_files, new_chat, settled_top

# More tokens than the demo model's context has.
LONG_TEXT = "one two three four five six seven eight nine ten " * 300


def link(page, address):
    """The terminal's link opens the page with a key that survives a reload; a second time it says that it was used."""
    first = page.other_profile()
    first.page.goto(address)
    first.wait_connected()
    assert "#c=" not in first.page.url
    first.page.reload()
    first.wait_connected()
    assert first.page.locator("dialog").count() == 0, "a reload locks the person out"
    assert first.page.evaluate("Object.keys(localStorage).includes('pagella.key')") is False, "the key outlives the tab"
    first.check_clean()
    first.context.close()
    second = page.other_profile()
    second.key = page.key
    second.page.goto(address)
    words = second.page.locator("dialog .key-form").inner_text()
    assert "was used already" in words and re.search(r"/\S+/keys\.toml", words), words
    second.shot("used-link")
    second.unlock()
    second.context.close()


def dot(page):
    """The dot is green while the server is ready, and not when nobody knows."""
    button = page.page.locator(".model-button")
    page.page.wait_for_selector(".model-button[data-state=loaded]")
    page.context.set_offline(True)
    page.page.evaluate("dispatchEvent(new Event('online'))")
    page.page.wait_for_selector(".model-button[data-state=unknown]")
    assert "not known" in button.get_attribute("aria-label")
    page.context.set_offline(False)
    page.page.wait_for_selector(".model-button[data-state=loaded]")
    page.faults.clear()


def refused_switch(page):
    """A switch that the server cannot follow goes back, and its dialog says why without being covered."""
    page.page.get_by_role("button", name="Settings").click()
    box = page.page.get_by_label("Keep a copy of conversations on the server, for this key")
    page.page.wait_for_function("() => document.querySelector('dialog .settings')")
    assert not box.is_checked()
    page.context.set_offline(True)
    box.click()
    said = page.page.locator("dialog .toast")
    said.wait_for()
    assert not box.is_checked(), "the switch stays on"
    page.shot("refused-switch")
    toast, body = said.bounding_box(), page.page.locator("dialog .dialog-body").bounding_box()
    assert toast["y"] >= body["y"] + body["height"] - 1, "the message covers the dialog"
    said.get_by_role("button", name="Close").click()
    said.wait_for(state="detached")
    page.context.set_offline(False)
    page.page.keyboard.press("Escape")
    page.page.wait_for_selector("dialog", state="detached")
    page.faults.clear()


def navigation(page):
    """Views open where they were left, and nothing in the header moves."""
    import_files(page, [[{"role": "user", "content": f"line {n}\n\n" * 4} for n in range(40)]])
    page.page.locator(".list-row a").first.click()
    page.page.wait_for_function("() => document.querySelectorAll('.message').length === 40")
    page.page.mouse.move(700, 400)
    page.page.mouse.wheel(0, -900)
    page.page.wait_for_selector(".button.jump:not([hidden])")
    address, before = page.page.url, settled_top(page)
    places = "() => JSON.stringify([...document.querySelectorAll('.views a, .page-header h1')].map((node) => Math.round(node.getBoundingClientRect().x)))"
    header = page.page.evaluate(places)
    for view in ("Notebook", "Engine", "Models", "Chat"):
        page.page.locator(".views").get_by_role("link", name=view).click()
        page.page.wait_for_selector(f".views a[aria-current=page]:has-text('{view}')")
        assert page.page.evaluate(places) == header, view
    assert page.page.url == address, "another conversation is open"
    assert settled_top(page) == before, "the conversation was scrolled"
    page.page.keyboard.press("Alt+2")
    page.page.wait_for_selector(".notebook")
    page.page.keyboard.press("Alt+1")
    page.page.wait_for_selector(".chat")
    assert page.page.url == address and settled_top(page) == before


def starter_prompts(page):
    """What an empty conversation offers is what a small model knows; it fills the box and sends nothing."""
    new_chat(page)
    texts = page.page.locator(".example").all_inner_texts()
    assert len(texts) == 3 and all(re.search(r"\w+\(\)", text) for text in texts), texts
    page.page.locator(".example").first.click()
    assert page.page.input_value("#composer") == texts[0]
    assert page.page.locator(".message").count() == 0
    page.page.fill("#composer", "")


def full_context(page):
    """A conversation that fills the context cannot be sent; the page says why and takes the words to a new one."""
    import_files(page, [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": LONG_TEXT}, {"role": "assistant", "content": "Yes."}]])
    page.page.locator(".list-row a").first.click()
    page.page.wait_for_selector(".message.assistant")
    page.page.fill("#composer", "And now?")
    note = page.page.locator(".composer-full")
    note.wait_for()
    assert "The context is full" in note.inner_text(), note.inner_text()
    send = page.page.get_by_role("button", name="Send", exact=True)
    assert send.is_disabled()
    page.page.locator("#composer").press("Control+Enter")
    assert page.page.locator(".message").count() == 2 and page.page.input_value("#composer") == "And now?"
    page.shot("full-context")
    note.get_by_role("button", name="Go on in a new chat").click()
    page.page.wait_for_selector(".message", state="detached")
    note.wait_for(state="hidden")
    assert page.page.input_value("#composer") == "And now?"
    assert page.page.locator(".system-words").inner_text() == "Be brief."
    assert send.is_enabled()
    page.page.fill("#composer", LONG_TEXT)
    page.page.wait_for_selector(".composer-full:has-text('This message alone is longer')")
    page.page.fill("#composer", "")
    note.wait_for(state="hidden")
    # A count that comes when its conversation has been left says nothing of the next one.
    held = []
    page.page.route("**/v1/token/encode", lambda route: held.append(route))
    page.page.locator(".list-row a").first.click()
    page.page.wait_for_selector(".message.assistant")
    while not held:
        page.page.wait_for_timeout(20)
    new_chat(page)
    with page.page.expect_response("**/v1/token/encode") as late:
        held[0].continue_()
    late.value.finished()
    page.page.evaluate("() => new Promise(requestAnimationFrame)")
    assert note.is_hidden(), note.inner_text()
    page.page.unroute("**/v1/token/encode")
