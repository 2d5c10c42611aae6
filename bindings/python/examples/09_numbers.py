"""Looks at numbers: log-probabilities, logits as an array of NumPy, texts as vectors."""

import numpy as np

from pagella import Engine


def main() -> None:
    with Engine.open("demo") as engine:
        answer = engine.complete(
            "CSS is a", max_tokens=3, greedy=True, logprobs=2, return_logits=True
        )
        for token, (logprob, others) in zip(answer.token_ids.tolist(), answer.logprobs):
            piece = engine.tokenizer.decode([token])
            also = {engine.tokenizer.decode([id]): round(p, 2) for id, p in others}
            print(f"{piece!r} {logprob:.2f} {also}")
        assert answer.logits is not None
        logits = np.asarray(answer.logits)
        print(logits.shape, logits.dtype, logits.argmax(axis=1) == np.asarray(answer.token_ids))
        vectors = engine.embed(["CSS is for style", "Styles of a page", "A loop in JavaScript"]).numpy()
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        print(np.round(vectors @ vectors.T, 2))


if __name__ == "__main__":
    main()
