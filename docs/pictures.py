"""Draws the pictures of the concept pages with elman's own inspection: `python docs/pictures.py` (a minute)."""

import tempfile
from pathlib import Path

import matplotlib

import elman
from elman.figures.figure import Figure
from elman.inspection.gradient_decay import UntrainedLayer
from elman.inspection.gradients import gradient_decay_figure

PICTURES = Path(__file__).parent / "pictures"
PROBES = ("rnn", "rnn:radius=3", "gru", "lstm:forget_bias=0", "lstm:forget_bias=3", "attention")
LANGUAGE = {"type": "agreement", "words_per_class": 6, "max_phrases": 2, "train_documents": 12000}
SENTENCE = "the cat near the boys behind the children"


def trained(model: dict[str, object], folder: str) -> elman.TrainedModel:
    training = {"batch_size": 32, "sequence_length": 32, "max_epochs": 3, "learning_rate": 5e-3, "schedule": "cosine"}
    recipe = {
        "data": {"language": LANGUAGE},
        "tokenizer": "word",
        "model": model,
        "training": training,
        "device": "cpu",
    }
    return elman.train(recipe, run=folder)


def figures() -> dict[str, Figure]:
    found = {
        "vanishing-gradients": gradient_decay_figure(
            [UntrainedLayer.parse(name) for name in PROBES], length=100, width=32
        )
    }
    with tempfile.TemporaryDirectory() as folder:
        lstm = trained({"type": "lstm", "hidden_size": 24}, f"{folder}/lstm")
        trace = lstm.trace(SENTENCE)
        found["state"] = trace.figure("layers.0.lstm.memory", "layers.0.lstm.hidden")
        found["gates"] = trace.figure("layers.0.lstm.gate.*")
        heads = {"attention": {"num_heads": 2, "positions": "rotary"}}
        transformer = trained(
            {"pattern": [heads, "feedforward"] * 2, "hidden_size": 32, "residual": True}, f"{folder}/a"
        )
        weights = transformer.trace(SENTENCE, sites=["layers.2.attention.weights"])
        found["attention"] = weights.figure()
        mamba = trained({"type": "mamba", "hidden_size": 24, "residual": True}, f"{folder}/mamba")
        found["scans"] = mamba.trace(SENTENCE, sites=["*"]).figure("layers.0.mamba.delta", "layers.0.mamba.gate")
    return found


if __name__ == "__main__":
    matplotlib.rcParams["svg.fonttype"] = "none"  # letters as text: small files that can be searched
    for name, figure in figures().items():
        path = Figure(figure.title, figure.panels).save(PICTURES / f"{name}.svg")
        print(f"wrote {path}, {path.stat().st_size / 1000:.0f} kB")
