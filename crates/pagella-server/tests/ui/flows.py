"""What a person does on the page, step by step, against a running server.

Each function takes an open `Page`; together they are the list of flows in `run.py`.
"""

import json
import random
import re

# An answer that is still being written when something is done to it.
LONG_TOKENS = 3000


def chat(page):
    """Send, see the states, get an answer with its statistics."""
    page.send("What is Array.prototype.map()?")
    page.page.wait_for_selector(".message.user")
    page.page.wait_for_selector(".message.assistant")
    page.wait_idle()
    assert page.texts()[-1].strip(), "the answer is empty"
    stats = page.page.locator(".message.assistant:last-child .stats").inner_text()
    assert re.search(r"\d+ tokens", stats), stats
    page.shot("chat")


def stop(page):
    """Stop keeps what was written and says who stopped."""
    new_chat(page)
    set_sampler(page, "min_tokens", LONG_TOKENS)
    page.send("Write a very long story about a lighthouse.")
    page.page.wait_for_function("() => document.querySelector('.message.running .markdown')?.textContent.length > 20")
    page.page.keyboard.press("Escape")
    page.page.wait_for_selector(".message.running", state="detached")
    ending = page.page.locator(".message.assistant:last-child .ending").inner_text()
    assert "stopped by you" in ending, ending


def regenerate(page):
    """Regenerating keeps the old answer as an alternative."""
    page.send("Name one river.")
    page.wait_idle()
    page.page.locator("#composer").blur()
    page.page.keyboard.press("Alt+r")
    page.page.wait_for_selector(".message.assistant:last-child .siblings")
    page.wait_idle()
    assert page.page.locator(".message.assistant:last-child .siblings span").inner_text() == "2/2"
    page.page.locator(".message.assistant:last-child").get_by_role("button", name="Previous alternative").click()
    assert page.page.locator(".message.assistant:last-child .siblings span").inner_text() == "1/2"


def edit(page):
    """Editing an own message and answering makes a branch; the old one stays."""
    message = page.page.locator(".message.user").last
    message.hover()
    message.get_by_role("button", name="Edit").click()
    page.page.fill(".edit-area", "Name one mountain.")
    page.page.get_by_role("button", name="Save and answer").click()
    page.page.wait_for_selector(".message.user:has-text('Name one mountain.') .siblings")
    page.wait_idle()
    assert page.page.locator(".message.user").last.locator(".siblings span").inner_text() == "2/2"


def edit_answer(page):
    """The model's own text can be edited; the history alone changes."""
    message = page.page.locator(".message.assistant").last
    message.hover()
    message.get_by_role("button", name="Edit").click()
    page.page.fill(".edit-area", "My own words.")
    page.page.get_by_role("button", name="Save", exact=True).click()
    page.page.wait_for_selector(".message.assistant:last-child:has-text('My own words.')")


def continue_answer(page):
    """Continuing appends to the text that is there."""
    page.page.locator(".message.assistant").last.get_by_role("button", name="Continue").first.click()
    page.wait_idle()
    assert page.texts()[-1].startswith("My own words."), page.texts()[-1]


def delete_and_undo(page):
    """Deleting can be undone."""
    before = page.page.locator(".message").count()
    message = page.page.locator(".message.assistant").last
    message.hover()
    message.get_by_role("button", name="More").click()
    page.page.get_by_role("menuitem", name="Delete", exact=True).click()
    page.page.wait_for_function("n => document.querySelectorAll('.message').length === n", arg=before - 1)
    page.page.locator(".toast").get_by_role("button", name="Undo").click()
    page.page.wait_for_function("n => document.querySelectorAll('.message').length === n", arg=before)


def branch(page):
    """A branch is a new conversation with the same messages."""
    before = page.page.locator(".message").count()
    message = page.page.locator(".message.assistant").last
    message.hover()
    message.get_by_role("button", name="Branch").click()
    page.page.wait_for_selector(".toast:has-text('Branched')")
    page.page.wait_for_function("n => document.querySelectorAll('.message').length === n", arg=before)
    assert page.page.locator(".list-row").count() >= 2


def queued_send(page):
    """A message sent while an answer runs waits its turn."""
    new_chat(page)
    set_sampler(page, "min_tokens", LONG_TOKENS)
    page.send("Count to one hundred in words.")
    page.page.wait_for_selector(".message.running")
    page.send("And one more: say hello.", waits=False)
    page.page.wait_for_selector(".composer-queue .chip")
    page.page.keyboard.press("Escape")
    page.page.wait_for_selector(".message.user:has-text('say hello')")
    page.page.wait_for_function("() => document.querySelector('.message.running .markdown')?.textContent.length > 20")
    page.page.keyboard.press("Escape")
    page.page.wait_for_selector(".message.running", state="detached")


def draft_survives(page):
    """A reload keeps the conversation and the unsent text."""
    page.page.fill("#composer", "not sent yet")
    count = page.page.locator(".message").count()
    page.page.reload()
    page.unlock()
    page.page.wait_for_function("n => document.querySelectorAll('.message').length === n", arg=count)
    assert page.page.input_value("#composer") == "not sent yet"
    page.page.fill("#composer", "")


def samplers(page):
    """Only changed values are sent, and the panel shows them."""
    new_chat(page)
    page.page.keyboard.press("Control+.")
    field = page.page.locator(".sampler[data-name=temperature] .sampler-number")
    # What was open is open again after a search for something else.
    page.page.fill(".sampler-panel > .list-search", "min_tokens")
    assert field.is_hidden()
    page.page.fill(".sampler-panel > .list-search", "")
    assert field.is_visible()
    field.fill("0.7")
    field.press("Tab")
    page.page.locator(".sampler-wire summary").click()
    page.page.wait_for_function("() => document.querySelector('.sampler-wire pre').innerText.includes('temperature')")
    sent = json.loads(page.page.locator(".sampler-wire pre").first.inner_text())
    assert sent == {"temperature": 0.7}, sent
    field.fill("99")
    field.press("Tab")
    assert "at most 10" in page.page.locator(".sampler[data-name=temperature] .field-error").inner_text()
    page.shot("samplers")
    page.page.get_by_role("button", name="Reset all").click()
    page.page.keyboard.press("Control+.")


def model_output_cannot_run(page, corpus):
    """Model text, own text, titles, imported files: nothing runs, nothing leaves, nothing is made but text."""
    for text in corpus:
        new_chat(page)
        page.send(text)
        page.page.wait_for_selector(".message.user")
        page.page.wait_for_selector(".message.running", state="detached", timeout=120000)
        # The same text as an answer, through the page's own editing.
        page.page.locator(".message.assistant").last.hover()
        page.page.locator(".message.assistant").last.get_by_role("button", name="Edit").click()
        page.page.fill(".edit-area", text)
        page.page.get_by_role("button", name="Save", exact=True).click()
        page.page.wait_for_timeout(50)
        check_inert(page)
    everything = "\n\n".join(corpus)
    call = {"id": "c", "type": "function", "function": {"name": everything[:200], "arguments": json.dumps({"a": everything})}}
    conversation = [
        {"role": "system", "content": everything},
        {"role": "user", "content": everything},
        {"role": "assistant", "content": everything, "tool_calls": [call], "model": everything[:200]},
        {"role": "tool", "tool_call_id": "c", "content": everything},
        {"role": "assistant", "content": everything},
    ]
    import_files(page, [conversation])
    page.page.locator(".list-row a").first.click()
    page.page.wait_for_selector(".message.assistant")
    check_inert(page)
    page.shot("hostile")


def check_inert(page):
    """What messages are shown with can do nothing."""
    assert page.page.evaluate("window.__pwned === undefined")
    found = page.page.evaluate(
        """() => [...document.querySelectorAll('.message-body *, .list-row *')].flatMap((node) => {
             const bad = ['SCRIPT', 'IFRAME', 'OBJECT', 'EMBED', 'STYLE', 'LINK', 'META', 'FORM', 'svg', 'BASE'].includes(node.nodeName) && !node.closest('button');
             const attributes = [...node.attributes].filter((a) => /^on|^style$|^srcdoc$/i.test(a.name) && !node.closest('button'));
             const link = node.nodeName === 'A' && !/^(https?:|mailto:|#\\/chat\\/)/.test(node.getAttribute('href'));
             return bad || attributes.length || link ? [node.outerHTML.slice(0, 200)] : [];
           })"""
    )
    assert not found, found


def import_files(page, conversations):
    """Imports conversations as a person does, each from a file of its own."""
    files = [{"name": f"{idx}.json", "mimeType": "application/json", "buffer": json.dumps(value).encode()} for idx, value in enumerate(conversations)]
    page.page.get_by_role("button", name="More for conversations").click()
    with page.page.expect_file_chooser() as chosen:
        page.page.get_by_role("menuitem", name="Import").click()
    chosen.value.set_files(files)
    page.page.wait_for_selector("text=imported")


def link_cannot_submit(page):
    """Addresses, messages of other windows and imported files can fill the box; they send and switch nothing."""
    sent = []

    def note(request):
        if request.method != "GET":
            sent.append(f"{request.method} {request.url}")

    # Drafts are what was typed; everything else that is kept is a setting.
    settings = """() => JSON.stringify([Object.entries(localStorage).filter(([name]) => !name.startsWith('pagella.draft.')).sort(),
                 [...document.querySelectorAll('button[title][data-state]')].map((button) => button.title)])"""
    # Text is counted while it is typed; nothing else may be asked for.
    harmless = ("/tokenize", "/v1/token/encode", "/input_tokens", "/v1/streams/lookup", "/ui/exchange")
    page.page.on("request", note)
    before = page.page.evaluate("document.querySelectorAll('.list-row').length")
    kept = page.page.evaluate(settings)
    for address in ("#/chat/?text=run%20this", "#/chat/?text=run%20this&send=1&submit=true&model=demo-again&temperature=9", "?q=run%20this#/chat/?text=run%20this", "?q=run%20this&send=1&model=demo-again"):
        page.page.goto(page.base + address)
        page.unlock()
        page.page.wait_for_timeout(600)
        if "text=" in address:
            assert page.page.input_value("#composer").startswith("run"), address
        assert page.page.locator(".message.running").count() == 0, address
    for message in ({"text": "run this", "send": True}, {"type": "submit", "prompt": "run this"}, "run this"):
        page.page.evaluate("(message) => window.postMessage(message, '*')", message)
    import_files(page, [[{"role": "user", "content": "run this"}], {"format": "pagella", "conversations": [{"title": "run", "send": True, "model": "demo-again", "nodes": [{"id": "x", "parent": None, "role": "user", "content": "run this", "running": True}]}]}])
    page.page.locator(".list-row a").first.click()
    page.page.wait_for_timeout(300)
    assert page.page.locator(".message.running").count() == 0
    assert page.page.evaluate("document.querySelectorAll('.list-row').length") == before + 2
    assert page.page.evaluate(settings) == kept, "settings or the model changed"
    page.page.remove_listener("request", note)
    assert not [line for line in sent if not line.split("?")[0].endswith(harmless)], sent
    page.page.goto(page.base)
    page.unlock()


def key_not_exposed(page, key):
    """The key is in neither address, history, document, storage nor exports."""
    seen = page.page.evaluate(
        """() => JSON.stringify([location.href, history.state, document.documentElement.outerHTML, {...localStorage}, {...sessionStorage}])"""
    )
    assert key not in seen, "the key is visible"
    stored = page.page.evaluate(
        """async () => {
             const found = [];
             for (const { name, version } of await indexedDB.databases()) {
               const db = await new Promise((done, fail) => { const open = indexedDB.open(name, version); open.onsuccess = () => done(open.result); open.onerror = fail; });
               for (const store of db.objectStoreNames) {
                 found.push(await new Promise((done, fail) => { const all = db.transaction(store).objectStore(store).getAll(); all.onsuccess = () => done(all.result); all.onerror = fail; }));
               }
               db.close();
             }
             return JSON.stringify(found);
           }"""
    )
    assert len(stored) > 2 and key not in stored, "the key is in the browser's database"
    page.page.get_by_role("button", name="More for conversations").click()
    with page.page.expect_download() as download:
        page.page.get_by_role("menuitem", name="Export everything").click()
    exported = download.value.path().read_text()
    assert exported and key not in exported, "the key is in an export"


def notebook(page):
    """Generate, one token, undo as one step, token view."""
    page.page.keyboard.press("Alt+2")
    area = page.page.locator(".editor-text")
    area.fill("Once upon a time")
    area.press("Control+End")
    area.press("Shift+Enter")
    page.page.wait_for_function("() => document.querySelector('.editor-text').value.length > 20", timeout=60000)
    page.page.keyboard.press("Escape")
    page.page.wait_for_selector(".notebook-bar .primary:not(.running)")
    page.page.get_by_role("button", name="Tokens", exact=True).click()
    page.page.wait_for_selector(".token-flow .token")
    page.page.locator(".token-flow .token").last.click()
    page.page.wait_for_selector(".alternative")
    page.shot("notebook")
    area.press("Control+z")
    assert area.input_value() == "Once upon a time", area.input_value()
    area.press("Control+Enter")
    page.page.wait_for_function("() => document.querySelector('.editor-text').value.length > 16")
    page.page.get_by_role("button", name="Tokens", exact=True).click()


def notebook_stop(page):
    """Stop ends the request and says so; what was written, and how much of it there is, stays true."""
    page.page.keyboard.press("Alt+2")
    page.page.get_by_role("button", name="New notebook").click()
    set_sampler(page, "min_tokens", LONG_TOKENS)
    area = page.page.locator(".editor-text")
    area.fill("Once upon a time")
    area.press("Control+End")
    area.press("Shift+Enter")
    page.page.wait_for_function("() => document.querySelector('.editor-text').value.length > 40", timeout=60000)
    page.page.locator(".notebook-bar").get_by_role("button", name="Stop").click()
    page.page.wait_for_selector(".notebook-state:has-text('stopped by you')")
    page.page.wait_for_selector(".notebook-bar .primary:has-text('Generate')")
    text = area.input_value()
    # The request is gone from the server, and nothing of it comes after.
    while page.ask("v1/requests")["data"]:
        pass
    assert area.input_value() == text, "text came after the stop"
    written = int(re.search(r"([\d,]+) tokens", page.page.locator(".notebook-state").inner_text())[1].replace(",", ""))
    total = page.ask("v1/token/encode", {"text": text})["length"]
    page.page.wait_for_selector(f".notebook-count:has-text('{total:,} tokens')")
    assert 0 < written < total, (written, total)
    # Another notebook gets nothing of a run that it ended.
    area.press("Shift+Enter")
    page.page.wait_for_selector(".notebook-bar .primary.running")
    page.page.get_by_role("button", name="New notebook").click()
    page.page.wait_for_selector(".notebook-bar .primary:not(.running)")
    assert area.input_value() == "", area.input_value()


def notebook_scores(page):
    """Scoring a text scores every token of it, and again; writing on keeps what is known."""
    page.page.keyboard.press("Alt+2")
    page.page.get_by_role("button", name="New notebook").click()
    area = page.page.locator(".editor-text")
    area.fill("The map() method creates a new array 🙂.")
    page.page.get_by_role("button", name="Tokens", exact=True).click()
    score = page.page.get_by_role("button", name="Score the text")
    for _ in range(2):
        score.click()
        page.page.wait_for_selector(".notebook-state:has-text('tokens scored')")
        # Only the token that begins a text follows nothing.
        assert page.page.locator(".token-flow .tint-none").count() == 1
    scored = page.page.locator(".token-flow .token").count()
    assert scored > 8
    area.press("Control+End")
    area.press("Control+Enter")
    page.page.wait_for_function("n => document.querySelectorAll('.token-flow .token').length > n", arg=scored)
    assert page.page.locator(".token-flow .tint-none").count() == 1, "scores are gone"
    page.shot("notebook-scores")
    page.page.get_by_role("button", name="Tokens", exact=True).click()


def page_map(page, load):
    """The map draws and changes while `load` runs; the table says the same."""
    page.page.keyboard.press("Alt+3")
    page.page.wait_for_selector(".page-canvas")
    page.page.wait_for_function("() => document.querySelector('.map-summary').textContent.includes('pages')")
    idle = page.page.locator(".map-summary").inner_text()
    load()
    page.page.wait_for_function("before => document.querySelector('.map-summary').textContent !== before", arg=idle, timeout=60000)
    page.page.wait_for_selector(".jobs tbody tr", timeout=60000)
    page.page.wait_for_timeout(1500)
    page.shot("engine")
    page.page.get_by_role("button", name="As table").click()
    page.page.wait_for_selector(".map-table tr")
    page.page.get_by_role("button", name="As table").click()


def switch_model(page, names):
    """Unload, load another model, watch it, and chat with it."""
    page.page.keyboard.press("Alt+4")
    for name in names:
        page.page.locator(".list-button", has_text=name).first.click()
        page.page.wait_for_selector(".load-form")
        page.page.locator(".load-form button[type=submit]").click()
        page.page.wait_for_selector(".model-button[data-state=loading]", timeout=10000)
        page.page.wait_for_selector(".model-button[data-state=loaded]", timeout=300000)
    page.shot("models")
    page.page.get_by_role("button", name="Unload").first.click()
    page.page.wait_for_selector(".model-button[data-state=none]")
    page.page.locator(".list-button", has_text=names[0]).first.click()
    page.page.locator(".load-form button[type=submit]").click()
    page.page.wait_for_selector(".model-button[data-state=loaded]", timeout=300000)
    page.page.keyboard.press("Alt+1")


def keyboard(page):
    """Palette, help, messages and alternatives without a pointer."""
    page.page.keyboard.press("Control+k")
    page.page.wait_for_selector(".palette-item")
    page.page.keyboard.type("notebook")
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector(".notebook")
    page.page.keyboard.press("Alt+1")
    page.page.wait_for_selector(".chat")
    page.page.locator("#composer").blur()
    page.page.keyboard.press("?")
    page.page.wait_for_selector(".shortcut-table")
    page.page.keyboard.press("Escape")


def narrow(page):
    """Nothing scrolls sideways."""
    for view in ("chat", "notebook", "engine", "models"):
        page.page.goto(page.base + f"#/{view}")
        page.page.wait_for_timeout(500)
        width = page.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1], (view, width)
        page.shot(f"narrow-{view}")


def set_sampler(page, name, value):
    """Types a value into the sampler panel, which is opened for it."""
    page.page.keyboard.press("Control+.")
    page.page.fill(".sampler-panel > .list-search", name)
    field = page.page.locator(f".sampler[data-name={name}] .sampler-number")
    field.fill(str(value))
    field.press("Tab")
    page.page.fill(".sampler-panel > .list-search", "")
    page.page.keyboard.press("Control+.")


def settled_top(page):
    """How far the transcript is scrolled, once the wheel has come to rest."""
    return page.page.evaluate("""async () => {
        const box = document.querySelector('.transcript');
        let last = NaN;
        for (let still = 0; still < 15; last = box.scrollTop) {
            await new Promise(requestAnimationFrame);
            still = box.scrollTop === last ? still + 1 : 0;
        }
        return Math.round(last);
    }""")


def follow_rule(page):
    """Once the reader scrolls, nothing moves the view until the button does; the end makes no jump."""
    new_chat(page)
    # Enough for two screens even without a line break, and the same text every time.
    set_sampler(page, "min_tokens", 1500)
    set_sampler(page, "seed", 7)
    page.send("Write a long text, fast.")
    top = "() => Math.round(document.querySelector('.transcript').scrollTop)"
    page.page.wait_for_function("() => { const box = document.querySelector('.transcript'); return box.scrollHeight > box.clientHeight * 1.8; }", timeout=180000)
    page.page.mouse.move(700, 400)
    page.page.mouse.wheel(0, -250)
    page.page.wait_for_selector(".button.jump:not([hidden])")
    before = settled_top(page)
    page.page.wait_for_timeout(700)
    assert page.page.evaluate(top) == before, "the view moved under the reader"
    page.page.locator(".button.jump").click()
    page.page.wait_for_timeout(200)
    assert page.page.evaluate(top) > before
    page.page.wait_for_selector(".message.running", state="detached", timeout=120000)
    # The last pieces of text may still be followed.
    end = settled_top(page)
    page.page.wait_for_timeout(400)
    assert page.page.evaluate(top) == end, "the view jumped at the end"


def resume(page):
    """A reload during an answer loses nothing: the answer goes on where it was."""
    new_chat(page)
    set_sampler(page, "min_tokens", 1500)
    page.send("A slow story about a clock.")
    page.page.wait_for_function("() => document.querySelector('.message.assistant:last-child .markdown')?.textContent.length > 60", timeout=60000)
    page.page.wait_for_timeout(1300)
    seen = page.page.locator(".message.assistant .markdown").last.text_content()[:40]
    page.page.reload()
    page.unlock()
    # A fast machine may have ended it meanwhile.
    page.wait_idle(180)
    assert page.page.locator(".message.assistant .markdown").last.text_content().startswith(seen)
    assert page.page.locator(".message-error").count() == 0
    assert page.page.locator(".message.assistant:last-child .ending").count() == 0, "the answer did not reach its own end"


def two_tabs(page):
    """The second tab on a conversation follows; it can take over."""
    other = page.context.new_page()
    other.goto(page.page.url)
    other.wait_for_selector("html[data-ready]")
    other.wait_for_selector(".lock-bar", state="visible")
    other.close()


def new_chat(page):
    """Begins a conversation and waits until the last one is out of sight."""
    page.page.keyboard.press("Control+Shift+o")
    page.page.wait_for_selector(".message", state="detached")


def keep_copies(page, keep=True):
    """Switches the copy on the server on or off, in the settings."""
    page.page.get_by_role("button", name="Settings").click()
    page.page.get_by_label("Keep a copy of conversations on the server, for this key").set_checked(keep)
    page.page.keyboard.press("Escape")
    page.page.wait_for_selector("dialog", state="detached")


def open_copied(page, words):
    """Opens the conversation of this title as soon as it is there."""
    page.page.locator(".list-row a", has_text=words).first.click()
    page.page.wait_for_selector(f".message.user:has-text('{words}')")


def put_copy(page, words):
    """Waits until the server has a conversation with these words."""

    def is_it(answer):
        request = answer.request
        return request.method == "PUT" and "/v1/ui/store/" in request.url and words in (request.post_data or "") and answer.ok

    return page.page.expect_response(is_it, timeout=120000)


def server_copy(page):
    """A conversation reaches another device and comes back; what both change is kept twice."""
    # The server remembers what other runs kept.
    words = f"Name one copied sea, {page.name} {random.randrange(10**9)}."
    forked = page.page.locator(".list-row a", has_text=f"{words} (this device)")
    keep_copies(page)
    new_chat(page)
    with put_copy(page, words):
        page.send(words)
        page.wait_idle()
    other = page.other_device()
    keep_copies(other)
    open_copied(other, words)
    set_sampler(other, "temperature", 0.5)
    page.page.keyboard.press("Control+.")
    page.page.fill(".sampler-panel > .list-search", "temperature")
    with put_copy(other, "from elsewhere."):
        other.send("And one ocean, from elsewhere.")
        other.wait_idle()
    # This device has not looked yet, and changes the same conversation.
    page.send("And one lake, from here.")
    page.wait_idle()
    forked.wait_for()
    page.page.wait_for_selector(".message.user:has-text('from elsewhere.')")
    assert page.page.locator(".message.user:has-text('from here.')").count() == 0
    # What came is shown in the panel as well, which shows what was looked for.
    page.page.wait_for_function("() => document.querySelector('.sampler[data-name=temperature] .sampler-number').value === '0.5'")
    assert page.page.locator(".sampler[data-name=top_p]").is_hidden()
    page.page.fill(".sampler-panel > .list-search", "")
    page.page.keyboard.press("Control+.")
    forked.click()
    page.page.wait_for_selector(".message.user:has-text('from here.')")
    other.check_clean()
    other.context.close()
    # What follows is about this device alone.
    keep_copies(page, False)
    new_chat(page)
