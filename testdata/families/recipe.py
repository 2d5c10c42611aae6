"""Weights as a recipe: the same tensors in Python and Rust without storing any of them.

The Rust twin is recipe.rs; recipe.json pins both. Element i of a tensor is

    z = splitmix64(fnv1a64(name) + (i + 1) * 0x9E3779B97F4A7C15)
    k = (z >> 53) - 1024                      an integer in -1024 .. 1023

scaled by a power of two that depends on the kind of tensor, so that every value is exactly
representable in f16 and f32 and no rounding can differ between two implementations.
"""

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def fnv1a64(name: str) -> np.uint64:
    digest = 0xCBF29CE484222325
    for byte in name.encode():
        digest = ((digest ^ byte) * 0x100000001B3) % 2**64
    return np.uint64(digest)


def integers(name: str, count: int) -> np.ndarray:
    """`count` integers in -1024 .. 1023."""
    with np.errstate(over="ignore"):
        z = fnv1a64(name) + np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(53)).astype(np.int64) - 1024


def is_norm(name: str) -> bool:
    base, _, kind = name.rpartition(".")
    last = base.rpartition(".")[2]
    return kind == "weight" and ("norm" in last or last.startswith("ln"))


EMBEDDINGS = ("embed_tokens.weight", "tok_embeddings.weight", "wte.weight", "wpe.weight", "sinks")


def tensor(name: str, shape: tuple[int, ...], norm_centre: float) -> np.ndarray:
    """The tensor `name` of a checkpoint, float32. `norm_centre` is 0 where the model adds 1 itself."""
    k = integers(name, int(np.prod(shape)))
    if is_norm(name):
        values = norm_centre + (k >> 1) / 1024
    elif name.endswith(EMBEDDINGS):
        values = k / 1024
    elif name.endswith("bias"):
        values = k / 4096
    else:
        # About 1 / sqrt(fan_in), as a power of two.
        values = k / 1024 * 2.0 ** (1 - int(shape[-1]).bit_length() // 2)
    return values.astype(np.float32).reshape(shape)
