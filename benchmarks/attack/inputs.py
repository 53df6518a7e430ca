"""What the fuzzer gives to whom: for each kind of input valid examples, and a reader that takes a changed one."""

import gzip
import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.attack.mutations import NUMBERS, mutate, mutate_values

Read = Callable[[Path, random.Random], Any]


@dataclass
class Kind:
    """Examples by file name, and what reads a file of that name; one input in `share` many is of this kind."""

    examples: dict[str, bytes]
    read: Read
    share: float = 1.0
    others: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.others = [*self.examples.values()]

    def input(self, dice: random.Random) -> tuple[str, bytes]:
        """A changed example with its file name."""
        name = dice.choice([*self.examples])
        data = self.examples[name]
        if name.endswith(".gz"):
            inner = mutate(gzip.decompress(data), dice)
            return name, gzip.compress(inner, 1) if dice.random() < 0.7 else mutate(data, dice)
        if name.endswith(".parquet") and dice.random() < 0.3:
            return name, strange_parquet(dice)
        if name.endswith(".json") and dice.random() < 0.7:
            changed = mutate_values(json.loads(data), dice)
            return name, json.dumps(changed, ensure_ascii=dice.random() < 0.8).encode(errors="replace")
        return name, mutate(data, dice, self.others)


TEXT = "Ein Satz.\r\n\r\nnoch é einer\u2028mit 語\rund\nEnde".encode() * 3
TABLES = {
    "a.csv": b'id,text\n1,"a, ""b""\nc"\n2,d\n3,"e"\n' * 3,
    "b.csv": b"text,id\n\nx,1\n",
    "a.tsv": b"id\ttext\n1\ta b\n2\tc\n" * 3,
    "a.jsonl": b'{"text": "a \\ud83d\\ude00 b", "n": [1, {"x": null}]}\n{"text": "c", "n": 1e5}\n' * 4,
    "a.csv.gz": gzip.compress(b"text\na\nb\n" * 20),
}
LABELLED = {
    "l.tsv": b"label\ttext\nyes\tgood film\nno\tbad film\n" * 4,
    "l.csv": b'label,text\n"a,b",one\n,two\nb,three\n' * 4,
    "l.jsonl": b'{"label": ["a", "b"], "text": "t"}\n{"label": 1, "text": "u"}\n{"label": true, "text": "v"}\n' * 3,
    "n.tsv": b"label\ttext\n1.5\ta\n-3e2\tb\n0\tc\n" * 3,
}
PAIRS = {
    "p.tsv": b"source\ttarget\na b\tb a\nc\tc d\n" * 4,
    "q.tsv": b"ein Haus\ta house\nzwei\ttwo\n" * 4,
    "p.jsonl": b'{"source": "a", "target": "b"}\n{"source": "", "target": "c"}\n' * 4,
    "p.txt": b"eins\nzwei\n\ndrei\n" * 3,
}
CONLL = {
    "t.conll": b"-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n. . O\n\n# c\nPeter NNP B-PER\nB NNP I-PER\n\n" * 2,
    "t.txt": b"the\tDT\ncat\tNN\n\na\tDT\n",
    "t.conllu": "# text = Ab zum\n1-2\tAbzum\t_\t_\t_\t_\t_\t_\t_\t_\n1\tAb\tab\tADP\tRP\tX=Y|Z=é\t0\troot\t_\t_\n"
    "2\tzum\tzu\tADP\tRP\t_\t1\tdep\t_\tA=B\n2.1\te\te\t_\t_\t_\t_\t_\t_\t_\n\n".encode()
    * 2,
}
RECIPE = b"""# a comment
name: mine
seed: 3
device: cpu
parameters: 20k
data: {train: text.txt, boundary: carry, valid_fraction: 0.1}
tokenizer: {type: bpe, vocab_size: 300}
model:
  type: lstm
  hidden_size: 16
  num_layers: 2
  pattern: [lstm, {attention: {num_heads: 2}}]
training: {batch_size: 8, sequence_length: 12, learning_rate: 1.0e-3, schedule: cosine, max_steps: 3}
evaluation: {choose_by: loss}
generation: {max_tokens: 5, temperature: 0.7, top_k: 3}
goals: [{measure: valid.loss, at_most: 2.5}]
"""
RECIPES = {
    "lm.yaml": RECIPE,
    "classify.yaml": b"task: classify\ndata: {train: t.tsv, columns: [1, 2], separator: ','}\nmodel: {type: gru}\n",
    "translate.yaml": b"task: translate\ndata: {train: p.tsv}\n"
    b"model: {encoder: {hidden_size: 8}, decoder: {hidden_size: 8}}\n"
    b"search: {beam_size: 3, num_best: 2, length_ratio: 1.5}\n",
    "tag.yaml": b"task: tag\ndata: {train: t.conll, word: 1, tag: -1}\nmodel: {hidden_size: 8, crf: true}\n",
    "masked.yaml": b"task: masked\ntokenizer: word\nmodel: {hidden_size: 8, num_heads: 2, mask_share: 0.2}\n",
    "ngram.yaml": b"model: {type: ngram, order: 3}\ndata: &d {language: {type: agreement, train_documents: 50}}\n",
}
RACES = {
    "race.yaml": b"entrants: {gru: {hidden_size: 8}, lstm: {}, ngram: {order: 3}}\nparameters: 40k\ntokens: 20k\n"
    b"seeds: 2\ntrials: 2\nextra_trials: 0\nrecipe: {data: {train: a.txt}, training: {batch_size: 4}}\n"
}
OVERRIDES = ["--training.learning_rate", "--model.hidden_size", "--data.train", "--seed", "--tokenizer.type", "--goals"]
OVERRIDES += [
    "--model.pattern",
    "--training.max_minutes",
    "--model",
    "--generation.stop",
    "--data.columns",
    "--name",
    "--x.y",
]
VECTORS = {
    "glove.txt": "the 0.1 -2 3e-1\nCat 1 2 3\né .5 0 -0.0\n".encode(),
    "fast.vec": b"3 2\nthe 0.5 1.5 \ncat -1 2 \n</s> 0 0 \n",
    "fast.vec.gz": gzip.compress(b"2 2\nthe 0.5 1.5\ncat -1 2\n"),
    "w2v.bin": b"2 3\n" + b"the " + bytes(range(0, 96, 8)) + b"\ncat " + bytes(range(200, 248, 4)) + b"\n",
}
ARPA = (
    b"\\data\\\nngram 1=4\nngram 2=4\nngram 3=1\n\n"
    b"\\1-grams:\n-99\t<s>\t-0.3\n-0.7\t</s>\t0\n-0.6\ta\t-0.2\n-0.5\tb\t-0.1\n\n"
    b"\\2-grams:\n-0.3\t<s> a\t-0.1\n-0.4\ta b\t0\n-0.9\tb </s>\n-0.2\tb a\t-0.2\n\n"
    b"\\3-grams:\n-0.1\t<s> a b\n\n\\end\\\n"
)


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    import pyarrow
    from pyarrow.parquet import write_table

    file = io.BytesIO()
    write_table(pyarrow.table(columns), file, **options)
    return file.getvalue()


def strange_parquet(dice: random.Random) -> bytes:
    """A valid file whose columns have other types or names."""
    import pyarrow as pa

    choices: list[Any] = [
        pa.array([1, None, 3]),
        pa.array([b"a", b"\xff", b""]),
        pa.array([[1], None, []]),
        pa.array([{"a": 1}] * 3),
        pa.array([1.5, float("nan"), None]),
        pa.array([True, None, False]),
        pa.nulls(3),
        pa.array(["a", None, "é"]),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array([0, 1, 2**62], pa.timestamp("ns")),
        pa.array([0, 1, 10**8], pa.date32()),
        pa.array(["x", "y", None], pa.large_string()),
        pa.array([0, -1, 2**62], pa.duration("s")),
        pa.array([["a"], ["b", None], None]),
        pa.array([0, 1, 2], pa.time64("us")),
    ]
    names = ["text", dice.choice(["label", "source", "target", "number", "text2", "", "é"])]
    return parquet({name: dice.choice(choices) for name in names})


def of_tables(path: Path, dice: random.Random) -> None:
    """As documents of a corpus, or with all columns as `elman predict` reads a table."""
    from elman.corpus import DataConfig, Repairs, SourceReader, open_corpus
    from elman.corpus.config import RECORD_FORMATS
    from elman.corpus.sources import locate

    settings = {
        "boundary": dice.choice(["carry", "reset"]),
        "invalid": dice.choice(["repair", "error"]),
        "max_record_bytes": dice.choice([64, 2**24]),
        "valid_fraction": dice.choice([0, 0.3]),
        "column": dice.choice(["text", "text", 1, 2, "id"]),
    }
    if path.name.startswith("a.txt"):
        settings["document"] = dice.choice(["line", "block", "file"])
    config = DataConfig.make({"train": str(path), **settings})
    (source,) = locate(str(path))
    if source.format != "text" and dice.random() < 0.3:
        table = RECORD_FORMATS[source.format]().table(SourceReader(source, config, Repairs()), dice.random() < 0.8)
        for record in table.records:
            assert len(record.names) == len(record.values)
        return
    corpus = open_corpus(config, dice.choice(["word", "bpe"]))
    for found in corpus.documents("train"):
        found.text.encode()
    corpus.repairs.describe()


def of_labels(path: Path, dice: random.Random) -> None:
    from elman.pipeline.tasks import TASKS

    task = TASKS["regress" if path.name.startswith("n.") else "classify"]
    settings = {
        "train": str(path),
        "valid_fraction": dice.choice([0, 0.3]),
        "max_record_bytes": dice.choice([64, 2**24]),
    }
    settings |= {"columns": dice.choice([None, [1, 2], [2, 1]])} if path.suffix in (".tsv", ".csv") else {}
    if task.name == "classify":
        from elman.corpus import LabelledCorpus, LabelSet, label_rows

        separator = dice.choice(["", ",", "|"])
        texts = list(LabelledCorpus(LabelledCorpus.Config.make({**settings, "separator": separator})).texts("train"))
        labels = LabelSet.of(texts)
        list(label_rows(texts, labels, lambda some: [np.ones(len(text), np.int32) for text in some]))
    else:
        prepare(task, {"data": settings, "task": task.name}, path)


def of_pairs(path: Path, dice: random.Random) -> None:
    from elman.corpus import DataConfig, PairCorpus, read_pairs

    partner = path.with_name("partner.txt")
    if path.name == "p.txt":
        partner.write_bytes(PAIRS["p.txt"])
        list(read_pairs(str(path), str(partner), config=DataConfig(max_record_bytes=dice.choice([64, 2**24]))))
        return
    list(PairCorpus(PairCorpus.Config.make({"train": str(path), "valid_fraction": 0})).pairs("train"))


def of_tags(path: Path, dice: random.Random) -> None:
    from elman.corpus import ColumnsConfig, DataConfig, Repairs, SourceReader, TagSet, read_tagged
    from elman.corpus.sources import locate
    from elman.corpus.tagged_corpus import tagged_table

    named = path.suffix == ".conllu"
    columns = ColumnsConfig(
        tag=dice.choice([None, "upos", "feats", "nonsense", 4] if named else [None, 0, 2, -2, 9]),
        separator=dice.choice(["auto", "tab", "space"]),
        comment=dice.choice([None, "#"]),
    )
    data = DataConfig(max_record_bytes=dice.choice([64, 2**24]), invalid=dice.choice(["repair", "error"]))
    found = list(read_tagged(str(path), columns, data))
    assert all(len(one.tags) in (0, len(one.words)) for one in found)
    if any(one.tags for one in found):
        TagSet.of(found)
    (source,) = locate(str(path))
    list(tagged_table(SourceReader(source, data, Repairs()), columns).records)


def of_recipes(path: Path, dice: random.Random) -> None:
    """Read, written and read again."""
    from elman.pipeline.recipe import read_recipe, write_recipe

    recipe = read_recipe(path)
    again = path.with_name("again.yaml")
    again.write_text(write_recipe(recipe))
    assert write_recipe(read_recipe(again)) == again.read_text(), "a recipe that was written is read with other values"


def of_races(path: Path, dice: random.Random) -> None:
    from elman.comparison.config import Race, is_race
    from elman.untrusted import read_yaml

    if is_race(path):
        Race.make(read_yaml(path))


def of_overrides(path: Path, dice: random.Random) -> None:
    """Words of a command line, one on each line."""
    from elman.cli.main import split_settings
    from elman.config import parse_overrides
    from elman.pipeline.recipe import read_recipe

    words = path.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    _, settings = split_settings(words)
    read_recipe(None, parse_overrides(settings))


def override_examples(dice: random.Random) -> dict[str, bytes]:
    values = ["3", "lstm", "[a, b]", "{type: gru}", "null", "1e-3", "a.txt", "20k", "true", "'x'", *NUMBERS[:10]]
    lines = [
        "\n".join(part for _ in range(3) for part in (dice.choice(OVERRIDES), dice.choice(values))) for _ in range(40)
    ]
    return {f"{number}.words": line.encode() for number, line in enumerate(lines)}


def of_arpa(path: Path, dice: random.Random) -> None:
    from elman.models.ngram.arpa import read_arpa, write_arpa

    model, words = read_arpa(path, dice.choice([None, ["<eos>", "<unk>", "a", "c"]]))
    write_arpa(model, words, path.with_name("again.arpa"))


def of_vectors(path: Path, dice: random.Random) -> None:
    from elman.corpus.word_vectors import read_vectors

    found = read_vectors(path, ["the", "Cat", "é"])
    assert found.values.shape == (3, found.values.shape[1])


def prepare(task: Any, recipe: dict[str, Any], path: Path) -> None:
    """The data of a recipe, encoded in a folder."""
    from elman.pipeline.prepare import prepare
    from elman.pipeline.recipe import read_recipe

    with TemporaryDirectory(dir=path.parent) as folder:
        prepare(read_recipe(recipe), Path(folder))


def of_tokenizers(path: Path, dice: random.Random) -> None:
    from elman.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(path)
    ids = tokenizer.encode("the Cat sät\n 12 <eos> \U0001f600")
    tokenizer.decode(ids)
    tokenizer.surface_nats("The  cat")


def of_imported_tokenizers(path: Path, dice: random.Random) -> None:
    from elman.tokenizers import Imported
    from elman.tokenizers.library_file import make_library, read_content

    settings = {"vocab_size": dice.choice([0, 30]), "eos_id": dice.choice([0, 1])}
    tokenizer = Imported(Imported.Config.make(settings), make_library(read_content(path), path))
    for text in ("", "the Cat sät\n 12", "\U0001f600"):
        tokenizer.decode(tokenizer.encode(text))
        tokenizer.unknowns(text)


def tokenizer_examples() -> dict[str, bytes]:
    """A file of every scheme."""
    from elman.tokenizers import train_tokenizer

    found = {}
    schemes: list[dict[str, Any]] = [{"type": "byte"}, {"type": "character"}, {"type": "word", "vocab_size": 40}]
    schemes += [{"type": "word", "lowercase": True, "split": "punctuation"}, {"type": "bpe", "vocab_size": 270}]
    with TemporaryDirectory() as folder:
        path = Path(folder, "tokenizer.json")
        for number, settings in enumerate(schemes):
            train_tokenizer(settings, ["the Cat saw  a dog, and ran", "a dog sat"]).save(path)
            found[f"{number}.json"] = path.read_bytes()
    return found


def imported_tokenizer_examples() -> dict[str, bytes]:
    """Files of the library with other models and steps than ours."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    words = {
        word: number
        for number, word in enumerate(["[UNK]", "[CLS]", "[SEP]", "the", "cat", "##s", "\u2581a", "a", "s", "at"])
    }
    piece = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    piece.normalizer = normalizers.BertNormalizer()
    piece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    piece.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    piece.decoder = decoders.WordPiece()
    piece.add_special_tokens(["[CLS]", "[SEP]"])
    unigram = Tokenizer(
        models.Unigram([(word, -float(number)) for word, number in words.items()], 0, byte_fallback=False)
    )
    unigram.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(" ", "\u2581"), normalizers.Prepend("\u2581")]
    )
    unigram.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.Strip(" ", 1, 0)])
    pairs = Tokenizer(
        models.BPE({**words, "at s": 10, "ats": 11}, [("at", "s")], unk_token="[UNK]", byte_fallback=True)
    )
    pairs.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.Metaspace()])
    pairs.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return {f"{number}.json": one.to_str().encode() for number, one in enumerate([piece, unigram, pairs])}


def data_kinds() -> dict[str, Callable[[], Kind]]:
    return {
        "text": lambda: Kind({"a.txt": TEXT, "a.txt.gz": gzip.compress(TEXT)}, of_tables, share=4),
        "tables": lambda: Kind(TABLES, of_tables, share=4),
        "parquet": lambda: Kind(
            {
                "a.parquet": parquet({"text": ["a", "é", None] * 9, "n": list(range(27))}),
                "b.parquet": parquet({"text": ["a" * 99] * 50}),
            },
            of_tables,
        ),
        "labelled": lambda: Kind(
            {**LABELLED, "l.parquet": parquet({"label": ["a", "b"] * 5, "text": ["x", "y"] * 5})}, of_labels
        ),
        "parallel": lambda: Kind(
            {**PAIRS, "p.parquet": parquet({"source": ["a", "b"] * 5, "target": ["x", "y"] * 5})}, of_pairs
        ),
        "tagged": lambda: Kind(CONLL, of_tags, share=4),
        "recipe": lambda: Kind(RECIPES, of_recipes),
        "race settings": lambda: Kind(RACES, of_races, share=0.5),
        "override": lambda: Kind(override_examples(random.Random(1)), of_overrides, share=3),
        "tokenizer": lambda: Kind(tokenizer_examples(), of_tokenizers),
        "imported tokenizer": lambda: Kind(imported_tokenizer_examples(), of_imported_tokenizers),
        "word vectors": lambda: Kind(VECTORS, of_vectors, share=2),
        "arpa": lambda: Kind({"a.arpa": ARPA, "a.arpa.gz": gzip.compress(ARPA)}, of_arpa, share=4),
    }
