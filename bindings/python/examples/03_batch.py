"""Answers many prompts at once, each with settings of its own, and draws a bar."""

from pagella import Engine

PROMPTS = ["CSS is", "HTML is", "An array is", "The `fetch()` method"]


def main() -> None:
    with Engine.open("demo") as engine:
        each = [{"max_tokens": 8 + 4 * n} for n in range(len(PROMPTS))]
        answers = engine.generate(PROMPTS, each=each, progress=True, greedy=True)
        for prompt, answer in zip(PROMPTS, answers):
            print(f"{answer.new_tokens:3} {prompt + answer.text!r}")


if __name__ == "__main__":
    main()
