"""The classes of ExLlamaV2, with Pagella underneath.

A program changes its imports: `from exllamav2 import …` becomes `from pagella.compat.exllamav2 import …`,
with the same submodules below. What cannot be had raises with a sentence that says what to do;
`docs/from-exllamav2.md` lists it.
"""

from pagella.compat.exllamav2 import model_init
from pagella.compat.exllamav2.cache import (
    ExLlamaV2Cache,
    ExLlamaV2Cache_8bit,
    ExLlamaV2Cache_Q4,
    ExLlamaV2Cache_Q6,
    ExLlamaV2Cache_Q8,
    ExLlamaV2Cache_TP,
    ExLlamaV2CacheBase,
)
from pagella.compat.exllamav2.config import ExLlamaV2Config
from pagella.compat.exllamav2.lora import ExLlamaV2Lora
from pagella.compat.exllamav2.model import ExLlamaV2
from pagella.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer
from pagella.compat.exllamav2.module import Intervention
from pagella.compat.exllamav2.util import SeqTensor, Timer
from pagella.compat.exllamav2.version import __version__
from pagella.compat.exllamav2.vlm import ExLlamaV2MultimodalProjector, ExLlamaV2VisionTower


def install() -> None:
    """Makes `import exllamav2` mean this package, for packages that import it themselves."""
    import importlib
    import pkgutil
    import sys

    sys.modules["exllamav2"] = sys.modules[__name__]
    for found in pkgutil.walk_packages(__path__, f"{__name__}."):
        name = "exllamav2" + found.name.removeprefix(__name__)
        sys.modules[name] = importlib.import_module(found.name)

__all__ = [
    "ExLlamaV2",
    "ExLlamaV2Cache",
    "ExLlamaV2CacheBase",
    "ExLlamaV2Cache_8bit",
    "ExLlamaV2Cache_Q4",
    "ExLlamaV2Cache_Q6",
    "ExLlamaV2Cache_Q8",
    "ExLlamaV2Cache_TP",
    "ExLlamaV2Config",
    "ExLlamaV2Lora",
    "ExLlamaV2MultimodalProjector",
    "ExLlamaV2Tokenizer",
    "ExLlamaV2VisionTower",
    "Intervention",
    "SeqTensor",
    "Timer",
    "__version__",
    "install",
    "model_init",
]
