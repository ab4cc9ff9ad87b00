"""How far apart honest servers' answers are, by precision, and how far nonsense is: what the bound between them rests on.

    python -m benchmarks.answer_distances FOLDER 0:1,7:8,0:10 [--json FILE]

FOLDER is a checkpoint. Each span is computed in float32, which is what the others are compared with, as a probe would ask it:
the same tensors, the same prints. Distances are shares of the longer answer.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from blockserver.model.blocks import load_span, read_facts
from swarm.answers.judging import APART, distance
from swarm.answers.prints import Floats, Print, asked, print_of, question
from swarm.dht.forward import MOST_TOKENS, PAYLOAD_BYTES, ROUNDS
from swarm.wire.spans import Span

PRECISIONS = {
    "float16": (torch.float16, "none"),
    "bfloat16": (torch.bfloat16, "none"),
    "int8": (torch.float32, "int8"),
    "int8, bfloat16": (torch.bfloat16, "int8"),
    "nf4": (torch.float32, "nf4"),
    "nf4, bfloat16": (torch.bfloat16, "nf4"),
}
SEED = b"answer distances"

Turns = Sequence[tuple[Floats, Floats]]


def answers(folder: Path, span: Span, dtype: torch.dtype, quantisation: str) -> Turns:
    """Each turn's (answer, sent), `[tokens, hidden]`, as a server in this precision gives it."""
    width = int(json.loads((folder / "config.json").read_text())["hidden_size"])
    tokens = max(1, min(MOST_TOKENS, PAYLOAD_BYTES // (2 * width)))
    module = load_span(folder, span, dtype, quantisation=quantisation)
    turns = []
    for turn in range(ROUNDS):
        sent = asked(question(SEED, turn, tokens, width), tokens, width)
        with torch.inference_mode():
            answer = module.forward(torch.from_numpy(sent)[None].to(dtype))
        turns.append((answer[0].float().numpy(), sent))
    return turns


def nonsense(right: Turns, other_block: Turns) -> Mapping[str, Turns]:
    """Answers that look like answers: of the right shape, type and size."""
    draw = np.random.default_rng(1)

    def noise(like: Floats) -> Floats:
        return np.asarray(draw.standard_normal(like.shape) * like.std(), np.float32)

    def shuffled(added: Floats) -> Floats:
        return draw.permutation(added.ravel()).reshape(added.shape)

    return {
        "another block's": other_block,
        "random": [(sent + noise(answer - sent), sent) for answer, sent in right],
        "the input, a little changed": [(sent + 0.1 * noise(sent), sent) for _, sent in right],
        "its values shuffled": [(sent + shuffled(answer - sent), sent) for answer, sent in right],
        "half of the tokens": [
            (np.concatenate((answer[: len(sent) // 2], sent[len(sent) // 2 :])), sent) for answer, sent in right
        ],
        "the second turn random": [right[0], (right[1][1] + noise(right[1][0] - right[1][1]), right[1][1])],
    }


def figures(folder: Path, span: Span, blocks: int) -> dict[str, float]:
    right = answers(folder, span, torch.float32, "none")
    first = print_of(SEED, right)
    beside = (
        Span(span.start + 1, span.end + 1) if span.end < blocks else Span(span.start - 1, span.end - 1) if span.start else span
    )
    found: dict[str, Print] = {
        name: print_of(SEED, answers(folder, span, dtype, quantisation)) for name, (dtype, quantisation) in PRECISIONS.items()
    }
    other = answers(folder, beside, torch.float32, "none")
    found |= {name: print_of(SEED, turns) for name, turns in nonsense(right, other).items()}
    added = [float(np.linalg.norm(answer - sent) / np.linalg.norm(sent)) for answer, sent in right]
    return {"adds": min(added), **{name: distance(first, one) for name, one in found.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("spans", help="first block : end, separated by commas")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    blocks = read_facts(options.folder).num_blocks
    spans = [Span(*map(int, words.split(":"))) for words in options.spans.split(",")]
    table = {str(span): figures(options.folder, span, blocks) for span in spans}
    names = list(next(iter(table.values())))
    print(f"{'bound ' + str(APART):28}", *(f"{span:>8}" for span in table))
    for name in names:
        print(f"{name:28}", *(f"{row[name]:8.3f}" for row in table.values()))
    if options.json:
        options.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
