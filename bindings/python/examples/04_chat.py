"""Talks to the model: a line is a question, an empty one ends it."""

from pagella import Engine


def main() -> None:
    with Engine.open("demo") as engine:
        chat = engine.chat(max_tokens=200)
        while True:
            try:
                question = input("> ")
            except EOFError:
                break
            if not question:
                break
            for event in chat.send(question):
                print(event.text, end="", flush=True)
            print()


if __name__ == "__main__":
    main()
