"""`ExLlamaV2Config`: what a model directory says, and what a program wants different."""

from __future__ import annotations

import json
import os
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pagella import _pagella
from pagella._engine import _located

__all__ = ["ExLlamaV2Config"]

#: Fields of config.json that programs read, with what they are when it does not say.
_FIELDS: dict[str, tuple[str, Any]] = {
    "hidden_size": ("hidden_size", 0),
    "intermediate_size": ("intermediate_size", 0),
    "num_hidden_layers": ("num_hidden_layers", 0),
    "num_attention_heads": ("num_attention_heads", 0),
    "vocab_size": ("vocab_size", 0),
    "norm_eps": ("rms_norm_eps", 1e-5),
    "rotary_embedding_base": ("rope_theta", 10000.0),
    "num_experts_per_token": ("num_experts_per_tok", None),
}

_LOW_MEMORY_TOKENS = 1024


#: Longest header of a file of tensors.
_HEADER_BYTES_MAX = 100_000_000


def _header(file: Path) -> tuple[dict[str, Any], int]:
    """What a file of safetensors says of its tensors, and where their numbers begin."""
    with open(file, "rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if length > _HEADER_BYTES_MAX:
            raise AssertionError(f"{file} is no file of safetensors")
        header: dict[str, Any] = json.loads(opened.read(length))
    header.pop("__metadata__", None)
    return header, 8 + length


class ExLlamaV2Config:
    """A model's configuration."""

    def __init__(self, model_dir: str | os.PathLike[str] | None = None) -> None:
        self.model_dir: str | None = None
        self.max_seq_len = 2048
        self.max_input_len = 2048
        self.max_attention_size = 2048 * 2048
        self.max_output_len: int | None = None
        self.max_batch_size = 1
        self.max_dq_size = 512 * 1024**2
        self.scale_pos_emb = 1.0
        self.scale_alpha_value = 1.0
        self.alt_rope_method: str | None = None
        self.yarn_rope_factor = 1.0
        self.yarn_rope_original_max_position_embeddings = 0
        # Which kernels run is the engine's business: results do not depend on these.
        self.no_flash_attn = False
        self.no_xformers = False
        self.no_sdpa = False
        self.no_graphs = False
        self.fasttensors = False
        self.load_in_q4 = False
        self.low_mem = False
        self.generation_config: dict[str, Any] | None = None
        if model_dir is not None:
            self.model_dir = os.fspath(model_dir)
            self.prepare()

    def prepare(self, no_tensors: bool = False) -> None:
        """Reads the directory that `model_dir` names."""
        if self.model_dir is None:
            raise AssertionError("No model_dir specified in ExLlamaV2Config")
        directory = Path(_located(self.model_dir))
        if not directory.exists():
            raise AssertionError(f"Can't find {directory}")
        config_file = directory / "config.json"
        if not config_file.exists():
            raise AssertionError(f"Can't find {config_file}")
        if not no_tensors and not any(directory.glob("*.safetensors")):
            raise AssertionError(f"No .safetensors files found in {directory}")
        self.model_dir = str(directory)
        config = json.loads(config_file.read_text(encoding="utf-8"))
        text = config.get("text_config") or config
        for name, (key, default) in _FIELDS.items():
            setattr(self, name, text.get(key, config.get(key, default)))
        counts = (text.get(key) for key in ("num_local_experts", "num_experts", "n_routed_experts"))
        self.num_experts = next((count for count in counts if count), None)
        self._experts_per_token = self.num_experts_per_token
        self.architecture: str = (config.get("architectures") or [""])[0]
        heads = self.num_attention_heads
        self.num_key_value_heads: int = text.get("num_key_value_heads") or heads
        self.num_key_value_groups = heads // max(self.num_key_value_heads, 1)
        self.sliding_window: int = text.get("sliding_window") or 0
        self.final_logit_softcapping: float | None = text.get("final_logit_softcapping")
        self.attn_logit_softcapping: float | None = text.get("attn_logit_softcapping")
        self.tie_word_embeddings = bool(text.get("tie_word_embeddings", False))
        width = self.hidden_size // heads if heads else 0
        self.head_dim: int = text.get("head_dim") or width
        self.max_seq_len = text.get("max_position_embeddings") or self.max_seq_len
        self.original_max_seq_len = self.max_seq_len
        self.bos_token_id: int | None = config.get("bos_token_id")
        self.pad_token_id: int | None = config.get("pad_token_id")
        eos = config.get("eos_token_id")
        self.eos_token_id: int | None = eos[0] if isinstance(eos, list) else eos
        generation = directory / "generation_config.json"
        if generation.exists():
            self.generation_config = json.loads(generation.read_text(encoding="utf-8"))

    @cached_property
    def arch(self) -> SimpleNamespace:
        """The little that programs ask of an architecture."""
        wants_bos = _pagella.Tokenizer.from_dir(self.model_dir or "").wants_bos
        lm = SimpleNamespace(requires_bos=wants_bos)
        return SimpleNamespace(arch_string=self.architecture, lm=lm)

    @cached_property
    def tensor_file_map(self) -> dict[str, str]:
        """The file of every tensor."""
        return {name: str(file) for file in self._files() for name in _header(file)[0]}

    @property
    def tensor_files(self) -> list[str]:
        """The files with tensors."""
        return [str(file) for file in self._files()]

    def _files(self) -> list[Path]:
        return sorted(Path(self.model_dir or "").glob("*.safetensors"))

    def read_tensor(self, name: str) -> Any:
        """An unquantised tensor as an array of float32."""
        import numpy

        file = self.tensor_file_map.get(name)
        if file is None:
            raise NotImplementedError(f"{name} is no tensor of {self.model_dir}, or a quantised one")
        header, start = _header(Path(file))
        kind, shape = header[name]["dtype"], header[name]["shape"]
        begin, end = header[name]["data_offsets"]
        with open(file, "rb") as opened:
            opened.seek(start + begin)
            data = opened.read(end - begin)
        if kind == "BF16":
            wide = numpy.frombuffer(data, dtype="<u2").astype("<u4") << 16
            return wide.view("<f4").reshape(shape)
        if kind not in ("F16", "F32"):
            raise NotImplementedError(f"{name} is stored as {kind}, which is not read here")
        plain = numpy.frombuffer(data, dtype="<f2" if kind == "F16" else "<f4")
        return plain.reshape(shape).astype("<f4")

    # Set by `prepare`.
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    vocab_size: int
    norm_eps: float
    rotary_embedding_base: float
    num_experts: int | None
    num_experts_per_token: int | None

    def set_low_mem(self) -> None:
        """Prefers little memory to speed."""
        self.low_mem = True
        self.max_input_len = _LOW_MEMORY_TOKENS
        self.max_attention_size = _LOW_MEMORY_TOKENS**2
        self.max_output_len = _LOW_MEMORY_TOKENS

    def arch_compat_overrides(self, quiet: bool = False, warn_only: bool = False) -> None:
        """Does nothing: what an architecture needs, the engine knows."""

    def choices(self) -> dict[str, Any]:
        """What the engine is told when it opens the model."""
        if self.model_dir is None:
            raise AssertionError("No model_dir specified in ExLlamaV2Config")
        if self.load_in_q4:
            raise NotImplementedError(
                "load_in_q4 is not supported: convert the model to EXL2, which is smaller and better"
            )
        if self.num_experts and self.num_experts_per_token != self._experts_per_token:
            raise NotImplementedError(
                f"num_experts_per_token cannot be changed: the model takes {self._experts_per_token}"
            )
        stretched = self.alt_rope_method == "yarn" and self.yarn_rope_factor != 1.0
        if self.alt_rope_method not in (None, "linear") and not stretched:
            raise NotImplementedError(
                "alt_rope_method is not supported: the engine reads it from config.json"
            )
        scaled = {
            "rope_scale": None if self.scale_pos_emb == 1.0 else self.scale_pos_emb,
            "rope_alpha": None if self.scale_alpha_value == 1.0 else self.scale_alpha_value,
            "rope_yarn": None if self.yarn_rope_factor == 1.0 else self.yarn_rope_factor,
        }
        if sum(value is not None for value in scaled.values()) > 1:
            raise NotImplementedError(
                "scale_pos_emb, scale_alpha_value and yarn_rope_factor cannot be combined: choose one"
            )
        return {
            **scaled,
            "context": self.max_seq_len,
            "step_tokens": self.max_input_len,
            "dequantised_max": self.max_dq_size,
            "low_memory": self.low_mem,
        }
