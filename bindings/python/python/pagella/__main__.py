"""`python -m pagella`: the command line."""

import os
import signal
import sys
from pathlib import Path

from pagella import _pagella

_MODELS = Path(__file__).parent / "models"


def main() -> None:
    """Runs the command with the arguments of this process."""
    if _MODELS.is_dir():
        os.environ.setdefault("PAGELLA_MODELS", str(_MODELS))
    # Ctrl-C belongs to the command, which may handle it itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_pagella.command(["pagella", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
