"""Small data of every task."""

import random

GOOD, BAD = ["good", "great", "lovely", "fine"], ["bad", "poor", "awful", "dull"]
NOUNS, VERBS = ["cat", "dog", "bird", "fish"], ["sees", "likes", "hears"]
SMALL = {"training.max_epochs": 3, "training.batch_size": 16, "training.learning_rate": 1e-2, "device": "cpu"}


def labelled(count: int, seed: int) -> str:
    dice = random.Random(seed)
    lines = ["label\ttext"]
    for _ in range(count):
        label = dice.choice(["kind", "unkind"])
        words = ["the", dice.choice(NOUNS), "is", dice.choice(GOOD if label == "kind" else BAD)]
        lines.append(f"{label}\t{' '.join(words)}")
    return "\n".join(lines) + "\n"


def tagged(count: int, seed: int) -> str:
    dice = random.Random(seed)
    sentences = []
    for _ in range(count):
        words = [("the", "D"), (dice.choice(NOUNS), "N"), (dice.choice(VERBS), "V"), ("the", "D")]
        words.append((dice.choice(NOUNS), "N"))
        sentences.append("\n".join("\t".join(pair) for pair in words))
    return "\n\n".join(sentences) + "\n"


def pairs(count: int, seed: int) -> str:
    dice = random.Random(seed)
    words = ["".join(dice.choices("abcd", k=dice.randint(1, 4))) for _ in range(count)]
    return "".join(f"{word}\t{word[::-1]}\n" for word in words)


def rated(count: int, seed: int) -> str:
    """A number that grows with the good words of a text, with a little noise; in the hundreds."""
    dice = random.Random(seed)
    lines = ["label\ttext"]
    for _ in range(count):
        words = [dice.choice([*GOOD, *BAD, *NOUNS]) for _ in range(dice.randint(2, 6))]
        number = 100 * sum((word in GOOD) - (word in BAD) for word in words) + 500 + dice.gauss(0, 5)
        lines.append(f"{number:.1f}\t{' '.join(words)}")
    return "\n".join(lines) + "\n"


TEXTS = {"classify": labelled, "tag": tagged, "translate": pairs, "regress": rated}
ENDS = {"classify": "tsv", "tag": "conll", "translate": "tsv", "regress": "tsv"}


def settings_of(task: str, data: dict[str, dict[str, str]], **more: object) -> dict[str, object]:
    places = {f"data.{split}": path for split, path in data[task].items()}
    sides = ["model.encoder.hidden_size", "model.decoder.hidden_size"]
    widths = dict.fromkeys(sides if task == "translate" else ["model.hidden_size"], 24)
    return {"task": task, **places, **widths, **SMALL, **more}
