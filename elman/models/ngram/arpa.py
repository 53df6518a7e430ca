"""Reads and writes ARPA files, the common format of n-gram models.

`<eos>` is `<s>` as a context and `</s>` as a word. Whitespace inside a token, and tokens that look like these marks,
are escaped: `\\u{20}`.
"""

import gzip
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from elman.errors import DataError
from elman.models.ngram.model import NGram
from elman.models.ngram.tables import ZERO, sort_with_permutation
from elman.tokenizers import EOS, EOS_ID

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
NEVER = -99.0  # log10(0) in this format
ESCAPED = re.compile(r"\\u\{([0-9a-f]+)\}")
NOT_IN_A_LINE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")

Reals = NDArray[np.float64]


def write_arpa(model: NGram, words: Sequence[str], path: str | Path) -> None:
    """`words` are the texts of all tokens by id, such as `[tokenizer.token(id) for id in
    range(tokenizer.vocab_size)]`."""
    assert len(words) == model.vocab_size, f"{len(words)} words for a vocabulary of {model.vocab_size}"
    with _open(path, "wt") as file:
        file.write("\\data\\\n")
        for length, table in enumerate(model.tables, 1):
            file.write(f"ngram {length}={len(table.log_prob) + (length == 1)}\n")
        endings = [END if id == EOS_ID else _escape(word) for id, word in enumerate(words)]
        texts = [BEGIN, *endings[1:]]
        for length, table in enumerate(model.tables, 1):
            file.write(f"\n\\{length}-grams:\n")
            log_probs, backoffs = _log10(table.log_prob), _log10(table.backoff)
            if length == 1:
                file.write(f"{NEVER:g}\t{BEGIN}\t{next(iter(backoffs), 0):.7g}\n")
                backoffs[:1], lines = [0.0], endings
            else:
                contexts, ends = np.divmod(table.keys.cpu().numpy(), model.vocab_size)
                pairs = zip(contexts.tolist(), ends.tolist(), strict=True)
                lines = texts = [f"{texts[context]} {endings[word]}" for context, word in pairs]
            if length < model.order:
                rows = zip(log_probs, lines, backoffs, strict=True)
                file.writelines(f"{log_prob:.7g}\t{line}\t{backoff:.7g}\n" for log_prob, line, backoff in rows)
            else:
                file.writelines(f"{log_prob:.7g}\t{line}\n" for log_prob, line in zip(log_probs, lines, strict=True))
        file.write("\n\\end\\\n")


def read_arpa(path: str | Path, words: Sequence[str] | None = None) -> tuple[NGram, list[str]]:
    """The model, and the text of each token by id. With the `words` of a tokenizer, the model uses its ids, and words
    missing in the file get the probability of `<unk>`; otherwise ids follow the file, after `<eos>`."""
    found: dict[str, int] = {}
    vocabulary: list[str] = []
    model: NGram | None = None
    for length, order, section in _sections(path):
        if length == 1:
            own = [text for text in section.texts if text not in (BEGIN, END)]
            vocabulary = [EOS, *map(_unescape, own)] if words is None else list(words)
            spelled = own if words is None else map(_escape, vocabulary[1:])
            found = {BEGIN: EOS_ID, END: EOS_ID, **{text: id for id, text in enumerate(spelled, 1)}}
            model = NGram(NGram.Config(order=order), len(vocabulary))
            log_prob, backoff = _unigrams(section, found, len(vocabulary))
            model.tables[0].fill((), log_prob, backoff if order > 1 else ())
        elif model is not None:
            _fill(model, length, section, found, path)
    if model is None:
        raise DataError("not an ARPA file: it has no section \\1-grams:", file=path)
    try:
        model.check()
    except ValueError as error:
        raise DataError(str(error), file=path) from None
    return model, vocabulary


class _Section(NamedTuple):
    log_prob: Reals
    texts: list[str]
    backoff: Reals
    line: int  # first line in the file


def _unigrams(section: _Section, found: dict[str, int], size: int) -> tuple[Reals, Reals]:
    unknown = section.log_prob[section.texts.index(UNKNOWN)] if UNKNOWN in section.texts else ZERO
    log_prob, backoff = np.full(size, unknown), np.zeros(size)
    for text, own, weight in zip(section.texts, section.log_prob.tolist(), section.backoff.tolist(), strict=True):
        id = found.get(text)
        if id is not None and text != BEGIN:
            log_prob[id] = own
        if id is not None and text != END:
            backoff[id] = weight
    return log_prob, backoff


def _fill(model: NGram, length: int, section: _Section, found: dict[str, int], path: str | Path) -> None:
    rows = [[found.get(part, -1) for part in text.split(" ")] for text in section.texts]
    for row, numbers in enumerate(rows):
        if len(numbers) != length:
            raise DataError(f"{section.texts[row]!r} is not {length} words", file=path, line=section.line + row)
    ids = torch.tensor(rows, dtype=torch.int64).reshape(-1, length)
    known = (ids >= 0).all(1)  # others are not in the vocabulary
    context = ids[:, 0]
    for table, word in zip(model.tables[1 : length - 1], ids.T[1:-1], strict=True):
        context = table.find(context, word)
    for row in (known & (context < 0)).nonzero().flatten().tolist():
        text = section.texts[row]
        raise DataError(f"the context of {text!r} is not in the file", file=path, line=section.line + row)
    keys, order = sort_with_permutation((context * model.vocab_size + ids[:, -1])[known].numpy())
    if (keys[1:] == keys[:-1]).any():
        raise DataError(f"duplicate n-gram of length {length}", file=path, line=section.line)
    log_prob, backoff = section.log_prob[known.numpy()][order], section.backoff[known.numpy()][order]
    model.tables[length - 1].fill(keys, log_prob, backoff if length < model.order else ())


def _sections(path: str | Path) -> Iterator[tuple[int, int, _Section]]:
    """Yields (length, highest length, section) with log-probabilities in nats."""
    with _open(path, "rt") as file:
        lines = enumerate(file, 1)
        sizes: dict[int, int] = {}
        for number, text in lines:
            line = text.strip()
            if match := re.fullmatch(r"ngram (\d+)\s*=\s*(\d+)", line):
                sizes[int(match[1])] = int(match[2])
            elif match := re.fullmatch(r"\\(\d+)-grams:", line):
                length = int(match[1])
                if length not in sizes:
                    raise DataError(f"no count given for {line}", file=path, line=number)
                section = _section(path, number + 1, (next(lines, (0, ""))[1] for _ in range(sizes[length])))
                yield length, max(sizes), section
            elif line == "\\end\\":
                return
        remedy = "the file is truncated; copy or create it again"
        raise DataError("the file ends before \\end\\", file=path, remedy=remedy)


def _section(path: str | Path, first: int, lines: Iterable[str]) -> _Section:
    rows: list[tuple[float, str, float]] = []
    for number, line in enumerate(lines, first):
        parts = line.rstrip("\r\n").split("\t")
        try:
            rows.append((float(parts[0]), parts[1], float(parts[2]) if len(parts) > 2 else 0.0))
        except (IndexError, ValueError):
            reason = f"{line.strip()!r} is not `log10 TAB words [TAB log10]`"
            raise DataError(reason, file=path, line=number) from None
    log_probs, texts, backoffs = zip(*rows, strict=True) if rows else ((), (), ())
    return _Section(_nats(log_probs), list(texts), _nats(backoffs), first)


def _log10(values: Any) -> list[float]:
    numbers = values.double().cpu().numpy() / math.log(10)
    return np.where(numbers < ZERO / 10, NEVER, numbers).tolist()


def _nats(values: Sequence[float]) -> Reals:
    numbers = np.array(values, dtype=np.float64)
    return np.where(numbers <= NEVER, ZERO, numbers * math.log(10))


def _escape(word: str) -> str:
    if word in (BEGIN, END):
        word = _code(word[0]) + word[1:]
    elif ESCAPED.search(word):
        word = word.replace("\\", _code("\\"))
    return NOT_IN_A_LINE.sub(lambda match: _code(match[0]), word)


def _code(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"


def _unescape(text: str) -> str:
    return ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def _open(path: str | Path, mode: str) -> Any:
    opener: Any = gzip.open if str(path).endswith(".gz") else open
    return opener(path, mode, encoding="utf-8", newline="\n")
