#!/usr/bin/env python3
"""Makes the tokenizer fixtures and their golden ids.

Trains tiny vocabularies on corpus.txt and asks Hugging Face Tokenizers and SentencePiece what they
make of a list of texts. Needs the packages tokenizers and sentencepiece. Run from this directory:

    python generate.py
"""

import os
import io
import json
import pathlib

import sentencepiece as spm
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

HERE = pathlib.Path(__file__).parent
CORPUS = (HERE / "corpus.txt").read_text().splitlines()
GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TEXTS = [
    "",
    "a",
    " ",
    "  ",
    "\n",
    "\n\n\n",
    " leading space",
    "  two leading spaces",
    "trailing space ",
    "Hello, world!",
    "The little page was blank until the first word fell on it.",
    "don't can't WON'T I'll we've",
    "tabs\tand\r\nline ends\r and   runs    of     spaces" + " " * 40 + "end",
    "1234567890 3.14 1,000,000",
    "naïve café résumé — “quotes” … ‹›",
    "cafe\u0301 A\u030a \u1e9b\u0323 ﬁ ① ㎏ ｆｕｌｌ",
    "Über Ärger straße ß",
    "Маленькая страница",
    "小さな頁は物語になった。",
    "这一小页成了一个故事。",
    "작은 페이지",
    "كانت الصفحة الصغيرة",
    "छोटा पन्ना",
    "🙂 👩‍👩‍👧 🇨🇭 👍🏽 \U0001f9d1\u200d\U0001f680",
    "\u0000\u0001\u0007\u001b[0m\u007f\u0085\u00a0\u200b\ufeff",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0010fffd",
    "def f(x):\n    return x ** 2  # square\n\n\nprint(f(3))\n",
    "<html>&amp;</html> {\"key\": [1, 2, null]}",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "<0x41><0x0A> <unk>",
    "The " * 50,
]

# Texts with control tokens at every kind of place; {a} and {b} are the fixture's own tokens.
MARKED = [
    "{a}",
    "{a}{b}",
    "{a} Hello{b}",
    "{a}Hello",
    "Hello{a}",
    "Hello {a} world",
    "Hello  {a}  world  {b}  ",
    "x{a}y{b}z{a}",
    "{a}\n{b}\n\n{a}",
    " {a}",
    "  {a} two",
    "{a}{a}{a}",
    "almost {a}".replace("{a}", "{a}")[:-1],
    "é{a}é {b}小",
]


def dump(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=0, separators=(",", ":")) + "\n")


def golden(name, tokenizer, pairs):
    """Asks Hugging Face Tokenizers; `pairs` are the control tokens to put into MARKED."""
    cases = []
    marked = [m.replace("{a}", a).replace("{b}", b) for a, b in pairs for m in MARKED]
    for text in TEXTS + marked:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append({
            "text": text,
            "ids": ids,
            "shown": tokenizer.decode(ids, skip_special_tokens=False),
            "hidden": tokenizer.decode(ids, skip_special_tokens=True),
        })
    dump(HERE / name / "golden.json", cases)


def save(name, tokenizer):
    (HERE / name).mkdir(parents=True, exist_ok=True)
    value = json.loads(tokenizer.to_str())
    (HERE / name / "tokenizer.json").write_text(
        json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
    )


def byte_level(name, ignore_merges, normalizer):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(GPT4), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=800,
        special_tokens=["<|start|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([
        AddedToken("<|l|>", lstrip=True, special=True),
        AddedToken("<|r|>", rstrip=True, special=True),
        AddedToken("<|lr|>", lstrip=True, rstrip=True, special=True),
        AddedToken("<|word|>", single_word=True, special=True),
        AddedToken("<|star", special=True),
        AddedToken("<|norm|>", normalized=True, special=True),
    ])
    tokenizer.add_tokens([
        AddedToken("<think>", normalized=False),
        AddedToken("page", single_word=True, normalized=True),
    ])
    save(name, tokenizer)
    golden(name, tokenizer, [
        ("<|start|>", "<|end|>"), ("<|l|>", "<|r|>"), ("<|lr|>", "<|word|>"),
        ("<|star", "<|norm|>"), ("<think>", "page"),
    ])
    return tokenizer


def train_sentencepiece(name, **settings):
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, byte_fallback=True,
        character_coverage=0.98, pad_id=-1, minloglevel=2, num_threads=1, **settings,
    )
    (HERE / name).mkdir(parents=True, exist_ok=True)
    (HERE / name / "tokenizer.model").write_bytes(model.getvalue())
    processor = spm.SentencePieceProcessor(model_proto=model.getvalue())
    texts = TEXTS + [m.replace("{a}", "<s>").replace("{b}", "</s>") for m in MARKED]
    dump(HERE / name / "golden.json", [
        {"text": t, "ids": processor.encode(t), "hidden": processor.decode(processor.encode(t))}
        for t in texts
    ])
    return processor


def merges_of(processor):
    """Merges of a SentencePiece BPE vocabulary, best first."""
    ids = {processor.id_to_piece(i): i for i in range(processor.get_piece_size())
           if not (processor.is_control(i) or processor.is_unknown(i) or processor.is_byte(i))}
    found = []
    for piece, i in ids.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ids and right in ids:
                found.append((-processor.get_score(i), ids[left], ids[right], left, right))
    return [(left, right) for _, _, _, left, right in sorted(found)]


def llama_like(name, processor, legacy):
    """The same vocabulary as a tokenizer.json, in the two ways Hugging Face has converted it."""
    vocab = {processor.id_to_piece(i): i for i in range(processor.get_piece_size())}
    tokenizer = Tokenizer(models.BPE(
        vocab, merges_of(processor), unk_token="<unk>", fuse_unk=True, byte_fallback=True
    ))
    if legacy:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ])
    tokenizer.add_special_tokens([
        AddedToken(t, normalized=legacy and t == "</s>", special=True)
        for t in ["<unk>", "<s>", "</s>"]
    ])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", vocab["<s>"])]
    )
    save(name, tokenizer)
    golden(name, tokenizer, [("<s>", "</s>"), ("</s>", "<unk>")])


def unigram_json(name, processor, charsmap):
    vocab = [(processor.id_to_piece(i), processor.get_score(i))
             for i in range(processor.get_piece_size())]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=processor.unk_id(), byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), " "),
    ])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace("▁", prepend_scheme="always")
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True)
                                  for t in ["<unk>", "<s>", "</s>"]])
    save(name, tokenizer)
    golden(name, tokenizer, [("<s>", "</s>")])


def charsmap_of(path):
    """normalizer_spec (field 3), precompiled_charsmap (field 2) of a SentencePiece file."""
    def fields(data):
        pos = 0
        def varint():
            nonlocal pos
            value = shift = 0
            while True:
                byte = data[pos]
                pos += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while pos < len(data):
            key = varint()
            if key & 7 == 0:
                varint()
            elif key & 7 == 5:
                pos += 4
            else:
                length = varint()
                yield key >> 3, data[pos:pos + length]
                pos += length
    spec = dict(fields(path.read_bytes()))[3]
    return dict(fields(spec))[2]


def main():
    byte_level("byte-level", False, None)
    byte_level("byte-level-nfc", True, normalizers.NFC())
    bpe = train_sentencepiece(
        "spm-bpe", model_type="bpe", vocab_size=700, normalization_rule_name="identity",
        remove_extra_whitespaces=False, split_digits=True, user_defined_symbols=["<tool>"],
        allow_whitespace_only_pieces=True,
    )
    llama_like("llama-legacy", bpe, True)
    llama_like("llama-first", bpe, False)
    train_sentencepiece(
        "spm-unigram", model_type="unigram", vocab_size=600, normalization_rule_name="identity",
        remove_extra_whitespaces=False,
    )
    # The full normalization table has 240 kB; a few rules show the same.
    rules = HERE / "rules.tsv"
    pairs = [("ﬁ", "fi"), ("①", "1"), ("㎏", "kg"), ("ｆ", "f"), ("ｕ", "u"), ("ｌ", "l"),
             ("e\u0301", "\u00e9"), ("\t", " "), ("\u00a0", " ")]
    rules.write_text("".join(
        " ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n"
        for a, b in pairs
    ))
    nfkc = train_sentencepiece(
        "spm-unigram-rules", model_type="unigram", vocab_size=600,
        normalization_rule_tsv=os.path.relpath(rules),  # the file keeps it: no path of one machine
    )
    rules.unlink()
    unigram_json("unigram-rules", nfkc, charsmap_of(HERE / "spm-unigram-rules" / "tokenizer.model"))
    demo = Tokenizer.from_file(str(HERE / "../../models/demo/tokenizer.json"))
    golden("demo", demo, [("<|user|>", "<|end|>"), ("<|endoftext|>", "<|assistant|>")])


main()
