"""A program for ExLlamaV2 with its imports changed: batch, streaming jobs, banned strings, a schema."""

from pagella.compat.exllamav2 import (
    ExLlamaV2,
    ExLlamaV2Cache_Q8,
    ExLlamaV2Config,
    ExLlamaV2Tokenizer,
)
from pagella.compat.exllamav2.generator import (
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicJob,
    ExLlamaV2Sampler,
)
from pagella.compat.exllamav2.generator.filters import ExLlamaV2JsonFilter


def main() -> None:
    config = ExLlamaV2Config("demo")
    model = ExLlamaV2(config)
    cache = ExLlamaV2Cache_Q8(model, max_seq_len=2048, lazy=True)
    model.load_autosplit(cache)
    tokenizer = ExLlamaV2Tokenizer(config)
    generator = ExLlamaV2DynamicGenerator(model=model, cache=cache, tokenizer=tokenizer)
    greedy = ExLlamaV2Sampler.Settings.greedy()

    for text in generator.generate(
        prompt=["CSS is", "HTML is"], max_new_tokens=12, gen_settings=greedy, add_bos=True
    ):
        print(repr(text))

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    generator.enqueue(
        ExLlamaV2DynamicJob(
            input_ids=tokenizer.encode("An array is", add_bos=True),
            max_new_tokens=24,
            gen_settings=greedy,
            banned_strings=["random"],
            identifier="banned",
        )
    )
    generator.enqueue(
        ExLlamaV2DynamicJob(
            input_ids=tokenizer.encode("As JSON: ", add_bos=True),
            max_new_tokens=24,
            gen_settings=greedy,
            filters=[ExLlamaV2JsonFilter(model, tokenizer, schema)],
            identifier="schema",
        )
    )
    while generator.num_remaining_jobs():
        for result in generator.iterate():
            if result["eos"]:
                reason, text = result["eos_reason"], result["full_completion"]
                print(f"{result['identifier']}: {text!r} ({reason})")


if __name__ == "__main__":
    main()
