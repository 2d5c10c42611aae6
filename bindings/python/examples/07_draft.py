"""A small model guesses for a larger one. The text is the same; fewer steps write it."""

from pagella import Engine


def main() -> None:
    prompt = "The `querySelector()` method"
    with Engine.open("demo") as engine:
        alone = engine.complete(prompt, max_tokens=60, greedy=True)
    with Engine.open("demo", draft="demo-draft", draft_tokens=4) as engine:
        drafted = engine.complete(prompt, max_tokens=60, greedy=True)
    right, wrong = drafted.accepted_draft_tokens, drafted.rejected_draft_tokens
    print(f"same text: {alone.text == drafted.text}; {right} guesses were right, {wrong} wrong")


if __name__ == "__main__":
    main()
