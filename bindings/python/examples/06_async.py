"""Several streams in one event loop; one of them is given up part-way."""

import asyncio

from pagella import Engine


async def tell(engine: Engine, prompt: str, pieces_max: int) -> str:
    text, pieces = prompt, 0
    async for record in engine.stream(prompt, max_tokens=24, greedy=True):
        text += record.text
        pieces += 1
        if pieces == pieces_max:
            break
    return text


async def main() -> None:
    with Engine.open("demo") as engine:
        asked = [("CSS is", 100), ("HTML is", 6), ("An array is", 100)]
        told = await asyncio.gather(*(tell(engine, *one) for one in asked))
        for text in told:
            print(repr(text))


if __name__ == "__main__":
    asyncio.run(main())
