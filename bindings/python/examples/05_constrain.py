"""Says what an answer must look like: one of some words, a pattern, JSON under a schema."""

import json

from pagella import Engine

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "stable": {"type": "boolean"}},
    "required": ["name", "stable"],
    "additionalProperties": False,
}


def main() -> None:
    with Engine.open("demo") as engine:
        word = engine.complete("Is CSS a language? ", choice=["yes", "no"], greedy=True)
        print(word.text)
        year = engine.complete("HTML5 was published in ", regex="[12][0-9]{3}", greedy=True)
        print(year.text)
        question = [{"role": "user", "content": "Describe a method of arrays as JSON."}]
        answer = engine.complete(question, json_schema=SCHEMA, max_tokens=80, greedy=True)
        print(json.loads(answer.text))


if __name__ == "__main__":
    main()
