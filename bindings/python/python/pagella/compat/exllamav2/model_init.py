"""`model_init`: the flags that scripts share, and a model from them."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from pagella._engine import _located
from pagella.compat.exllamav2.config import ExLlamaV2Config
from pagella.compat.exllamav2.model import ExLlamaV2
from pagella.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer

__all__ = ["add_args", "check_args", "init", "post_init_load", "print_options"]


def add_args(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    add = parser.add_argument
    add("-m", "--model_dir", type=str, help="directory of the model, or demo")
    add("-gs", "--gpu_split", type=str, help='"auto", or GB of each device')
    add("-tp", "--tensor_parallel", action="store_true", help="on one device only")
    add("-l", "--length", type=int, help="longest sequence")
    add("-rs", "--rope_scale", type=float, help="positions divided by this")
    add("-ra", "--rope_alpha", type=float, help="NTK alpha")
    add("-ry", "--rope_yarn", type=float, help="YaRN factor")
    for short, long in (("-nfa", "no_flash_attn"), ("-nxf", "no_xformers"), ("-nsdpa", "no_sdpa")):
        add(short, f"--{long}", action="store_true", help="results do not depend on it")
    add("-ng", "--no_graphs", action="store_true", help="results do not depend on it")
    add("-lm", "--low_mem", action="store_true", help="prefer little memory to speed")
    add("-ept", "--experts_per_token", type=int, help="not supported")
    add("-lq4", "--load_q4", action="store_true", help="not supported")
    add("-fst", "--fast_safetensors", action="store_true", help="does nothing")
    add("-ic", "--ignore_compatibility", action="store_true", help="does nothing")
    add("-chunk", "--chunk_size", type=int, help="most prompt tokens at once")


def check_args(args: argparse.Namespace) -> None:
    """Ends the program with a sentence when there is no such model."""
    if not args.model_dir:
        print(" ## Error: No model directory specified")
        sys.exit()
    directory = Path(_located(args.model_dir))
    if not directory.exists():
        print(f" ## Error: Can't find model directory: {directory}")
        sys.exit()
    if not (directory / "config.json").exists():
        print(f" ## Error: Cannot find config.json in {directory}")
        sys.exit()


def print_options(args: argparse.Namespace) -> None:
    """Prints what was chosen."""
    chosen = [f"{name}: {value}" for name, value in vars(args).items() if value]
    print(f" -- Model: {args.model_dir}")
    print(f" -- Options: {chosen}")


def init(
    args: argparse.Namespace,
    quiet: bool = False,
    allow_auto_split: bool = False,
    skip_load: bool = False,
    benchmark: bool = False,
    max_batch_size: int | None = None,
    max_input_len: int | None = None,
    max_output_len: int | None = None,
    progress: bool = False,
) -> tuple[ExLlamaV2, ExLlamaV2Tokenizer]:
    """The model and its tokenizer. With `-gs auto` the model is left to `load_autosplit`."""
    config = ExLlamaV2Config(args.model_dir)
    if args.length:
        config.max_seq_len = args.length
    config.scale_pos_emb = args.rope_scale or config.scale_pos_emb
    config.scale_alpha_value = args.rope_alpha or config.scale_alpha_value
    if args.rope_yarn:
        config.alt_rope_method, config.yarn_rope_factor = "yarn", args.rope_yarn
    config.load_in_q4 = args.load_q4
    if args.low_mem:
        config.set_low_mem()
    if args.experts_per_token:
        config.num_experts_per_token = args.experts_per_token
    config.max_batch_size = max_batch_size or config.max_batch_size
    config.max_output_len = max_output_len or config.max_output_len
    config.max_input_len = max_input_len or args.chunk_size or config.max_input_len
    config.choices()
    model = ExLlamaV2(config)
    if not skip_load:
        post_init_load(model, args, quiet, allow_auto_split, benchmark, progress)
    if not quiet:
        print(" -- Loading tokenizer...")
    return model, ExLlamaV2Tokenizer(config)


def post_init_load(
    model: ExLlamaV2,
    args: argparse.Namespace,
    quiet: bool = False,
    allow_auto_split: bool = False,
    benchmark: bool = False,
    progress: bool = False,
) -> None:
    """Loads a model that `init` has left alone, unless the split is automatic: then `load_autosplit`
    does."""
    split = None
    if args.gpu_split not in (None, "auto"):
        split = [float(share) for share in args.gpu_split.split(",")]
    if args.tensor_parallel:
        model.load_tp(split, progress=progress)
    elif args.gpu_split == "auto":
        if not allow_auto_split:
            raise AssertionError("Auto split not allowed.")
    else:
        if not quiet and not progress:
            print(" -- Loading model...")
        started = time.time()
        model.load(split, progress=progress)
        if benchmark and not quiet:
            print(f" -- Loaded model in {time.time() - started:.4f} seconds")
