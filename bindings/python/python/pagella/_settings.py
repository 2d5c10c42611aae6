"""Settings of a request, for type checkers. Written by tests/stub.py from the engine's table: change that.

Every spelling of a setting is a key; `pagella.parameters()` says what each does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict, Union

from pagella._pagella import Adapter


class HasIds(Protocol):
    """An array or a tensor of token ids."""

    def tolist(self) -> Any: ...


#: Token ids, in whatever holds them.
Ids = Union[Sequence[int], HasIds]


class Settings(TypedDict, total=False):
    """What a request may say besides its prompt."""

    # Below 1 prefers likely tokens, above 1 unlikely ones; below 0.01 always takes the most likely.
    temperature: float
    temp: float
    # Keeps the most likely tokens that together have this probability; 0 or 1 is off.
    top_p: float
    # Keeps tokens with at least this share of the highest probability; 0 or 1 is off.
    min_p: float
    # Keeps this many of the most likely tokens; 0 or -1 is off.
    top_k: int
    # Lowers tokens that occurred before; 1 is off.
    repetition_penalty: float
    rep_pen: float
    repeat_penalty: float
    token_repetition_penalty: float
    # Keeps tokens with at least this factor times the square of the highest probability; 0 is off.
    top_a: float
    # Tail-free: cuts where the curve of probabilities becomes flat; 0 or 1 is off.
    tfs: float
    tfs_z: float
    # Keeps tokens whose surprise is closest to the average until this mass; 0 or 1 is off.
    typical: float
    typical_p: float
    typ_p: float
    # Keeps tokens with at least this probability; 0 is off.
    epsilon_cutoff: float
    # Like epsilon_cutoff, lower where the entropy is high; 0 is off.
    eta_cutoff: float
    # Keeps tokens within this many standard deviations of the highest logit; 0 or less is off.
    top_n_sigma: float
    nsigma: float
    # How many tokens every cut leaves at least; greedy choices take one all the same.
    min_keep: int
    # Shifts the draw toward likely (below 0) or unlikely (above 0) tokens; 0 is off.
    skew: float
    # Applies the temperature after all cuts instead of before.
    temperature_last: bool
    # Dynamic temperature, on where max_temp is above min_temp: the temperature at no entropy.
    min_temp: float
    dynatemp_low: float
    dynatemp_min: float
    # Dynamic temperature: the temperature at full entropy.
    max_temp: float
    dynatemp_high: float
    dynatemp_max: float
    # Dynamic temperature: how the share of entropy bends between the two.
    temp_exponent: float
    dynatemp_exponent: float
    # Quadratic smoothing: bends logits around the highest one; 0 is off.
    smoothing_factor: float
    # Cubic share of the smoothing, from 1 (none) to 3 (only that).
    smoothing_curve: float
    # Lowers tokens for every time they occurred; 0 is off.
    frequency_penalty: float
    freq_pen: float
    token_frequency_penalty: float
    # Lowers tokens that occurred at all; 0 is off.
    presence_penalty: float
    pres_pen: float
    presence_pen: float
    token_presence_penalty: float
    # How many of the newest tokens the three penalties look at; -1 is all.
    penalty_range: int
    repetition_range: int
    repetition_penalty_range: int
    token_repetition_range: int
    # Over how many older tokens the penalties fade to nothing; 0 is a hard edge.
    penalty_decay: int
    repetition_decay: int
    rep_pen_decay: int
    token_repetition_decay: int
    # Which part of the sequence the three penalties look at.
    penalty_scope: Literal['all', 'output', 'prompt']
    # No group of this many tokens occurs twice; 0 is off.
    no_repeat_ngram: int
    no_repeat_ngram_size: int
    # Strength of DRY, which lowers tokens that would extend a repetition; 0 is off.
    dry_multiplier: float
    # Factor of DRY for every further token of the repetition; 0 is the default.
    dry_base: float
    # Repetitions shorter than this are free; 0 is the default.
    dry_allowed_length: int
    # How many of the newest tokens DRY looks at; 0 or -1 is all.
    dry_range: int
    # Longer repetitions count as this long; 0 is the default.
    dry_max_ngram: int
    # Multiplies the penalty of DRY by the number of occurrences.
    dry_count_scaling: bool
    # How often the likely choices are excluded; 0 is off.
    xtc_probability: float
    # From which probability a choice counts as likely.
    xtc_threshold: float
    # Whether XTC takes the exact mixture of both outcomes or a second draw decides.
    xtc_mode: Literal['mixture', 'draw']
    # Keeps the surprise near mirostat_tau by a cut that adapts (version 2).
    mirostat: bool | int
    mirostat_mode: bool | int
    # Wanted surprise in bits; 0 is the default.
    mirostat_tau: float
    # How fast mirostat adapts; 0 is the default.
    mirostat_eta: float
    # Prefers tokens near this probability, which adapts to what was chosen; 1 or below 0 is off.
    adaptive_target: float
    # How slowly adaptive_target forgets; above 0.99 counts as 0.99.
    adaptive_decay: float
    # Guidance against the negative prompt: the weight of the prompt; 1 is off.
    cfg_scale: float
    guidance_scale: float
    # What a logit that is not a number means: the job fails, or the token is masked.
    nan_policy: Literal['error', 'mask']
    # Where draws come from: a function of seed and position, or the Mersenne Twister.
    rng: Literal['philox', 'mt19937']
    # Tokens that XTC never excludes; without a list those with a newline and special ones.
    xtc_ignore: Ids
    xtc_ignore_tokens: Ids
    # Texts or ids that end a phrase for DRY; without a list punctuation, brackets, newline and tab.
    dry_breakers: str | Sequence[str | int]
    dry_sequence_breakers: str | Sequence[str | int]
    # Adds to the logits of tokens, by id; "-inf" denies, "inf" decides.
    logit_bias: Mapping[int, float]
    token_bias: Mapping[int, float]
    # The only tokens that may be chosen, by id.
    allow: Ids
    allowed_tokens: Ids
    allowed_token_ids: Ids
    # Tokens that are never chosen, by id.
    deny: Ids
    banned_tokens: Ids
    custom_token_bans: Ids
    # The steps and their order, by name; "exl2" is the usual one.
    sampler_order: str | Sequence[str]
    samplers: str | Sequence[str]
    sampler_priority: str | Sequence[str]
    # Same seed, prompt and settings: same text; -1 is random.
    seed: int
    sampler_seed: int
    # penalty_range in Kobold's meaning: 0 is all.
    rep_pen_range: int
    # penalty_range in llama.cpp's meaning: 0 is no penalty at all.
    repeat_last_n: int
    # dry_range in llama.cpp's meaning: 0 is no DRY at all.
    dry_penalty_last_n: int
    # min_temp and max_temp at this distance from the temperature.
    dynatemp_range: float
    # false: min_temp and max_temp do not count.
    dynamic_temperature: bool
    # false: always the most likely token.
    do_sample: bool
    # Most tokens of an answer; -1 is as many as fit.
    max_tokens: int
    max_completion_tokens: int
    max_length: int
    max_new_tokens: int
    n_predict: int
    num_predict: int
    max_output_tokens: int
    # The model cannot end its answer before this many tokens.
    min_tokens: int
    min_length: int
    min_new_tokens: int
    # The model cannot end its answer by itself.
    ban_eos_token: bool
    ignore_eos: bool
    # Ends the answer when its last tokens repeat; 0 is off.
    loop_detect_window: int
    # Texts or token ids that end an answer.
    stop: str | Sequence[str | int]
    stop_sequence: str | Sequence[str | int]
    stop_sequences: str | Sequence[str | int]
    stopping_strings: str | Sequence[str | int]
    # Token ids that end an answer.
    stop_token_ids: Ids
    # Texts that never occur in an answer; the model takes another way.
    banned_strings: str | Sequence[str]
    # Lets the first token complete a word that the prompt broke off.
    token_healing: bool
    # What guidance steers away from; with cfg_scale.
    negative_prompt: str
    # Tokens that are guessed and checked at once, with the same text; 0 is none, -1 is as the server was told.
    draft_tokens: int
    num_draft_tokens: int
    # The answer is JSON of this schema.
    json_schema: Mapping[str, Any] | str
    guided_json: Mapping[str, Any] | str
    # The answer matches this regular expression.
    regex_pattern: str
    guided_regex: str
    # The answer follows this grammar, GBNF or Lark.
    grammar_string: str
    grammar: str
    guided_grammar: str
    # Always the most likely token.
    greedy: bool
    # How many answers to give, with seeds counting up.
    n: int
    # False: sampling starts from neutral settings, not the model's own.
    recommended: bool
    # False: the model's own end tokens do not end the answer.
    default_stops: bool
    # Whether a text begins with the begin token; None: as the model wants it.
    add_bos: bool | None
    # When prompt and answer do not fit: fewer new tokens, an error, or the beginning of the prompt is left out.
    length_policy: Literal['clamp', 'error', 'truncate']
    # Control tokens appear in the text.
    show_special_tokens: bool
    # The answer is a JSON object.
    json_object: bool
    # The answer matches this regular expression.
    regex: str
    # The answer is one of these texts.
    choice: Sequence[str]
    # The answer begins with one of these texts.
    prefix: str | Sequence[str]
    # A function of the ids so far: which may come next (None: all), and which of these end the answer.
    allowed_next: Callable[[list[int]], tuple[Iterable[int] | None, Iterable[int] | None]]
    # The answer ends as soon as its constraint allows it.
    prefer_end: bool
    # Report the model's own log-probabilities, with so many alternatives.
    logprobs: int
    # The same of the prompt, which is computed anew.
    prompt_logprobs: int
    # Report the final probability of every token.
    probabilities: bool
    # Report so many of the most likely final candidates.
    top_tokens: int
    # Report the model's logits of every token.
    return_logits: bool
    # As negative_prompt, as token ids.
    negative_ids: Ids
    # Adapters with their scales, in place of the engine's own.
    adapters: Sequence[tuple[Adapter, float]]
    # What the answer is expected to be: guesses are looked for there.
    prediction: Ids
    # So many ids of the prompt's end are written again.
    healing_ids: int
    # Higher starts earlier.
    priority: int
    # How often later jobs may start before this one.
    max_skips: int | None
    # Seconds after which the answer ends with what is there.
    timeout: float
    # Cached pages are shared with prompts of the same salt only.
    cache_salt: str
    # A name that every record carries.
    identifier: str
    # How often the answer may go back for a banned string.
    rewinds_max: int
    # Ends the answer when it repeats the same ids so often.
    loop_repeats: int
    # The model rests while so many records wait to be read.
    backpressure: int
