"""Lets the model call a function and go on with what it returned."""

import json

from pagella import Engine

WORDS = {"CSS": "Cascading Style Sheets", "HTML": "HyperText Markup Language"}
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Says what an abbreviation stands for.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"enum": list(WORDS)}},
            "required": ["word"],
        },
    },
}


def main() -> None:
    with Engine.open("demo") as engine:
        chat = engine.chat(
            tools=[TOOL], tool_choice={"name": "look_up"}, max_tokens=60, greedy=True
        )
        chat.ask("What is CSS?")
        for call in chat.calls:
            print(f"{call.name}({json.dumps(call.arguments)})")
        results = [WORDS[call.arguments["word"]] for call in chat.calls]
        text = "".join(event.text for event in chat.send_results(results))
        print(f"{len(chat.turns)} turns, the last with {len(text)} characters")


if __name__ == "__main__":
    main()
