"""Prints a text as it is written, and stops after the first full sentence."""

from pagella import Engine


def main() -> None:
    with Engine.open("demo") as engine:
        prompt = "CSS is"
        print(prompt, end="")
        for record in engine.stream(prompt, max_tokens=200, greedy=True):
            print(record.text, end="", flush=True)
            if "." in record.text:
                break  # Letting go of the stream stops the model.
        print()


if __name__ == "__main__":
    main()
