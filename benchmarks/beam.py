"""Beam search on Multi30k, German to English, on two cores: a loop over sentences against batched search.

    python -m benchmarks.beam

The loop searches one sentence at a time, with its hypotheses as a batch and one top-k per step. Both must find the same
translations. A word-level model is trained here for a minute; `--weights FILE` keeps its weights. With `--threads 1`
times are CPU time. Data: ELMAN_DATA (docs/data.md).
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_model, save_model

from benchmarks.reporting import show, write
from elman.batches import Buckets, ExampleStore, Ragged, length_batches
from elman.bench.harness import compare, interleaved
from elman.corpus import read_pairs
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation import BeamConfig, Hypothesis, beam_search
from elman.models import EncoderDecoder, EncoderDecoderConfig
from elman.ops.state import take_rows
from elman.tokenizers import EOS_ID, train_tokenizer

LOOP, BATCHES, BEST = "sentence by sentence", "elman, batches", "elman, the best alone"
SEARCH = BeamConfig(beam_size=5, max_tokens=100)
MODEL = {
    "encoder": {"pattern": [{"bidirectional": {"layer": "gru"}}], "hidden_size": 256, "dropout": 0.2},
    "decoder": {"pattern": ["gru"], "hidden_size": 256, "dropout": 0.2},
}
Found = list[tuple[list[int], float]]  # words and log-probability, best first


def loop(model: Any, sources: Sequence[Sequence[int]], config: BeamConfig) -> list[Found]:
    with torch.inference_mode():
        return [one(model, source, config.beam_size, config.max_tokens) for source in sources]


def one(model: Any, source: Sequence[int], beams: int, limit: int) -> Found:
    """Those that end among the best `beams` are finished; the search is over when there are as many of them that are
    better than all that go on."""
    state = model.start(Ragged(torch.tensor([list(source)]), torch.tensor([len(source)])))
    going: Found = [([], 0.0)]
    finished: Found = []
    for length in range(1, limit + 1):
        last = torch.tensor([words[-1] if words else EOS_ID for words, _ in going])
        logits, state = model.step(last, state)
        totals = torch.log_softmax(logits, -1) + torch.tensor([[total] for _, total in going])
        best, places = totals.flatten().topk(2 * beams)
        after: Found = []
        rows = []
        for rank, (total, place) in enumerate(zip(best.tolist(), places.tolist(), strict=True)):
            row, word = divmod(place, logits.shape[-1])
            if word == EOS_ID or length == limit:
                if rank < beams:
                    finished.append((going[row][0] + [word] * (word != EOS_ID), total))
            elif len(after) < beams:
                after.append(([*going[row][0], word], total))
                rows.append(row)
        finished = sorted(finished, key=lambda found: -found[1])[:beams]
        if not after or (len(finished) == beams and finished[-1][1] >= after[0][1]):
            break
        going, state = after, take_rows(state, torch.tensor(rows))
    return finished


def search_all(
    model: Any,
    sources: Sequence[Sequence[int]],
    eos_id: int,
    config: BeamConfig | None = None,
    *,
    batch_size: int = 128,
) -> list[list[Hypothesis]]:
    """The best hypotheses of an encoder-decoder for each source, best first, in the order of the sources.

    Long sources are searched first, so that running out of memory happens at the start.
    """
    results: list[list[Hypothesis]] = [[] for _ in sources]
    rows = [{"source": np.array(source, dtype=np.int64)} for source in sources]
    for indices, batch in length_batches(rows, "source", batch_size):
        source = batch.to(device_of(model)).ragged("source")
        with inference_mode(model):
            state = model.start(source)
        found = beam_search(model, state, eos_id, config, source_lengths=source.lengths)
        for index, hypotheses in zip(indices, found.lists(eos_id), strict=True):
            results[index] = hypotheses
    return results


def batches(model: Any, sources: Sequence[Sequence[int]], config: BeamConfig, batch_size: int) -> list[Found]:
    found = search_all(model, sources, EOS_ID, config, batch_size=batch_size)
    return [[(list(hypothesis.tokens), hypothesis.log_prob) for hypothesis in row] for row in found]


def check(ours: list[Found], theirs: list[Found]) -> dict[str, float]:
    """How many sentences have the same best words, the same list, and the largest difference of log-probabilities."""
    lists = [([a for a, _ in x], [b for b, _ in y]) for x, y in zip(ours, theirs, strict=True)]
    same = [a == b for a, b in lists]
    pairs = [(x, y) for x, y, equal in zip(ours, theirs, same, strict=True) if equal]
    apart = max(abs(a[1] - b[1]) for x, y in pairs for a, b in zip(x, y, strict=True))
    return {
        "sentences": len(ours),
        "same_best": sum(a[0] == b[0] for a, b in lists),
        "same_list": sum(same),
        "log_probs_apart": apart,
    }


def prepared(seconds: float, weights: Path | None) -> tuple[EncoderDecoder, list[list[int]]]:
    """A model that has learned for so long, or the one of the file, and the sentences of the test part."""
    home = Path(os.environ.get("ELMAN_DATA", "data")) / "multi30k_en_de"
    pairs = list(read_pairs(str(home / "train.tok.de.gz"), str(home / "train.tok.en.gz")))
    settings = {"type": "word", "min_frequency": 2}
    german = train_tokenizer(settings, (pair.source_text for pair in pairs))
    english = train_tokenizer(settings, (pair.target_text for pair in pairs))
    torch.manual_seed(0)
    model = EncoderDecoder(EncoderDecoderConfig.make(MODEL), german.vocab_size, english.vocab_size, EOS_ID)
    if weights and weights.exists():
        load_model(model, weights)
    else:
        train(model, [(german.encode(pair.source_text), english.encode(pair.target_text)) for pair in pairs], seconds)
        if weights:
            save_model(model, str(weights))
    lines = (home / "test2016.tok.de").read_text(encoding="utf-8").splitlines()
    return model.eval(), [list(map(int, german.encode(line))) for line in lines]


def train(model: EncoderDecoder, pairs: Sequence[tuple[Any, Any]], seconds: float) -> None:
    rows = ({"source": np.asarray(a), "target": np.append(np.asarray(b), EOS_ID)} for a, b in pairs)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    began, epoch = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as place:
        data = Buckets(ExampleStore.build(rows, place, "train"), 64, by=("target", "source"), unit="target")
        while True:
            for batch in data.epoch(epoch):
                if time.monotonic() - began > seconds:
                    return
                loss = model.batch_loss(batch)[0] / batch.real
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            epoch += 1
            print(f"epoch {epoch}: the last batch's loss was {float(loss):.2f} nats per word", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60, help="to train for (default: %(default)s)")
    parser.add_argument("--weights", type=Path, help="file of the trained weights: read if there, else written")
    parser.add_argument("--sentences", type=int, default=1000, help="of the test part (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=128, help="sentences (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="(default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model, sources = prepared(options.seconds, options.weights)
    sources = sources[: options.sentences]
    alone = SEARCH.model_copy(update={"num_best": 1})
    variants = {
        LOOP: lambda: loop(model, sources, SEARCH),
        BATCHES: lambda: batches(model, sources, SEARCH, options.batch_size),
        BEST: lambda: batches(model, sources, alone, options.batch_size),
    }
    found = {name: run() for name, run in variants.items()}  # also warms up
    checked = {BATCHES: check(found[BATCHES], found[LOOP]), BEST: check(found[BEST], [row[:1] for row in found[LOOP]])}
    print(checked, flush=True)
    if any(row["same_best"] < len(sources) or row["log_probs_apart"] > 1e-4 for row in checked.values()):
        raise SystemExit("the searches did not find the same words: no speed is reported")
    clock = time.process_time if options.threads == 1 else time.perf_counter
    table = compare(interleaved(variants, options.rounds, warmup=0, clock=clock), LOOP)
    show(f"beam search {SEARCH.beam_size}, {len(sources)} sentences", table, LOOP)
    speeds = {name: len(sources) / row["ms"] * 1e3 for name, row in table.items()}
    print("  sentences per second: " + ", ".join(f"{name} {speed:.1f}" for name, speed in speeds.items()))
    results = {"batch_size": options.batch_size, "checked": checked, "sentences_per_second": speeds, "table": table}
    print(write("beam-cpu", results))


if __name__ == "__main__":
    main()
