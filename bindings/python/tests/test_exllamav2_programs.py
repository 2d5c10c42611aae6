"""Programs that run the model themselves, bring their own filters or use the old generators, as
ExLlamaV2's users write them, with the imports changed."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

numpy = pytest.importorskip("numpy")

from pagella.compat.exllamav2 import (
    ExLlamaV2,
    ExLlamaV2Cache,
    ExLlamaV2Config,
    ExLlamaV2Tokenizer,
    tensors,
)
from pagella.compat.exllamav2.generator import (
    ExLlamaV2BaseGenerator,
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicJob,
    ExLlamaV2Sampler,
    ExLlamaV2StreamingGenerator,
)
from pagella.compat.exllamav2.generator.filters import ExLlamaV2Filter, ExLlamaV2PrefixFilter
from pagella.errors import RequestError

GREEDY = ExLlamaV2Sampler.Settings.greedy()


@pytest.fixture(scope="module")
def it() -> Iterator[SimpleNamespace]:
    config = ExLlamaV2Config("demo")
    config.max_seq_len = 1024
    model = ExLlamaV2(config)
    cache = ExLlamaV2Cache(model, max_seq_len=4096, lazy=True)
    model.load_autosplit(cache)
    tokenizer = ExLlamaV2Tokenizer(config)
    generator = ExLlamaV2DynamicGenerator(model=model, cache=cache, tokenizer=tokenizer)
    yield SimpleNamespace(**locals())
    model.unload()


def small(it: SimpleNamespace, **more: Any) -> ExLlamaV2Cache:
    return ExLlamaV2Cache(it.model, max_seq_len=256, lazy=True, **more)


def near(left: Any, right: Any) -> bool:
    return bool(numpy.allclose(numpy.asarray(left), numpy.asarray(right), atol=1e-4))


def joined(left: Any, right: Any) -> Any:
    return tensors.joined(left, right)


# Loops around the model.


def test_a_loop_of_forward_and_sample_writes_what_the_generator_writes(it: SimpleNamespace) -> None:
    wanted = it.generator.generate(
        prompt="CSS is", max_new_tokens=8, gen_settings=GREEDY, add_bos=True
    )
    cache = small(it)
    ids = it.tokenizer.encode("CSS is", add_bos=True)
    it.model.forward(ids[:, :-1], cache, preprocess_only=True)
    for _ in range(8):
        logits = it.model.forward(ids[:, -1:], cache).float().cpu()
        token, *_ = ExLlamaV2Sampler.sample(logits, GREEDY, ids, random.random(), it.tokenizer)
        ids = joined(ids, token)
    assert it.tokenizer.decode(ids)[0] == wanted


def test_a_sample_is_where_the_number_says(it: SimpleNamespace) -> None:
    ids = it.tokenizer.encode("CSS is")
    logits = it.model.forward(ids, last_id_only=True)
    settings = ExLlamaV2Sampler.Settings(
        token_repetition_penalty=1.0, top_k=0, top_p=0.0, temperature=1.0
    )

    def sample(number: float, **more: Any) -> tuple[Any, ...]:
        return ExLlamaV2Sampler.sample(logits, settings, ids, number, it.tokenizer, **more)

    row = numpy.asarray(logits, dtype=float)[0, 0]
    share = numpy.exp(row - row.max())
    share /= share.sum()
    order = numpy.argsort(-share, kind="stable")
    for number in (0.0, 0.2, 0.5, 0.9, 0.999):
        token, top, top_probs, prob, ended = sample(number, return_top_tokens=3)
        rank = int(numpy.searchsorted(numpy.cumsum(share[order]), number))
        assert int(token) == order[rank] and not ended
        assert abs(float(prob) - share[order[rank]]) < 1e-3
        assert numpy.asarray(top)[0, 0].tolist() == order[:3].tolist() and top_probs.shape == (1, 1, 3)
    best = int(order[0])
    assert int(sample(0.0, blocked_tokens=[best])[0]) == order[1]
    with pytest.raises(ValueError, match="random"):
        sample(1.5)
    settings.mirostat = True
    with pytest.raises(NotImplementedError, match="mirostat"):
        sample(0.5)
    two = numpy.concatenate([numpy.asarray(logits)] * 2)
    pair = numpy.concatenate([numpy.asarray(ids)] * 2)
    plain = ExLlamaV2Sampler.Settings.greedy()
    both, *_ = ExLlamaV2Sampler.sample(two, plain, pair, 0.5, it.tokenizer)
    assert numpy.asarray(both).tolist() == [[best], [best]]
    plain.cfg_scale = 1.5
    assert int(ExLlamaV2Sampler.sample(two, plain, pair, 0.5, it.tokenizer)[0]) == best


def test_rows_with_padding_are_those_without(it: SimpleNamespace) -> None:
    ids, offsets = it.tokenizer.encode(["CSS is", "The html element is a"], return_offsets=True)
    mask = it.tokenizer.padding_mask(ids)
    cache = small(it, batch_size=2)
    padded: dict[str, Any] = {"input_mask": mask, "position_offsets": offsets}
    last = it.model.forward(ids, cache, last_id_only=True, **padded)
    alone = [it.model.forward(it.tokenizer.encode(t), last_id_only=True) for t in ("CSS is", "The html element is a")]
    assert last.shape == (2, 1, 4096) and all(near(last[row], alone[row][0]) for row in (0, 1))
    best = numpy.asarray(last).argmax(-1)
    more = it.model.forward(best, cache, **padded)
    whole = numpy.concatenate([numpy.asarray(it.tokenizer.encode("CSS is")), best[:1]], 1)
    assert near(more[0], it.model.forward(whole, last_id_only=True)[0])
    assert near(it.model.forward(ids, last_id_only=True, input_mask=mask), last)
    hidden = numpy.asarray(mask).copy()
    hidden[1, 2] = float("-inf")
    with pytest.raises(NotImplementedError, match="on their left"):
        it.model.forward(ids, input_mask=hidden)
    with pytest.raises(AssertionError, match="2 sequences"):
        it.model.forward(ids, small(it))


def test_what_a_cache_holds_can_be_copied(it: SimpleNamespace) -> None:
    ids = it.tokenizer.encode("CSS is a", add_bos=True)
    one, two = small(it), small(it, batch_size=2)
    it.model.forward(ids, one, preprocess_only=True)
    n = one.current_seq_len
    one.copy_states(two, 0, n, 0, n, 0, 1, 0, 2)
    two.current_seq_len = n
    logits = it.model.forward(numpy.array([[5], [6]]), two)
    wanted = it.model.forward(numpy.concatenate([numpy.asarray(ids), [[6]]], 1), last_id_only=True)
    assert near(logits[1], wanted[0])
    assert one.clone().current_seq_len == n
    with pytest.raises(NotImplementedError, match="beginning"):
        one.copy_states(two, 1, 1, 0, 1, 0, 1, 0, 1)


def test_several_caches_are_one_row_each(it: SimpleNamespace) -> None:
    texts = ["CSS is", "The html element is a"]
    caches, rows = [small(it), small(it)], [it.tokenizer.encode(text) for text in texts]
    for cache, row in zip(caches, rows):
        it.model.forward(row[:, :-1], cache, preprocess_only=True)
    last = numpy.concatenate([numpy.asarray(row)[:, -1:] for row in rows])
    logits = it.model.forward(last, caches)
    assert [cache.current_seq_len for cache in caches] == [row.shape[-1] for row in rows]
    for row, ids in enumerate(rows):
        assert near(logits[row], it.model.forward(ids, last_id_only=True)[0])
    with pytest.raises(AssertionError, match="2 sequences were given and 1 caches"):
        it.model.forward(last, caches[:1])


def test_perplexity_is_that_of_the_engine(it: SimpleNamespace) -> None:
    ids = it.tokenizer.encode("CSS is a language. HTML is a language. " * 3)
    logits = numpy.asarray(it.model.forward(ids[:, :-1]), dtype=float)[0]
    logs = logits - logits.max(-1, keepdims=True)
    logs -= numpy.log(numpy.exp(logs).sum(-1, keepdims=True))
    found = logs[numpy.arange(len(logs)), numpy.asarray(ids)[0, 1:]]
    engine = it.generator.engine
    (stream,) = engine.submit(ids, {"prompt_logprobs": 0, "max_tokens": 1})
    told = [logprob for logprob, _ in stream.finish().prompt_logprobs]
    assert numpy.allclose(found, told, atol=1e-2)


def test_embeddings_can_be_looked_up(it: SimpleNamespace) -> None:
    ids = it.tokenizer.encode("CSS is")
    table = it.model.modules_dict["model.embed_tokens"]
    vectors = table.forward(ids)
    assert vectors.shape == (1, ids.shape[-1], 384)
    assert near(vectors[0, 0], table.get_weight()[int(ids[0, 0])])
    assert it.model.modules[0] is table and it.model.is_quant()
    with pytest.raises(NotImplementedError, match="model.forward"):
        it.model.modules[1].forward(vectors)


# Filters in Python.


class Digits(ExLlamaV2Filter):
    """So many digits."""

    def __init__(self, model: Any, tokenizer: Any, n: int) -> None:
        super().__init__(model, tokenizer)
        self.n, self.text = n, ""
        self.pieces = tokenizer.get_id_to_piece_list()

    def begin(self, prefix_str: str) -> None:
        self.text = prefix_str

    def feed(self, token: Any) -> None:
        self.text += self.pieces[int(token[0][0])]

    def next(self) -> tuple[Any, Any]:
        left = self.n - len(self.text)
        fits = {i for i, piece in enumerate(self.pieces) if piece.isdigit() and len(piece) <= left}
        return fits, {i for i in fits if len(self.pieces[i]) == left}


class MaskedDigits(Digits):
    """The same as a mask."""

    def can_mask_logits(self) -> bool:
        return True

    def prepare_logit_mask(self) -> bool:
        return True

    def mask_logits(self, logits: Any) -> Any:
        fits = self.next()[0] or {self.tokenizer.eos_token_id}
        for id in range(logits.shape[-1]):
            if id not in fits:
                logits[id] = float("-inf")
        return logits


def test_filters_written_in_python_hold(it: SimpleNamespace) -> None:
    digits = Digits(it.model, it.tokenizer, 4)
    told, last = it.generator.generate(
        prompt=["In ", "In "],
        max_new_tokens=12,
        filters=[[digits], None],
        completion_only=True,
        return_last_results=True,
    )
    assert told[0].isdigit() and len(told[0]) == 4 and last[0]["eos_reason"] == "end_filter"
    masked = it.generator.generate(
        prompt="In ", max_new_tokens=12, filters=[MaskedDigits(it.model, it.tokenizer, 3)], completion_only=True
    )
    assert masked.isdigit() and len(masked) == 3


@pytest.mark.parametrize("how", ["beside another", "with a ban", "with guesses"])
def test_filters_in_python_go_back_with_the_text(it: SimpleNamespace, how: str) -> None:
    filters: list[Any] = [Digits(it.model, it.tokenizer, 8)]
    generator, more = it.generator, {}
    if how == "beside another":
        filters.append(ExLlamaV2PrefixFilter(it.model, it.tokenizer, ["19", "20"]))
    elif how == "with a ban":
        more = {"banned_strings": ["1"]}
    else:
        generator = ExLlamaV2DynamicGenerator(it.model, it.cache, it.tokenizer, use_ngram_draft=True)
    text = generator.generate(
        prompt="12 12 12 12 12 ", max_new_tokens=12, filters=filters, completion_only=True, **more
    )
    assert text.isdigit() and len(text) == 8
    assert how != "beside another" or text[:2] in ("19", "20")
    assert how != "with a ban" or "1" not in text


def test_what_a_filter_raises_reaches_the_program(it: SimpleNamespace) -> None:
    class Broken(Digits):
        def next(self) -> tuple[Any, Any]:
            raise KeyError("lost")

    broken = Broken(it.model, it.tokenizer, 3)
    with pytest.raises(RequestError, match="KeyError: 'lost'") as raised:
        it.generator.generate(prompt="x", max_new_tokens=4, filters=[broken])
    assert isinstance(raised.value.__cause__, KeyError)
    with pytest.raises(RequestError, match="no next"):
        it.generator.generate(
            prompt="x", max_new_tokens=4, filters=[type("Half", (Digits,), {"next": ExLlamaV2Filter.next})(it.model, it.tokenizer, 1)]
        )
    with pytest.raises(TypeError, match="no filter"):
        it.generator.generate(prompt="x", max_new_tokens=4, filters=[object()])
    assert it.generator.generate(prompt="x", max_new_tokens=2)


def test_what_other_jobs_said_outlives_an_error(it: SimpleNamespace) -> None:
    class Broken(Digits):
        def next(self) -> tuple[Any, Any]:
            raise KeyError("lost")

    ids = it.tokenizer.encode("CSS is")
    filters = [Broken(it.model, it.tokenizer, 3)]
    good = ExLlamaV2DynamicJob(input_ids=ids, max_new_tokens=4, gen_settings=GREEDY)
    it.generator.enqueue([good, ExLlamaV2DynamicJob(input_ids=ids, max_new_tokens=4, filters=filters)])
    queue = it.generator.engine.stats()["queue"]
    while queue["active"] + queue["pending"]:
        queue = it.generator.engine.stats()["queue"]
    results, errors = [], 0
    while it.generator.num_remaining_jobs():
        try:
            results += it.generator.iterate()
        except RequestError:
            errors += 1
    assert errors == 1 and "".join(result.get("text", "") for result in results) == good.full_completion
    assert good.full_completion


# The old generators.


def told(generator: ExLlamaV2StreamingGenerator, n: int, bans: Any = None, **more: Any) -> str:
    generator.begin_stream_ex(generator.tokenizer.encode("CSS is", add_bos=True), GREEDY, **more)
    text = ""
    for _ in range(n):
        found = generator.stream_ex(ban_tokens=bans)
        text += found["chunk"]
        if found["eos"]:
            break
    return text


def test_tokens_are_banned_from_one_call_to_the_next(it: SimpleNamespace) -> None:
    generator = ExLlamaV2StreamingGenerator(it.model, it.cache, it.tokenizer)
    plain = told(generator, 12)
    ids = it.tokenizer.encode("CSS is" + plain, add_bos=True)[0].tolist()
    third = ids[len(it.tokenizer.encode("CSS is", add_bos=True)[0]) + 2]
    banned = told(generator, 12, bans=[third, None])
    assert banned != plain and third not in it.tokenizer.encode(banned)[0].tolist()
    generator.begin_stream_ex(it.tokenizer.encode("CSS is", add_bos=True), GREEDY)
    start = "".join(generator.stream_ex()["chunk"] for _ in range(2))
    other = generator.stream_ex(ban_tokens=[third])["chunk"]
    rest = "".join(generator.stream_ex()["chunk"] for _ in range(4))
    assert plain.startswith(start) and not plain.startswith(start + other) and rest


def test_several_generators_share_a_model(it: SimpleNamespace) -> None:
    config = ExLlamaV2Config("demo-draft")
    config.max_seq_len = 1024
    draft = ExLlamaV2(config)
    draft_cache = ExLlamaV2Cache(draft, max_seq_len=4096, lazy=True)
    draft.load_autosplit(draft_cache)
    make = ExLlamaV2StreamingGenerator
    plain = make(it.model, it.cache, it.tokenizer)
    first = told(plain, 24)
    start = told(plain, 3)
    # The model is opened again; the text that rests goes on all the same.
    drafted = make(it.model, it.cache, it.tokenizer, draft, draft_cache, num_speculative_tokens=5)
    start += "".join(plain.stream_ex()["chunk"] for _ in range(5))
    assert len(start) > 8 and first.startswith(start)
    repeated = make(it.model, it.cache, it.tokenizer)
    repeated.speculative_ngram = True
    repeated.ngram_preload(it.tokenizer.encode(first))
    for generator in (drafted, repeated, plain):
        generator.reset_sd_stats()
        text = told(generator, 24)
        assert text[: len(first)] == first[: len(text)]
    efficiency, accuracy, tokens, guesses, right = drafted.get_sd_stats()
    assert 0 < efficiency <= 1 and 0 < accuracy <= 1 and tokens >= 24 and guesses >= right > 0
    job = ExLlamaV2DynamicJob(input_ids=[5, 6], max_new_tokens=500, gen_settings=GREEDY)
    # It rests while nobody reads, so it is there as long as it takes to ask.
    stream = it.generator.submit(job, backpressure=1)
    next(stream)
    with pytest.raises(AssertionError, match="jobs of another generator"):
        ExLlamaV2DynamicGenerator(it.model, it.cache, it.tokenizer, max_batch_size=3)
    stream.close()


def test_a_pair_of_prompts_is_guided_by_the_base_generator(it: SimpleNamespace) -> None:
    settings = ExLlamaV2Sampler.Settings.greedy()
    settings.cfg_scale = 2.0
    base = ExLlamaV2BaseGenerator(it.model, ExLlamaV2Cache(it.model, 2, 256, lazy=True), it.tokenizer)
    first, second = base.generate_simple(["CSS is", "HTML is"], settings, 6)
    wanted = it.generator.generate(("CSS is", "HTML is"), 6, gen_settings=settings)
    assert first == wanted and second == "HTML is" + wanted.removeprefix("CSS is")


def test_old_returns_have_their_places(it: SimpleNamespace) -> None:
    generator = ExLlamaV2StreamingGenerator(it.model, it.cache, it.tokenizer)
    ids = it.tokenizer.encode("CSS is")
    generator.begin_stream(ids, GREEDY, True)
    assert len(generator.stream()) == 3
    generator.begin_stream_ex(ids, GREEDY, return_probabilities=True, return_logits=True)
    chunk, eos, tokens, probs, logits = generator.stream()
    assert probs.shape == tokens.shape == (1, 1) and logits.shape == (1, 1, 4096)
    digits = Digits(it.model, it.tokenizer, 3)
    text = generator.generate_simple("In ", GREEDY, 8, filters=[digits], completion_only=True)
    assert text.isdigit() and len(text) == 3


# Names and loading.


def test_a_job_knows_its_ids(it: SimpleNamespace) -> None:
    ids = it.tokenizer.encode("CSS is")
    job = ExLlamaV2DynamicJob(
        input_ids=ids, max_new_tokens=5, gen_settings=GREEDY, stop_conditions=[None, numpy.int64(9), "zzz"]
    )
    it.generator.enqueue(job)
    results = []
    while it.generator.num_remaining_jobs():
        results += it.generator.iterate()
    assert repr(results[-1]["token_ids"])
    sequence = job.sequences[0]
    assert it.tokenizer.decode(sequence.input_ids.torch())[0] == "CSS is"
    assert it.tokenizer.decode(sequence.sequence_ids.torch())[0] == "CSS is" + job.full_completion
    assert len(sequence.sequence_ids) == ids.shape[-1] + 5 and job.stop_tokens == {9}


def test_loading_tells_a_generator_of_the_program() -> None:
    model = ExLlamaV2(ExLlamaV2Config("demo"))
    cache = ExLlamaV2Cache(model, max_seq_len=1024, lazy=True)
    last = []
    for value in model.load_autosplit_gen(
        cache, reserve_vram=[1 << 20], last_id_only=True, callback_gen=lambda done, all: iter([(done, all)])
    ):
        if value:
            last.append(value)
    assert last[-1][0] == last[-1][1] > 1
    wrong = ExLlamaV2Config("demo")
    wrong.load_in_q4 = True
    failing = ExLlamaV2(wrong)
    with pytest.raises(NotImplementedError, match="EXL2"):
        list(failing.load_autosplit_gen(ExLlamaV2Cache(failing, lazy=True)))
    model.unload()


def test_tables_of_the_tokenizer(it: SimpleNamespace) -> None:
    tokenizer = it.tokenizer
    the = tokenizer.single_id(" the")
    prefixes = tokenizer.get_prefix_id_to_ids_dict()
    assert the in prefixes[the] and set(prefixes[the]) == set(tokenizer.get_prefix_to_ids_dict()[" the"])
    assert len(tokenizer.tokenizer_model.vocab) == tokenizer.tokenizer.vocab_size() == tokenizer.actual_vocab_size
    assert tokenizer.extended_piece_to_id["<|end|>"] == tokenizer.single_id("<|end|>")
    assert tokenizer.id_to_piece[the] == " the" and tokenizer.piece_to_id[" the"] == the
    place = tokenizer.get_char_trie()
    for character in " the":
        place = place.children[character]
    assert the in place.leaf and the in tokenizer.get_char_trie_ci().children[" "].children["t"].children["h"].children["e"].leaf
    rows = [tokenizer.encode("CSS is"), tokenizer.encode("HTML")]
    assert tokenizer.decode(rows) == [["CSS is"], ["HTML"]]
    assert tokenizer.decode([row[0] for row in rows]) == ["CSS is", "HTML"]
    assert tokenizer.decode(the) == tokenizer.decode(rows[0][0][0] * 0 + the) == " the"
    with pytest.raises(TypeError, match="is a text"):
        tokenizer.decode("CSS")
    assert it.config.arch.lm.requires_bos in (True, False)
    assert it.config.num_key_value_groups * it.config.num_key_value_heads == it.config.num_attention_heads


def test_other_packages_may_import_exllamav2() -> None:
    code = (
        "from pagella.compat.exllamav2 import install, ExLlamaV2\ninstall()\n"
        "import exllamav2, exllamav2.generator.sampler\n"
        "from exllamav2.generator.base import ExLlamaV2Filter\n"
        "from exllamav2.generator.filters import ExLlamaV2PrefixFilter\n"
        "from exllamav2.attn import ExLlamaV2Attention, has_flash_attn\n"
        "from exllamav2.tokenizer.trie import Trie\n"
        "from exllamav2.vlm.vision_tower import ExLlamaV2VisionTower\n"
        "try:\n    from exllamav2.ext import exllamav2_ext\n"
        "except ImportError as problem:\n    assert 'the engine has its own' in str(problem)\n"
        "from exllamav2.generator.dynamic_embeddings import ExLlamaV2MMEmbedding\n"
        "assert exllamav2.ExLlamaV2 is ExLlamaV2 and exllamav2.__version__\nprint('done')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr


def test_tensors_without_torch_do_what_programs_ask(it: SimpleNamespace) -> None:
    if tensors.is_torch():
        pytest.skip("torch is installed")
    logits = it.model.forward(it.tokenizer.encode("CSS is"), last_id_only=True)
    plain = numpy.asarray(logits)
    assert int(logits.argmax(dim=-1)) == plain.argmax()
    values, where = logits[0, 0].topk(3)
    assert values[0] == plain.max() and where.tolist() == numpy.argsort(-plain[0, 0])[:3].tolist()
    assert numpy.isclose(float(logits.softmax(dim=-1).sum()), 1, atol=1e-4)
    best, at = logits.max(dim=-1, keepdim=True)
    assert best.shape == at.shape == (1, 1, 1) and at.item() == plain.argmax()
    assert near(numpy.exp(logits.log_softmax(-1).gather(-1, at)), logits.softmax(-1).max())
    ids = it.tokenizer.encode("CSS is")
    assert ids.repeat(2, 1).tolist() == ids.expand(2, -1).tolist() == ids.tolist() * 2
    assert ids.view(-1).tolist() == ids.tolist()[0] and ids.view(numpy.ndarray).shape == ids.shape
    assert ids.int().dtype == "int32" and logits.half().dtype == "float16" and ids.device == "cpu"


def test_a_setting_that_does_not_exist_is_said_to_change_nothing() -> None:
    settings = ExLlamaV2Sampler.Settings()
    with pytest.warns(UserWarning, match="repetition_penalty"):
        settings.repetition_penalty = 1.2  # type: ignore[attr-defined]
