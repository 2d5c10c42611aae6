"""A chat model for LangChain in this process, and an answer that has a shape. Needs langchain-core."""

from pydantic import BaseModel, Field

from pagella.integrations.langchain import ChatPagella


class Entry(BaseModel):
    """A word and whether it is a language."""

    word: str = Field(max_length=12)
    is_language: bool


def main() -> None:
    chat = ChatPagella(model="demo", max_tokens=60, temperature=0)
    for chunk in chat.stream("What is CSS?"):
        print(chunk.text, end="", flush=True)
    print()
    print(chat.with_structured_output(Entry).invoke("Describe CSS."))


if __name__ == "__main__":
    main()
