"""How a case becomes a model of transformers, and its parameters tensors of a checkpoint.

Most families are a class of transformers with parameters under the names of a checkpoint. What
differs is here: experts that a checkpoint holds one by one, text models inside vision models, and
families that transformers does not have, which are built from one that computes the same.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterator

import torch
import transformers
from transformers import AutoConfig

# A tensor of a checkpoint: name, shape, and what sets the parameters from its values.
Tensor = tuple[str, tuple[int, ...], Callable[[torch.Tensor], None]]
# Turns a parameter's name and the parameter into tensors of a checkpoint.
Naming = Callable[[str, torch.Tensor], Iterator[Tensor]]


@dataclasses.dataclass
class Host:
    model: torch.nn.Module
    vocab: int
    context: int
    naming: Naming
    norm_centre: float = 1.0
    # Parameters that are no part of the text model.
    ignored: tuple[str, ...] = ()
    # Tensors made of several parameters.
    merged: Callable[[torch.nn.Module], Iterator[Tensor]] = lambda model: iter(())

    def tensors(self) -> Iterator[Tensor]:
        kept = [(n, b) for n, b in self.model.named_buffers() if n.endswith("e_score_correction_bias")]
        for name, parameter in [*self.model.named_parameters(), *kept]:
            if not any(part in name for part in self.ignored):
                yield from self.naming(name, parameter.data)
        yield from self.merged(self.model)


def as_named(name: str, parameter: torch.Tensor) -> Iterator[Tensor]:
    yield name, parameter.shape, parameter.copy_


def renamed(*steps: tuple[str, str]) -> Naming:
    """Parameters under other names; the steps are regular expressions."""

    def naming(name: str, parameter: torch.Tensor) -> Iterator[Tensor]:
        for pattern, replacement in steps:
            name = re.sub(pattern, replacement, name)
        yield name, parameter.shape, parameter.copy_

    return naming


def split_experts(gate="gate_proj", up="up_proj", down="down_proj", *steps) -> Naming:
    """Stacked experts as single ones, everything renamed by `steps` first."""
    rename = renamed(*steps)

    def naming(name: str, parameter: torch.Tensor) -> Iterator[Tensor]:
        ((name, *_),) = rename(name, parameter)
        stack, _, kind = name.rpartition(".")
        if not stack.endswith(".experts"):
            yield name, parameter.shape, parameter.copy_
            return
        for e in range(parameter.shape[0]):
            parts = [(down, parameter[e])]
            if kind == "gate_up_proj":
                inner = parameter.shape[1] // 2
                parts = [(gate, parameter[e, :inner]), (up, parameter[e, inner:])]
            for part, values in parts:
                yield f"{stack}.{e}.{part}.weight", values.shape, values.copy_

    return naming


def transposed_experts(name: str, parameter: torch.Tensor) -> Iterator[Tensor]:
    """Stacked experts as `[experts, in, out]`."""
    if not name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
        yield from as_named(name, parameter)
        return
    turned = parameter.transpose(1, 2)
    yield name, turned.shape, turned.copy_


MIXTRAL = split_experts("w1", "w3", "w2", (r"\.mlp\.", ".block_sparse_moe."))
GRANITE_MOE = renamed(
    (r"experts\.gate_up_proj$", "input_linear.weight"),
    (r"experts\.down_proj$", "output_linear.weight"),
    (r"moe\.router\.weight$", "moe.router.layer.weight"),
)
NAMINGS: dict[str, Naming] = {
    "mixtral": MIXTRAL,
    "minimax_m2": MIXTRAL,
    "olmoe": split_experts(),
    "dots1": split_experts(),
    "qwen3_moe": split_experts(),
    "qwen2_moe": split_experts(),
    "glm4_moe": split_experts(),
    "glm4_moe_lite": split_experts(),
    "solar_open": split_experts(),
    "deepseek_v2": split_experts(),
    "deepseek_v3": split_experts(),
    "hunyuan_v1_moe": split_experts(),
    "ernie4_5_moe": split_experts(
        "gate_proj", "up_proj", "down_proj", (r"\.gate\.moe_statics\.", ".moe_statics.")
    ),
    "granitemoe": GRANITE_MOE,
    "granitemoeshared": GRANITE_MOE,
    "granitemoehybrid": GRANITE_MOE,
}
# Models that load as another kind.
SAME_AS = {"kimi_k2": "deepseek_v3"}
# Families that add 1 to their norm weights.
CENTRED = ("gemma", "gemma2", "gemma3", "gemma3_text")


def make(config, kind="AutoModelForCausalLM") -> torch.nn.Module:
    loader = getattr(transformers, kind)
    options = {"dtype": torch.float32, "attn_implementation": "eager"}
    if hasattr(loader, "from_config"):
        return loader.from_config(config, **options)
    return loader._from_config(config, **options)


def host_of(case: str, config_json: dict) -> Host:
    architecture = config_json["architectures"][0]
    if architecture in BUILT:
        return BUILT[architecture](case, config_json)
    model_type = config_json["model_type"]
    config = AutoConfig.for_model(**config_json | {"model_type": SAME_AS.get(model_type, model_type)})
    model = make(config)
    assert type(model).__name__ == architecture, type(model).__name__
    return Host(
        model,
        config.vocab_size,
        config.max_position_embeddings,
        # A prefix that some checkpoints of GPT-2 lack.
        renamed((r"^transformer\.", "")) if "bare" in case else NAMINGS.get(config.model_type, as_named),
        0.0 if config.model_type in CENTRED else 1.0,
    )


def llama(config_json: dict, **changes) -> torch.nn.Module:
    """A Llama of the same sizes."""
    config = AutoConfig.for_model(**config_json | {"model_type": "llama"} | changes)
    return make(config)


def hosted(model: torch.nn.Module, naming: Naming = as_named, **options) -> Host:
    config = model.config
    return Host(model, config.vocab_size, config.max_position_embeddings, naming, **options)


def yi(case: str, config_json: dict) -> Host:
    steps = ((r"\.input_layernorm", ".ln1"), (r"\.post_attention_layernorm", ".ln2"))
    return hosted(llama(config_json), renamed(*(() if "usual-names" in case else steps)))


def orion(_case: str, config_json: dict) -> Host:
    model = llama(config_json)
    for parent in [model.model, *model.model.layers]:
        for name, child in list(parent.named_children()):
            if "norm" in name:
                width, eps = child.weight.shape[0], model.config.rms_norm_eps
                setattr(parent, name, torch.nn.LayerNorm(width, eps=eps))
    return hosted(model)


def index(_case: str, config_json: dict) -> Host:
    """A Llama whose head has rows of length one."""

    def naming(name: str, parameter: torch.Tensor) -> Iterator[Tensor]:
        def put(values: torch.Tensor) -> None:
            if name == "lm_head.weight" and config_json["norm_head"]:
                values = values / values.norm(dim=1, keepdim=True)
            parameter.copy_(values)

        yield name, parameter.shape, put

    return hosted(llama(config_json), naming)


def minicpm(_case: str, config_json: dict) -> Host:
    """Granite has the same multipliers under other names."""
    width, layers = config_json["hidden_size"], config_json["num_hidden_layers"]
    heads = config_json["num_attention_heads"]
    base = config_json.get("dim_model_base", width)
    changes = {
        "model_type": "granite",
        "embedding_multiplier": config_json.get("scale_emb", 1.0),
        "residual_multiplier": config_json.get("scale_depth", math.sqrt(layers)) / math.sqrt(layers),
        "logits_scaling": width / base,
        "attention_multiplier": (width // heads) ** -0.5,
    }
    return hosted(make(AutoConfig.for_model(**config_json | changes)))


def internlm2(_case: str, config_json: dict) -> Host:
    model = llama(config_json, attention_bias=config_json.get("bias", False))
    steps = (
        (r"^model\.embed_tokens", "model.tok_embeddings"),
        (r"^lm_head", "output"),
        (r"self_attn\.o_proj", "attention.wo"),
        (r"input_layernorm", "attention_norm"),
        (r"post_attention_layernorm", "ffn_norm"),
        (r"mlp\.gate_proj", "feed_forward.w1"),
        (r"mlp\.up_proj", "feed_forward.w3"),
        (r"mlp\.down_proj", "feed_forward.w2"),
    )
    config = model.config
    groups, dim = config.num_attention_heads // config.num_key_value_heads, config.head_dim

    def merged(model: torch.nn.Module) -> Iterator[Tensor]:
        for i, layer in enumerate(model.model.layers):
            attn = layer.self_attn
            for kind in ["weight", "bias"] if config.attention_bias else ["weight"]:
                parts = [getattr(p, kind).data for p in (attn.q_proj, attn.k_proj, attn.v_proj)]

                def put(values: torch.Tensor, parts=parts) -> None:
                    heads = values.view(-1, groups + 2, dim, *values.shape[1:])
                    for part, own in zip(parts, [heads[:, :groups], heads[:, groups], heads[:, -1]]):
                        part.copy_(own.reshape(part.shape))

                shape = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
                yield f"model.layers.{i}.attention.wqkv.{kind}", shape, put

    ignored = ("q_proj", "k_proj", "v_proj")
    return hosted(model, renamed(*steps), ignored=ignored, merged=merged)


def gemmoe(_case: str, config_json: dict) -> Host:
    """Gemma with the experts of Mixtral in place of its MLP."""
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    model = make(AutoConfig.for_model(**config_json | {"model_type": "gemma"}))
    experts = AutoConfig.for_model(
        **config_json | {"model_type": "mixtral", "hidden_act": "gelu_pytorch_tanh"}
    )
    experts._experts_implementation = "eager"
    for layer in model.model.layers:
        layer.mlp = MixtralSparseMoeBlock(experts)
    return hosted(model, MIXTRAL, norm_centre=0.0)


def text_of(case: str, config_json: dict) -> Host:
    """The text model of a vision model, which is made with the smallest of towers."""
    config = AutoConfig.for_model(**config_json)
    model = make(config, config_json["architectures"][0])
    text = config.text_config
    old = (
        (r"^model\.language_model\.", "language_model.model."),
        (r"^lm_head", "language_model.lm_head"),
    )
    if config.model_type in ("qwen2_vl", "qwen2_5_vl"):
        old = ((r"^model\.language_model\.", "model."),)
    naming = as_named if "new-names" in case else renamed(*old)
    if config.model_type in ("qwen3_vl", "qwen3_vl_moe"):
        naming = transposed_experts
    return Host(
        model,
        text.vocab_size,
        text.max_position_embeddings,
        naming,
        0.0 if text.model_type in CENTRED else 1.0,
        ignored=("visual.", "vision_tower.", "vision_model.", "multi_modal_projector."),
    )


def llama4(_case: str, config_json: dict) -> Host:
    return hosted(make(transformers.Llama4TextConfig(**config_json)))


BUILT = {
    "YiForCausalLM": yi,
    "OrionForCausalLM": orion,
    "IndexForCausalLM": index,
    "MiniCPMForCausalLM": minicpm,
    "InternLM2ForCausalLM": internlm2,
    "GemmoeForCausalLM": gemmoe,
    "LlavaForConditionalGeneration": text_of,
    "Mistral3ForConditionalGeneration": text_of,
    "Qwen2VLForConditionalGeneration": text_of,
    "Qwen2_5_VLForConditionalGeneration": text_of,
    "Qwen3VLForConditionalGeneration": text_of,
    "Qwen3VLMoeForConditionalGeneration": text_of,
    "Gemma3ForConditionalGeneration": text_of,
    "Llama4ForCausalLM": llama4,
}
