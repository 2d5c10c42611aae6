"""Programs as ExLlamaV2's users write them, with the imports changed, on the demo model."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("numpy")

from pagella import Engine, _pagella
from pagella.compat.exllamav2 import (
    ExLlamaV2,
    ExLlamaV2Cache,
    ExLlamaV2Cache_8bit,
    ExLlamaV2Cache_Q4,
    ExLlamaV2Cache_Q6,
    ExLlamaV2Cache_Q8,
    ExLlamaV2Cache_TP,
    ExLlamaV2Config,
    ExLlamaV2Lora,
    ExLlamaV2Tokenizer,
    ExLlamaV2VisionTower,
    Timer,
    model_init,
)
from pagella.compat.exllamav2.generator import (
    ExLlamaV2BaseGenerator,
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicGeneratorAsync,
    ExLlamaV2DynamicJob,
    ExLlamaV2DynamicJobAsync,
    ExLlamaV2Sampler,
    ExLlamaV2StreamingGenerator,
)
from pagella.compat.exllamav2.generator.filters import (
    ExLlamaV2Filter,
    ExLlamaV2JsonFilter,
    ExLlamaV2PrefixFilter,
    ExLlamaV2RegexFilter,
    ExLlamaV2SelectFilter,
)
from pagella.errors import OutOfMemoryError, RequestError

GREEDY = ExLlamaV2Sampler.Settings.greedy()
TOKENS = 10


def set_up(kind: type = ExLlamaV2Cache, **options: Any) -> SimpleNamespace:
    config = ExLlamaV2Config("demo")
    config.arch_compat_overrides()
    model = ExLlamaV2(config)
    cache = kind(model, max_seq_len=4096, lazy=True)
    model.load_autosplit(cache)
    tokenizer = ExLlamaV2Tokenizer(config)
    generator = ExLlamaV2DynamicGenerator(
        model=model, cache=cache, tokenizer=tokenizer, **options
    )
    return SimpleNamespace(**locals())


@pytest.fixture(scope="module")
def it() -> Iterator[SimpleNamespace]:
    parts = set_up()
    parts.generator.warmup()
    yield parts
    parts.model.unload()


@pytest.fixture(scope="module")
def texts(engine: Engine) -> dict[str, str]:
    """What the engine itself writes."""
    prompts = ["CSS is", "HTML is", "An array is"]
    with Engine.open("demo") as own:
        return {
            prompt: own.complete(prompt, greedy=True, max_tokens=TOKENS, default_stops=False).text
            for prompt in prompts
        }


def encode(it: SimpleNamespace, text: str) -> Any:
    return it.tokenizer.encode(text, add_bos=True)


def job(it: SimpleNamespace, text: str, **options: Any) -> ExLlamaV2DynamicJob:
    given = {"max_new_tokens": TOKENS, "gen_settings": GREEDY, **options}
    return ExLlamaV2DynamicJob(input_ids=encode(it, text), **given)


def drain(it: SimpleNamespace) -> list[dict[str, Any]]:
    results = []
    while it.generator.num_remaining_jobs():
        results += it.generator.iterate()
    return results


def test_basic_inference(it: SimpleNamespace, texts: dict[str, str]) -> None:
    with Timer() as timer:
        single = it.generator.generate(
            prompt="CSS is", max_new_tokens=TOKENS, add_bos=True, gen_settings=GREEDY
        )
    assert single == "CSS is" + texts["CSS is"] and timer.interval > 0
    several = it.generator.generate(
        prompt=list(texts), max_new_tokens=TOKENS, add_bos=True, gen_settings=GREEDY
    )
    assert several == [prompt + text for prompt, text in texts.items()]
    only, last = it.generator.generate(
        prompt="CSS is",
        max_new_tokens=TOKENS,
        add_bos=True,
        gen_settings=GREEDY,
        completion_only=True,
        return_last_results=True,
    )
    assert only == texts["CSS is"]
    assert last["eos_reason"] == "max_new_tokens" and last["new_tokens"] == TOKENS


def test_the_same_seed_gives_the_same_text(it: SimpleNamespace) -> None:
    ask = lambda seed: it.generator.generate(prompt="CSS is", max_new_tokens=16, seed=seed)  # noqa: E731
    assert ask(1234) == ask(1234)
    assert len({ask(seed) for seed in range(5)}) > 1


def test_streaming_jobs(it: SimpleNamespace, texts: dict[str, str]) -> None:
    one = job(it, "CSS is", identifier="mine", return_probs=True, return_top_tokens=3, return_logits=True)
    serial = it.generator.enqueue(one)
    results = drain(it)
    assert [r["stage"] for r in results][0] == "started"
    assert {r["serial"] for r in results} == {serial} and all(r["job"] is one for r in results)
    assert {r["identifier"] for r in results} == {"mine"}
    streamed = [r for r in results if r["stage"] == "streaming"]
    assert "".join(r.get("text", "") for r in streamed) == texts["CSS is"]
    first = next(r for r in streamed if "token_ids" in r)
    assert first["token_ids"].shape == (1, 1) and first["token_probs"].shape == (1, 1)
    assert first["top_k_tokens"].shape == first["top_k_probs"].shape == (1, 1, 3)
    assert first["logits"].shape == (1, 1, 4096)
    last = results[-1]
    assert last["eos"] and last["full_completion"] == texts["CSS is"]
    for name in ("prompt_tokens", "new_tokens", "cached_pages", "cached_tokens"):
        assert isinstance(last[name], int)
    for name in ("time_enqueued", "time_prefill", "time_generate"):
        assert isinstance(last[name], float)
    assert it.generator.iterate() == []


def test_stop_conditions(it: SimpleNamespace, texts: dict[str, str]) -> None:
    word = texts["CSS is"].split()[1]
    it.generator.enqueue(job(it, "CSS is", stop_conditions=[it.tokenizer.eos_token_id, word]))
    last = drain(it)[-1]
    assert last["eos_reason"] == "stop_string" and last["eos_triggering_string"] == word
    assert last["held"]["text"].startswith(word)
    ids = it.tokenizer.encode(texts["CSS is"])
    it.generator.enqueue(job(it, "CSS is", stop_conditions=[int(ids[0, 0])]))
    last = drain(it)[-1]
    assert last["eos_reason"] == "stop_token"
    assert last["eos_triggering_token_id"] == int(ids[0, 0])
    with pytest.raises(ValueError, match="stop_conditions"):
        job(it, "x", stop_conditions=[1.5])


def test_jobs_are_cancelled(it: SimpleNamespace) -> None:
    jobs = [job(it, f"{n} is", max_new_tokens=400) for n in range(3)]
    it.generator.enqueue(jobs)
    assert it.generator.num_remaining_jobs() == 3
    it.generator.cancel(jobs[1])
    assert it.generator.num_remaining_jobs() == 2
    results = it.generator.iterate()
    assert results and all(result["job"] is not jobs[1] for result in results)
    jobs[0].cancel()
    assert jobs[0] not in it.generator.pending_jobs + it.generator.active_jobs
    it.generator.clear_queue()
    assert it.generator.num_remaining_jobs() == 0 and it.generator.iterate() == []
    event = threading.Event()
    event.set()
    assert it.generator.generate(prompt="x", max_new_tokens=400, abort_event=event) is None


def test_deduplication(it: SimpleNamespace) -> None:
    context = "The box model has content, padding, border and margin. " * 60
    questions = [f"Question {n}:" for n in range(8)]
    answers = it.generator.generate(
        prompt=[context + question for question in questions],
        max_new_tokens=8,
        gen_settings=GREEDY,
        completion_only=True,
    )
    own = it.generator.generate(
        prompt=context + questions[3], max_new_tokens=8, gen_settings=GREEDY, completion_only=True
    )
    assert answers[3] == own
    _, last = it.generator.generate(
        prompt=context + "Again:", max_new_tokens=1, return_last_results=True
    )
    assert last["cached_tokens"] >= 512


def test_banned_strings(it: SimpleNamespace, texts: dict[str, str]) -> None:
    word = texts["CSS is"].split()[1]
    it.generator.enqueue(job(it, "CSS is", max_new_tokens=30, banned_strings=[word]))
    results = drain(it)
    assert word.lower() not in results[-1]["full_completion"].lower()
    taken_back = [r for r in results if "suppressed_text" in r]
    assert taken_back and word in taken_back[0]["suppressed_text"]
    assert taken_back[0]["suppressed_tokens"].shape[0] == 1


def test_cfg(it: SimpleNamespace) -> None:
    def with_scale(scale: float) -> Any:
        settings = ExLlamaV2Sampler.Settings.greedy()
        settings.cfg_scale = scale
        return settings

    pair = ("CSS is", "HTML is")
    scales = [1.0, 1.5, 2.5]
    answers = it.generator.generate(
        prompt=[pair] * 3,
        max_new_tokens=TOKENS,
        gen_settings=[with_scale(scale) for scale in scales],
        add_bos=True,
    )
    plain = it.generator.generate(
        prompt="CSS is", max_new_tokens=TOKENS, gen_settings=GREEDY, add_bos=True
    )
    assert answers[0] == plain and answers[2] != plain
    with pytest.raises(AssertionError, match="cfg_scale"):
        it.generator.generate(prompt=pair, max_new_tokens=4, gen_settings=GREEDY)


def test_filters(it: SimpleNamespace) -> None:
    parts = (it.model, it.tokenizer)
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "required": ["n"]}
    filters = [
        [ExLlamaV2JsonFilter(*parts, schema)],
        None,
        [ExLlamaV2RegexFilter(*parts, "[0-9]{4}")],
        [ExLlamaV2PrefixFilter(*parts, ["Once", "Twice"])],
        [ExLlamaV2SelectFilter(*parts, ["Yes", "No"])],
        [ExLlamaV2SelectFilter(*parts, ["Yes", "No"], case_insensitive=False)],
    ]
    told, last = it.generator.generate(
        prompt=["Tell: "] * len(filters),
        max_new_tokens=24,
        gen_settings=GREEDY,
        filters=filters,
        stop_conditions=[it.tokenizer.eos_token_id],
        completion_only=True,
        return_last_results=True,
    )
    assert json.loads(told[0])["n"] <= 9
    assert told[2].isdigit() and len(told[2]) == 4
    assert told[3].startswith(("Once", "Twice"))
    assert told[4].lower() in ("yes", "no") and told[5] in ("Yes", "No")
    assert last[2]["eos_reason"] in ("end_filter", "stop_token")


def test_token_healing(it: SimpleNamespace) -> None:
    plain = it.generator.generate(prompt="The querySel", max_new_tokens=4, gen_settings=GREEDY)
    healed = it.generator.generate(
        prompt="The querySel", max_new_tokens=4, gen_settings=GREEDY, token_healing=True
    )
    assert healed.startswith("The querySel") and plain.startswith("The querySel")


def test_settings_reach_the_engine(it: SimpleNamespace) -> None:
    settings = ExLlamaV2Sampler.Settings()
    assert (settings.temperature, settings.top_k, settings.top_p) == (0.8, 50, 0.8)
    settings.disallow_tokens(it.tokenizer, [it.tokenizer.eos_token_id])
    told = settings.to_engine()
    assert told["banned_tokens"] == [it.tokenizer.eos_token_id]
    only = ExLlamaV2Sampler.Settings(temperature=1.5, top_p=0.0, top_k=0)
    ids = [int(id) for id in it.tokenizer.encode(" the")[0]]
    only.allow_tokens(it.tokenizer, ids)
    written = it.generator.generate(
        prompt="CSS is", max_new_tokens=4, gen_settings=only, completion_only=True
    )
    assert set(it.tokenizer.encode(written)[0].tolist()) <= set(ids)
    rich = ExLlamaV2Sampler.Settings(
        min_p=0.05,
        top_a=0.1,
        tfs=0.9,
        typical=0.9,
        skew=0.1,
        min_temp=0.5,
        max_temp=1.5,
        smoothing_factor=0.2,
        mirostat=True,
        token_repetition_range=64,
        token_repetition_decay=32,
        token_frequency_penalty=0.1,
        token_presence_penalty=0.1,
        dry_multiplier=0.8,
        dry_sequence_breakers={1, 2},
        xtc_probability=0.5,
        xtc_ignore_tokens=frozenset([3]),
        temperature_last=True,
    )
    assert it.generator.generate(prompt="CSS is", max_new_tokens=4, gen_settings=rich.clone())
    rich.post_sampling_hooks.append(print)
    with pytest.raises(NotImplementedError, match="post_sampling_hooks"):
        it.generator.generate(prompt="CSS is", max_new_tokens=4, gen_settings=rich)
    with pytest.raises(TypeError):
        ExLlamaV2Sampler.Settings(temprature=1)  # type: ignore[call-arg]


def test_speculative_decoding(it: SimpleNamespace, texts: dict[str, str]) -> None:
    config = ExLlamaV2Config("demo")
    model = ExLlamaV2(config)
    cache = ExLlamaV2Cache(model, max_seq_len=2048, lazy=True)
    model.load_autosplit(cache)
    draft_config = ExLlamaV2Config("demo-draft")
    draft_model = ExLlamaV2(draft_config)
    draft_cache = ExLlamaV2Cache(draft_model, max_seq_len=2048, lazy=True)
    draft_model.load_autosplit(draft_cache)
    generator = ExLlamaV2DynamicGenerator(
        model=model,
        cache=cache,
        draft_model=draft_model,
        draft_cache=draft_cache,
        tokenizer=ExLlamaV2Tokenizer(config),
        num_draft_tokens=4,
    )
    text, last = generator.generate(
        prompt="CSS is",
        max_new_tokens=TOKENS,
        gen_settings=GREEDY,
        add_bos=True,
        return_last_results=True,
    )
    assert text == "CSS is" + texts["CSS is"]
    assert last["accepted_draft_tokens"] + last["rejected_draft_tokens"] > 0
    with pytest.raises(AssertionError, match="Must supply cache for draft model"):
        ExLlamaV2DynamicGenerator(model, cache, it.tokenizer, draft_model=draft_model)
    model.unload()


def test_ngram_drafts(texts: dict[str, str]) -> None:
    it = set_up(use_ngram_draft=True, num_draft_tokens=3)
    it.generator.enqueue(job(it, "CSS is"))
    last = drain(it)[-1]
    assert last["full_completion"] == texts["CSS is"] and "accepted_draft_tokens" in last
    it.model.unload()


def test_jobs_are_queued_from_threads(it: SimpleNamespace) -> None:
    def queue(n: int) -> None:
        for _ in range(20):
            it.generator.enqueue(job(it, f"{n} is", max_new_tokens=2))

    threads = [threading.Thread(target=queue, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended = [result["serial"] for result in drain(it) if result["eos"]]
    assert len(set(ended)) == len(ended) == 160


@pytest.mark.parametrize("kind", [ExLlamaV2Cache_Q4, ExLlamaV2Cache_Q6, ExLlamaV2Cache_Q8])
def test_kinds_of_cache(kind: type) -> None:
    it = set_up(kind)
    with Engine.open("demo", cache=kind.format) as own:
        wanted = own.complete("CSS is", greedy=True, max_tokens=TOKENS, default_stops=False).text
    text = it.generator.generate(
        prompt="CSS is", max_new_tokens=TOKENS, gen_settings=GREEDY, add_bos=True
    )
    assert text == "CSS is" + wanted
    assert it.cache.footprint()[0] < ExLlamaV2Cache(it.model, max_seq_len=4096).footprint()[0]
    it.model.unload()


def test_rules_fail_with_the_sentences_users_know(it: SimpleNamespace) -> None:
    def make(cache: Any, **options: Any) -> None:
        ExLlamaV2DynamicGenerator(it.model, cache, it.tokenizer, **options)

    lazy: dict[str, Any] = {"lazy": True}
    for cache, options, sentence in [
        (ExLlamaV2Cache(it.model, max_seq_len=1000, **lazy), {}, "multiple of 256"),
        (ExLlamaV2Cache(it.model, batch_size=2, **lazy), {}, "batch_size = 1"),
        (ExLlamaV2Cache_8bit(it.model, **lazy), {}, "8-bit cache"),
        (it.cache, {"max_chunk_size": 100}, "max_chunk_size"),
        (it.cache, {"num_draft_tokens": 9, "use_ngram_draft": True}, "num_draft_tokens"),
        (it.cache, {"max_seq_len": 1 << 20}, "max_seq_len"),
    ]:
        with pytest.raises(AssertionError, match=sentence):
            make(cache, **options)
    # What concerns drafts alone is of no account without them.
    make(it.cache, max_q_size=1)
    with pytest.raises(AssertionError, match="Job requires .* pages"):
        it.generator.enqueue(job(it, "CSS is", max_new_tokens=100_000))
    with pytest.raises(AssertionError, match="empty"):
        ExLlamaV2DynamicJob(input_ids=[], max_new_tokens=1)
    with pytest.raises(AssertionError, match="leaves out the first 1 devices"):
        ExLlamaV2(it.config).load(gpu_split=[0, 8])
    with pytest.raises(ValueError, match="a list of GB"):
        ExLlamaV2(it.config).load(gpu_split="8,8")
    with pytest.raises(AssertionError, match="Can't find"):
        ExLlamaV2Config("/no/such/model")
    with pytest.raises(TypeError):
        it.generator.generate(prompt="x", max_new_tokens=1, stop_condition=[])
    with pytest.raises(NotImplementedError, match="images"):
        ExLlamaV2VisionTower(it.config)


def test_the_8bit_cache_works_where_it_is_allowed() -> None:
    it = set_up(ExLlamaV2Cache_8bit, allow_8bit_cache=True)
    assert it.generator.generate(prompt="CSS is", max_new_tokens=4)
    it.model.unload()


def test_a_split_and_a_reserve_are_limits() -> None:
    def text(load: Callable[[ExLlamaV2], ExLlamaV2Cache]) -> str:
        config = ExLlamaV2Config("demo")
        model = ExLlamaV2(config)
        cache = load(model)
        generator = ExLlamaV2DynamicGenerator(model, cache, ExLlamaV2Tokenizer(config))
        written = generator.generate(prompt="CSS is", max_new_tokens=4, gen_settings=GREEDY)
        model.unload()
        return written

    def by_split(*shares: float) -> Callable[[ExLlamaV2], ExLlamaV2Cache]:
        def load(model: ExLlamaV2) -> ExLlamaV2Cache:
            model.load(gpu_split=list(shares))
            return ExLlamaV2Cache(model, max_seq_len=1024)

        return load

    def by_reserve(model: ExLlamaV2) -> ExLlamaV2Cache:
        cache = ExLlamaV2Cache(model, max_seq_len=1024, lazy=True)
        model.load_autosplit(cache, reserve_vram=64 << 20)
        return cache

    assert text(by_split(1)) == text(by_reserve)
    with pytest.raises(OutOfMemoryError, match="more than"):
        text(by_split(0.005))
    # Devices are filled in their order: the second is not needed, or cannot be used.
    assert text(by_split(1, 24)) == text(by_reserve)
    with pytest.raises(OutOfMemoryError, match="more than.*the other 1 cannot be used"):
        text(by_split(0.005, 24))


@pytest.mark.parametrize("split", [None, "auto", [16, 24]])
def test_tensor_parallel_on_one_device_is_the_whole_model(texts: dict[str, str], split: Any) -> None:
    model = ExLlamaV2(ExLlamaV2Config("demo"))
    model.load_tp(split, expect_cache_tokens=2048, expect_cache_base=ExLlamaV2Cache_Q8)
    cache = ExLlamaV2Cache_TP(model, max_seq_len=2048)
    generator = ExLlamaV2DynamicGenerator(model, cache, ExLlamaV2Tokenizer(model.config))
    text = generator.generate(prompt="CSS is", max_new_tokens=TOKENS, gen_settings=GREEDY, add_bos=True)
    assert text == "CSS is" + texts["CSS is"]
    model.unload()


def test_tensor_parallel_over_several_devices_is_refused(
    it: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ExLlamaV2(it.config)
    monkeypatch.setattr(_pagella, "devices", lambda: ["cuda:0", "cuda:1"])
    for split in (None, [16, 24]):
        with pytest.raises(NotImplementedError, match="several devices .cuda:0, cuda:1."):
            model.load_tp(split)
    model.load_tp([0, 24])
    assert model._split == {"device": "cuda:1", "gpu_split": [24.0]}


def test_async_jobs(it: SimpleNamespace, texts: dict[str, str]) -> None:
    async def main() -> list[str]:
        generator = ExLlamaV2DynamicGeneratorAsync(
            model=it.model, cache=it.cache, tokenizer=it.tokenizer
        )

        async def run(prompt: str, pieces_max: int) -> str:
            one = ExLlamaV2DynamicJobAsync(
                generator, input_ids=encode(it, prompt), max_new_tokens=TOKENS, gen_settings=GREEDY
            )
            text, pieces = "", 0
            async for result in one:
                text += result.get("text", "")
                pieces += 1
                if pieces == pieces_max:
                    await one.cancel()
            return text

        told = await asyncio.gather(*(run(prompt, 1000) for prompt in texts), run("CSS is", 3))
        assert generator.num_remaining_jobs() == 0
        await generator.close()
        return told

    told = asyncio.run(main())
    assert told[:3] == list(texts.values())
    assert len(told[3]) < len(texts["CSS is"])


def test_the_base_generator(texts: dict[str, str]) -> None:
    config = ExLlamaV2Config("demo")
    model = ExLlamaV2(config)
    model.load()
    cache = ExLlamaV2Cache(model, batch_size=2, max_seq_len=1000)
    tokenizer = ExLlamaV2Tokenizer(config)
    generator = ExLlamaV2BaseGenerator(model, cache, tokenizer)
    generator.warmup()
    text = generator.generate_simple("CSS is", GREEDY, TOKENS, seed=1, add_bos=True)
    assert text.startswith("CSS is") and texts["CSS is"].startswith(text[len("CSS is") :])
    several = generator.generate_simple(["CSS is", "HTML is"], GREEDY, TOKENS, add_bos=True)
    assert several[0] == text and several[1].startswith("HTML is")
    with pytest.raises(AssertionError, match="batch_size"):
        generator.generate_simple(["x"] * 3, GREEDY, 4)
    model.unload()


def test_the_streaming_generator(it: SimpleNamespace, texts: dict[str, str]) -> None:
    generator = ExLlamaV2StreamingGenerator(it.model, it.cache, it.tokenizer)
    generator.set_stop_conditions([it.tokenizer.eos_token_id, "\n\n\n\n"])
    generator.warmup()
    text, count = "", 0
    generator.begin_stream(encode(it, "CSS is"), GREEDY)
    while True:
        chunk, eos, ids = generator.stream()
        text += chunk
        count += ids.shape[-1]
        if eos or count == TOKENS:
            break
    assert text and texts["CSS is"].startswith(text)
    generator.begin_stream_ex(encode(it, "HTML is"), GREEDY, return_probabilities=True)
    found = generator.stream_ex()
    while not found["chunk"]:
        found = generator.stream_ex()
    assert found["probs"].shape == (1, 1) and texts["HTML is"].startswith(found["chunk"])
    assert generator.sequence_ids.shape[0] == 1 and not generator.full()
    assert generator.dynamic.engine is it.generator.engine
    settings = GREEDY.clone()
    settings.cfg_scale = 1.5
    ids, offsets = it.tokenizer.encode(["CSS is a", "HTML"], return_offsets=True)
    mask = it.tokenizer.padding_mask(ids)
    generator.begin_stream_ex(ids, settings, input_mask=mask, position_offsets=offsets)
    guided = [generator.stream()[0] for _ in range(6)]
    pair = it.generator.generate(
        prompt=("CSS is a", "HTML"), max_new_tokens=6, gen_settings=settings, completion_only=True
    )
    assert pair.startswith("".join(guided))


def test_a_chat_that_keeps_its_context(it: SimpleNamespace) -> None:
    generator = ExLlamaV2DynamicGenerator(it.model, it.cache, it.tokenizer)
    context = None
    for question in ("What is CSS?", "And HTML?"):
        text = f"<|user|>\n{question}<|end|>\n<|assistant|>\n"
        ids = it.tokenizer.encode(text, encode_special_tokens=True)
        rows = ids.tolist()[0]
        context = rows if context is None else context + rows
        one = ExLlamaV2DynamicJob(
            input_ids=context,
            max_new_tokens=40,
            gen_settings=GREEDY,
            stop_conditions=[it.tokenizer.eos_token_id, it.tokenizer.single_id("<|end|>")],
        )
        generator.enqueue(one)
        while generator.num_remaining_jobs():
            for result in generator.iterate():
                if "token_ids" in result:
                    context += result["token_ids"].tolist()[0]
        assert one.full_completion


def test_the_tokenizer(it: SimpleNamespace) -> None:
    tokenizer = it.tokenizer
    ids = tokenizer.encode("CSS is", add_bos=True)
    assert ids.shape[0] == 1 and int(ids[0, 0]) == tokenizer.bos_token_id
    assert tokenizer.decode(ids)[0] == "CSS is" == tokenizer.decode(ids[0])
    assert tokenizer.decode(ids, decode_special_tokens=True)[0].startswith(tokenizer.bos_token)
    padded, offsets = tokenizer.encode(["CSS", "CSS is a language"], return_offsets=True)
    assert padded.shape[0] == 2 and int(offsets[0, 0]) < 0 == int(offsets[1, 0])
    assert int(padded[0, 0]) == tokenizer.pad_token_id
    assert tokenizer.padding_mask(padded)[0, 0] == float("-inf")
    assert tokenizer.single_id("<|end|>") == tokenizer.encode("<|end|>", encode_special_tokens=True)[0, 0]
    assert tokenizer.encode("<|end|>").shape[-1] > 1
    assert len(tokenizer.get_id_to_piece_list()) == tokenizer.get_vocab_size()
    assert tokenizer.num_tokens("CSS is") == ids.shape[-1] - 1
    assert tokenizer.single_token(5).shape == (1, 1)


def test_logits_of_a_forward_pass(it: SimpleNamespace) -> None:
    import numpy

    ids = encode(it, "CSS is a language")
    whole = it.model.forward(ids)
    assert whole.shape == (1, ids.shape[-1], 4096)
    cache = ExLlamaV2Cache(it.model, max_seq_len=2048, lazy=True)
    it.model.forward(ids[:, :-1], cache, preprocess_only=True)
    assert cache.current_seq_len == ids.shape[-1] - 1
    last = it.model.forward(ids[:, -1:], cache, last_id_only=True)
    assert last.shape == (1, 1, 4096)
    assert numpy.allclose(numpy.asarray(last)[0, 0], numpy.asarray(whole)[0, -1], atol=1e-4)
    cache.current_seq_len = 2
    again = it.model.forward(ids[:, 2:], cache)
    assert numpy.allclose(numpy.asarray(again), numpy.asarray(whole)[:, 2:], atol=1e-4)


def test_model_init(capsys: pytest.CaptureFixture[str]) -> None:
    import argparse

    parser = argparse.ArgumentParser()
    model_init.add_args(parser)
    args = parser.parse_args(["-m", "demo", "-l", "1024", "-gs", "auto"])
    model_init.check_args(args)
    model_init.print_options(args)
    assert "demo" in capsys.readouterr().out
    model, tokenizer = model_init.init(args, allow_auto_split=True)
    assert model.config.max_seq_len == 1024 and not model.loaded
    cache = ExLlamaV2Cache(model, lazy=True)
    model.load_autosplit(cache)
    generator = ExLlamaV2DynamicGenerator(model, cache, tokenizer)
    assert generator.generate(prompt="CSS is", max_new_tokens=2)
    model.unload()
    with pytest.raises(SystemExit):
        model_init.check_args(parser.parse_args(["-m", "/no/such/model"]))


def test_tensors_are_those_of_torch_where_it_is_installed(it: SimpleNamespace) -> None:
    torch = pytest.importorskip("torch")
    context = encode(it, "CSS is")
    assert isinstance(context, torch.Tensor) and context.dtype == torch.int64
    one = ExLlamaV2DynamicJob(
        input_ids=torch.cat((context, context), dim=-1),
        max_new_tokens=4,
        gen_settings=GREEDY,
        return_logits=True,
    )
    it.generator.enqueue(one)
    for result in drain(it):
        if "token_ids" in result:
            context = torch.cat((context, result["token_ids"]), dim=-1)
            assert result["logits"].argmax(dim=-1).equal(result["token_ids"])
    assert context.shape[-1] == 3 + 4
