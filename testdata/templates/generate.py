#!/usr/bin/env python3
"""Renders every template here in every situation with the Jinja of Hugging Face transformers.

Writes golden.json: for each template and situation the text, or the template's own refusal, or
null where Python fails otherwise. Run from this directory:

    python generate.py
"""

import datetime
import json
import pathlib

from jinja2.exceptions import TemplateError
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent
# 2024-07-26 in seconds; the Rust test uses the same moment.
NOW = datetime.datetime.fromtimestamp(1721952000, datetime.timezone.utc)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather",
        "description": "The weather \"now\" & <here>, at 20°.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "A city."},
                "unit": {"enum": ["c", "f"]},
                "days": {"type": "integer", "default": 1.5},
            },
            "required": ["city"],
        },
    }},
]

SYSTEM = {"role": "system", "content": "  You are terse.\n"}
USER = {"role": "user", "content": "  Hi there!\n"}
ASSISTANT = {"role": "assistant", "content": "Hello.  \n"}
AGAIN = {"role": "user", "content": "And <b>again</b>: \"é\" 小 🙂?"}
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "abcdef123", "type": "function",
     "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}},
]}
TOOL = {"role": "tool", "content": "{\"temp\": 20.5}", "tool_call_id": "abcdef123"}
THINK = {"role": "assistant", "content": "<think>\nhm, \nyes\n</think>\n\nIt is warm."}

SITUATIONS = {
    "user": {"messages": [USER], "add_generation_prompt": True},
    "user-no-prompt": {"messages": [USER]},
    "system": {"messages": [SYSTEM, USER], "add_generation_prompt": True},
    "turns": {"messages": [SYSTEM, USER, ASSISTANT, AGAIN], "add_generation_prompt": True},
    "turns-no-prompt": {"messages": [USER, ASSISTANT, AGAIN, THINK]},
    "tools": {"messages": [SYSTEM, AGAIN], "tools": TOOLS, "add_generation_prompt": True},
    "tool-result": {"messages": [USER, CALL, TOOL], "tools": TOOLS, "add_generation_prompt": True},
    "tool-result-twice": {"messages": [USER, CALL, TOOL, TOOL, THINK], "tools": TOOLS},
    "thinking": {"messages": [USER, THINK, AGAIN], "add_generation_prompt": True,
                 "variables": {"enable_thinking": False, "reasoning_effort": "high"}},
    "thinking-field": {"messages": [USER, {**CALL, "reasoning_content": "let me see"}, TOOL],
                       "variables": {"enable_thinking": True}, "add_generation_prompt": True},
    "parts": {"messages": [{"role": "user", "content": [
        {"type": "text", "text": " Look: "}, {"type": "image"}, {"type": "text", "text": "nice?"},
    ]}], "add_generation_prompt": True},
    "wrong-order": {"messages": [ASSISTANT, ASSISTANT]},
    "tool-first": {"messages": [TOOL]},
}


def render(source, situation):
    template = chat_template_utils._compile_jinja_template(source)
    return template.render(
        messages=situation["messages"],
        tools=situation.get("tools"),
        documents=None,
        add_generation_prompt=situation.get("add_generation_prompt", False),
        strftime_now=NOW.strftime,
        **TOKENS,
        **situation.get("variables", {}),
    )


def main():
    results = {}
    for path in sorted(HERE.glob("*.jinja")):
        for name, situation in SITUATIONS.items():
            try:
                result = {"text": render(path.read_text(), situation)}
            except TemplateError as e:
                known = type(e) is TemplateError
                result = {"refused": e.message} if known else {"fails": type(e).__name__}
            except TypeError as e:
                result = {"fails": type(e).__name__}
            results.setdefault(path.stem, {})[name] = result
    golden = {"tokens": TOKENS, "situations": SITUATIONS, "results": results}
    (HERE / "golden.json").write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")


main()
