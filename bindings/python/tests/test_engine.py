"""The package's own interface, on the demo model."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import pagella
from pagella import Engine, errors

GREEDY: dict[str, Any] = {"greedy": True, "max_tokens": 12}


def test_greedy_text_is_that_of_the_command(engine: Engine, command: str) -> None:
    prompts = ["The `map()` method", "CSS is", "An array is a"]
    flags = ["--raw", "--greedy", "--max-new-tokens", "24", "--math", "exact", "--json"]
    for prompt in prompts:
        done = subprocess.run([command, "run", prompt, *flags], capture_output=True, text=True)
        said = json.loads(done.stdout)
        answer = engine.complete(prompt, greedy=True, max_tokens=24)
        assert answer.text == said["text"]
        assert answer.token_ids.tolist() == said["token_ids"]
        assert answer.prompt_tokens == said["prompt_tokens"]


def test_a_prompt_may_be_text_ids_or_a_conversation(engine: Engine) -> None:
    ids = engine.tokenizer.encode("CSS is")
    by_text = engine.complete("CSS is", **GREEDY)
    assert engine.complete(ids, **GREEDY).text == by_text.text
    assert engine.complete(ids.tolist(), **GREEDY).text == by_text.text
    talk = [{"role": "user", "content": "What is CSS?"}]
    told = engine.complete(talk, **GREEDY)
    chat = engine.chat(**GREEDY)
    assert chat.ask("What is CSS?") == told.text
    assert [turn["role"] for turn in chat.turns] == ["user", "assistant"]
    parts = [{"role": "user", "content": [{"type": "text", "text": "What is CSS?"}]}]
    assert engine.complete(parts, **GREEDY).text == told.text
    with pytest.raises(errors.RequestError, match=r"messages\[0\].content\[0\] is not text"):
        engine.complete([{"role": "user", "content": [{"type": "image_url"}]}], **GREEDY)


def test_arrays_and_tensors_are_ids(engine: Engine) -> None:
    numpy = pytest.importorskip("numpy")
    ids = engine.tokenizer.encode("CSS is")
    wanted = engine.complete("CSS is", **GREEDY).text
    for given in (numpy.asarray(ids), numpy.asarray(ids)[None, :].astype("int32")):
        assert engine.complete(given, **GREEDY).text == wanted
    with pytest.raises(ValueError, match="2 sequences"):
        engine.complete(numpy.ones((2, 3), dtype=int), **GREEDY)


def test_arrays_are_seen_without_a_copy(engine: Engine) -> None:
    numpy = pytest.importorskip("numpy")
    answer = engine.complete("CSS is", return_logits=True, **GREEDY)
    logits = answer.logits
    assert logits is not None and logits.shape == [12, 4096]
    view = numpy.asarray(logits)
    assert view.ctypes.data == logits.__array_interface__["data"][0]
    assert not view.flags.writeable
    assert (view.argmax(axis=1) == answer.token_ids.numpy()).all()
    del logits, answer
    assert view.argmax() >= 0


def test_a_stream_says_what_the_answer_is(engine: Engine) -> None:
    whole = engine.complete("CSS is", **GREEDY)
    records = list(engine.stream("CSS is", **GREEDY))
    assert "".join(record.text for record in records) == whole.text
    assert [record.eos for record in records].count(True) == 1
    assert records[-1].done is not None and records[-1].done.text == whole.text
    assert records[0].stage == "started"


def test_async_streams_say_the_same(engine: Engine) -> None:
    async def tell(prompt: str) -> str:
        return "".join([record.text async for record in engine.stream(prompt, **GREEDY)])

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(tell(prompt) for prompt in prompts))

    prompts = ["CSS is", "HTML is", "An array is"]
    assert asyncio.run(all_of_them()) == [engine.complete(p, **GREEDY).text for p in prompts]


def test_many_prompts_come_back_in_order_with_their_own_settings(engine: Engine) -> None:
    prompts = [f"Number {n} is" for n in range(20)]
    each = [{"max_tokens": 1 + n % 5} for n in range(20)]
    answers = engine.generate(iter(prompts), each=each, greedy=True)
    for prompt, own, answer in zip(prompts, each, answers):
        assert answer.text == engine.complete(prompt, greedy=True, **own).text
    with pytest.raises(errors.RequestError, match="each"):
        engine.generate(prompts, each=each[:3])
    three = engine.generate(["CSS is"], n=3, seed=7, max_tokens=4)
    assert [answer.seed for answer in three] == [7, 8, 9]


def test_progress_is_told(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    engine.generate(["CSS is", "HTML is"], progress=True, **GREEDY)
    assert "2/2 prompts" in capfd.readouterr().err


def test_constraints_hold(engine: Engine) -> None:
    assert engine.complete("Is it? ", choice=["yes", "no"]).text in ("yes", "no")
    year = engine.complete("In ", regex="[12][0-9]{3}", max_tokens=8).text
    assert year.isdigit() and len(year) == 4
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}}, "required": ["n"]}
    said = engine.complete("JSON: ", json_schema=schema, max_tokens=40, greedy=True).text
    assert json.loads(said)["n"] <= 99
    assert engine.complete("x", grammar='start: "a" "b"', max_tokens=8).text == "ab"
    assert engine.complete("x", grammar='root ::= "c"', max_tokens=8).text == "c"
    assert engine.complete("x", prefix="Once", max_tokens=8).text.startswith("Once")


def test_a_program_says_itself_what_may_come_next(engine: Engine) -> None:
    a, b, c = (int(engine.tokenizer.encode(letter, add_bos=False)[0]) for letter in "abc")

    def in_turn(ids: list[int]) -> tuple[list[int], list[int]]:
        wanted = (a, b, c)[len(ids) % 3]
        return [wanted], [c] if len(ids) > 4 else []

    told = engine.complete("x", allowed_next=in_turn, max_tokens=20)
    assert (told.text, told.eos_reason) == ("abcabc", "end_filter")
    both = engine.complete("x", allowed_next=in_turn, regex="(abc){3}", max_tokens=20)
    assert both.text == "abcabc" and both.eos_reason == "filter_dead_end"
    # Everything may come, or the model's own end.
    ends = engine.tokenizer.eos_ids
    assert engine.complete("x", allowed_next=lambda ids: (None, None), max_tokens=3).new_tokens <= 3
    assert engine.complete("x", allowed_next=lambda ids: (ends, []), max_tokens=3).text == ""
    for wrong in (lambda ids: 1, lambda ids: (["a"], []), lambda ids: 1 / 0):
        with pytest.raises(errors.RequestError, match="own constraint"):
            engine.complete("x", allowed_next=wrong, max_tokens=3)  # type: ignore[arg-type]


def test_banned_strings_and_stops(engine: Engine) -> None:
    text = engine.complete("CSS is", greedy=True, max_tokens=30).text
    word = text.split()[2]
    assert word.lower() not in engine.complete("CSS is", greedy=True, max_tokens=30, banned_strings=[word]).text.lower()
    ended = engine.complete("CSS is", greedy=True, max_tokens=30, stop=[word])
    assert (ended.eos_reason, ended.stop_string) == ("stop_string", word)
    assert text.startswith(ended.text)


def test_every_setting_is_known_or_refused(engine: Engine) -> None:
    with pytest.raises(errors.RequestError, match="temprature"):
        engine.complete("x", temprature=1)  # type: ignore[call-arg]
    for wrong in ({"top_p": 2}, {"temperature": "hot"}, {"stop": [1.5]}, {"length_policy": "x"}):
        with pytest.raises((errors.RequestError, TypeError)):
            engine.complete("x", **wrong)  # type: ignore[arg-type]
    with pytest.raises(errors.RequestError, match="cfg_scale"):
        engine.complete("x", negative_prompt="y")
    with pytest.raises(errors.RequestError, match="regex: "):
        engine.complete("x", regex=5)  # type: ignore[arg-type]
    for prompt in (b"CSS is", None, 5, ["CSS"]):
        with pytest.raises(TypeError, match="a text .str. or token ids"):
            engine.complete(prompt)  # type: ignore[arg-type]


def test_every_scalar_of_the_table_is_taken(engine: Engine) -> None:
    taken = 0
    for row in pagella.parameters():
        if row["default"] is None or row["name"] in ("cfg_scale", "max_tokens"):
            continue
        value: Any = row["default"]
        if "int" in row["annotation"] and "float" not in row["annotation"]:
            value = int(value)
        if "bool" in row["annotation"]:
            value = bool(value)
        if "Literal" in row["annotation"]:
            value = row["annotation"].split("'")[1]
        settings: dict[str, Any] = {row["name"]: value, "max_tokens": 1}
        assert engine.complete("CSS is", **settings).new_tokens == 1, row["name"]
        taken += 1
    assert taken > 40


def test_guidance_takes_a_negative_prompt(engine: Engine) -> None:
    plain = engine.complete("CSS is", **GREEDY).text
    guided = engine.complete("CSS is", negative_prompt="HTML is", cfg_scale=2.0, **GREEDY).text
    by_ids = engine.complete(
        "CSS is", negative_ids=engine.tokenizer.encode("HTML is"), cfg_scale=2.0, **GREEDY
    ).text
    assert guided == by_ids != plain


def test_numbers_are_reported(engine: Engine) -> None:
    answer = engine.complete("CSS is", logprobs=2, probabilities=True, top_tokens=3, **GREEDY)
    assert len(answer.logprobs) == answer.new_tokens == len(answer.token_probs)
    assert all(logprob <= 0 and len(others) == 2 for logprob, others in answer.logprobs)
    assert len(answer.top_tokens) == answer.new_tokens
    scored = engine.complete("CSS is a", prompt_logprobs=0, max_tokens=1)
    assert len(scored.prompt_logprobs) == scored.prompt_tokens - 1


def test_chats_call_tools(engine: Engine) -> None:
    parameters = {"type": "object", "properties": {"word": {"enum": ["CSS", "HTML"]}}, "required": ["word"]}
    tool = {"type": "function", "function": {"name": "look_up", "parameters": parameters}}
    chat = engine.chat(tools=[tool], tool_choice={"name": "look_up"}, greedy=True, max_tokens=60)
    assert chat.ask("What is CSS?") == ""
    (call,) = chat.calls
    assert call.name == "look_up" and call.arguments["word"] in ("CSS", "HTML")
    with pytest.raises(errors.RequestError, match="1 calls"):
        list(chat.send_results([]))
    events = list(chat.send_results([{"stands for": "Cascading Style Sheets"}]))
    assert events[-1].done is not None
    assert [turn["role"] for turn in chat.turns] == ["user", "assistant", "tool", "assistant"]
    chat.clear()
    assert chat.turns == []


def test_a_conversation_can_be_kept_elsewhere(engine: Engine) -> None:
    chat = engine.chat("Be brief.", **GREEDY)
    chat.ask("What is CSS?")
    again = chat.ask("And HTML?")
    other = engine.chat("Be brief.", **GREEDY)
    told = "".join(event.text for event in other.send_messages(chat.turns[:-1]))
    assert told == again and other.turns == chat.turns


def test_chats_are_asynchronous_too(engine: Engine) -> None:
    async def tell() -> str:
        return "".join([event.text async for event in engine.chat(**GREEDY).send("What is CSS?")])

    assert asyncio.run(tell()) == engine.chat(**GREEDY).ask("What is CSS?")


def test_a_chat_that_is_left_keeps_what_was_read(engine: Engine) -> None:
    chat = engine.chat("Be brief.", greedy=True, max_tokens=500)
    stream = chat.send("What is CSS?")
    read = next(event.text for event in stream if event.text)
    stream.close()
    del stream
    assert chat.turns[-1]["content"].startswith(read)


def test_drafts_change_no_text(engine: Engine) -> None:
    wanted = engine.complete("The `map()` method", greedy=True, max_tokens=40)
    with Engine.open("demo", draft="demo-draft", draft_tokens=3, math="exact") as drafting:
        answer = drafting.complete("The `map()` method", greedy=True, max_tokens=40)
        assert drafting.facts["draft"] is not None
    assert answer.text == wanted.text
    assert answer.accepted_draft_tokens > 0


def test_texts_become_vectors(engine: Engine) -> None:
    vectors = engine.embed(["CSS is", "HTML is", [5, 6, 7]])
    assert vectors.shape == [3, 384] and vectors.dtype == "float32"
    again = engine.embed(["CSS is"], pooling="last").tolist()
    assert again != engine.embed(["CSS is"]).tolist()
    with pytest.raises(errors.RequestError, match="pooling"):
        engine.embed(["x"], pooling="max")  # type: ignore[arg-type]


def test_the_engine_tells_of_itself(engine: Engine, tmp_path: Path) -> None:
    assert engine.facts["family"] == "llama" and engine.facts["vocab"] == 4096
    assert len(engine.page_map()) == engine.stats()["pages"]["total"] == len(engine.pages())
    assert engine.fingerprint.startswith("fp_")
    ids = engine.prompt_ids("CSS is")
    engine.complete(ids, **GREEDY)
    saved = engine.save(tmp_path / "sequence", ids)
    assert engine.restore(tmp_path / "sequence").tolist() == ids.tolist()[:saved]
    found = pagella.inspect("demo", cache="q8")
    assert found["family"] == "llama"
    sampler = engine.default_sampling
    assert sampler["temperature"] >= 0


def test_errors_have_classes(engine: Engine, tmp_path: Path) -> None:
    for model in (tmp_path, "no-such-model", "surely/not-cached"):
        with pytest.raises(errors.ModelError):
            Engine.open(model)
    with pytest.raises(errors.RequestError, match="cache format"):
        Engine.open("demo", cache="q5")  # type: ignore[arg-type]
    with pytest.raises(errors.DeviceError, match="cuda:9"):
        Engine.open("demo", device="cuda:9")
    with pytest.raises(errors.RequestError, match="context holds"):
        engine.complete([5] * 5000)
    with pytest.raises(errors.RequestError, match="regular expression"):
        engine.complete("x", regex="(")
    with pytest.raises(errors.ModelError):
        engine.load_adapter("none", tmp_path)
    closed = Engine.open("demo")
    closed.close()
    assert closed.closed
    with pytest.raises(errors.EngineError, match="closed"):
        closed.complete("x")
    assert issubclass(errors.OutOfMemoryError, MemoryError)
    assert issubclass(errors.RequestError, ValueError)


def test_a_session_gives_the_logits_of_every_id(engine: Engine) -> None:
    from pagella._pagella import Session

    session = Session.open(engine.facts["dir"], {"math": "exact"})
    ids = engine.prompt_ids("CSS is a").tolist()
    whole = session.logits(ids)
    assert whole.shape == [len(ids), 4096]
    rest = session.logits(ids[2:], past=2)
    assert rest.tolist() == whole.tolist()[2:]
    best = max(range(4096), key=whole.tolist()[-1].__getitem__)
    assert engine.complete(ids, greedy=True, max_tokens=1).token_ids.tolist() == [best]
