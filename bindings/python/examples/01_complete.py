"""Completes one text and shows what it took: `python 01_complete.py [PROMPT]`."""

import sys

from pagella import Engine


def main() -> None:
    prompt = sys.argv[1] if len(sys.argv) > 1 else "The `map()` method"
    with Engine.open("demo") as engine:
        answer = engine.complete(prompt, max_tokens=60, greedy=True)
        print(prompt + answer.text)
        print(f"({answer.new_tokens} tokens, {answer.eos_reason})")


if __name__ == "__main__":
    main()
