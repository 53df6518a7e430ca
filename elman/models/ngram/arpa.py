"""Reads and writes ARPA files, the common format of n-gram models.

`<eos>` is `<s>` as a context and `</s>` as a word. Whitespace inside a token, and tokens that look like these marks,
are escaped: `\\u{20}`.
"""

import gzip
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from elman.corpus.config import DataConfig
from elman.corpus.document import Repairs
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import locate
from elman.corpus.text import whole_lines
from elman.errors import DataError, brief
from elman.limits import check_limit
from elman.models.ngram.model import NGram
from elman.models.ngram.tables import ZERO, sort_with_permutation
from elman.tokenizers import EOS, EOS_ID

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
NEVER = -99.0  # log10(0) in this format
ROUNDING, LARGEST = 1e-5, 1000  # of logarithms: certain words may have one a little above 0
ESCAPED = re.compile(r"\\u\{([0-9a-f]{1,9})\}")
SURROGATES = range(0xD800, 0xE000)
NOT_IN_A_LINE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")

Reals = NDArray[np.float64]


def write_arpa(model: NGram, words: Sequence[str], path: str | Path, packed: bool | None = None) -> None:
    """`words` are the texts of all tokens by id, such as `[tokenizer.token(id) for id in
    range(tokenizer.vocab_size)]`. `packed` by gzip, or by default if the name ends in .gz."""
    assert len(words) == model.vocab_size, f"{len(words)} words for a vocabulary of {model.vocab_size}"
    packed = str(path).endswith(".gz") if packed is None else packed
    opener: Any = gzip.open if packed else open
    with opener(path, "wt", encoding="utf-8", newline="\n") as file:
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
            _check(path, section.line, "vocabulary", len(section.texts), f"the file has {len(section.texts)} words")
            if twice := [text for text, times in Counter(section.texts).items() if times > 1]:
                raise DataError(f"duplicate word {brief(twice[0])}", file=path, line=section.line)
            own = [text for text in section.texts if text not in (BEGIN, END)]
            vocabulary = [EOS, *map(_unescape, own)] if words is None else list(words)
            spelled = own if words is None else map(_escape, vocabulary[1:])
            found = {BEGIN: EOS_ID, END: EOS_ID, **{text: id for id, text in enumerate(spelled, 1)}}
            model = NGram(NGram.Config(order=order), len(vocabulary))
            log_prob, backoff = _unigrams(section, found, len(vocabulary))
            model.tables[0].fill((), log_prob, backoff if order > 1 else ())
        elif model is not None:
            _fill(model, length, section, found, path)
    assert model is not None, "a file without sections is refused"
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
    """Yields (length, highest length, section) with log-probabilities in nats; lengths are 1, 2, … without a gap."""
    lines, number = _lines(path), 0
    sizes: list[int] = []
    done = -1  # sections read; -1 before \\data\\
    for number, line in lines:
        if not line.strip() or (done < 0 and line.strip() != "\\data\\"):
            continue
        if done < 0:
            done = 0
        elif match := re.fullmatch(r"ngram +(\d{1,18}) *= *(\d{1,18})", line.strip()):
            if done or int(match[1]) != len(sizes) + 1:
                raise DataError(f"{line.strip()!r} is out of order", file=path, line=number)
            sizes.append(int(match[2]))
            _check(path, number, "order", len(sizes), f"the order is {len(sizes)}")
        elif match := re.fullmatch(r"\\(\d{1,18})-grams:", line.strip()):
            done += 1
            if int(match[1]) != done:
                raise DataError(f"\\{done}-grams: should come before {line.strip()}", file=path, line=number)
            if done > len(sizes):
                raise DataError(f"no count given for {line.strip()}", file=path, line=number)
            yield done, len(sizes), _section(path, number + 1, done, islice(lines, sizes[done - 1]), sizes[done - 1])
        elif line.strip() == "\\end\\":
            if done < max(1, len(sizes)):
                raise DataError(f"it has no section \\{done + 1}-grams:", file=path, line=number)
            return
        else:
            reason = f"{brief(line.strip())} is no part of an ARPA file here; or a count is too small"
            raise DataError(reason, file=path, line=number)
    reason = "not an ARPA file: it has no line \\data\\" if done < 0 else "the file ends before \\end\\"
    raise DataError(reason, file=path, line=number or None, remedy="the file is truncated; copy or create it again")


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    sources = locate(str(path), "text")
    if len(sources) > 1:
        raise DataError("is a folder, not an ARPA file", file=path)
    for line in whole_lines(SourceReader(sources[0], DataConfig(), Repairs())):
        try:
            yield line.number, line.raw.decode()
        except UnicodeDecodeError as error:
            raise DataError("invalid UTF-8", file=path, line=line.number, column=error.start + 1) from None


def _section(path: str | Path, first: int, length: int, lines: Iterable[tuple[int, str]], size: int) -> _Section:
    rows: list[tuple[float, str, float]] = []
    for number, line in lines:
        try:
            log_prob, text, backoff = f"{line}\t0".split("\t")[:3]
            row = float(log_prob), text, float(backoff)
        except ValueError:
            reason = f"{brief(line.strip())} is not `log10 TAB words [TAB log10]`"
            raise DataError(reason, file=path, line=number) from None
        if not (row[0] < ROUNDING and abs(row[2]) < LARGEST):  # NaN neither
            reason = f"{brief(line.strip())} has a probability above 1 or a back-off that is no number"
            raise DataError(reason, file=path, line=number)
        words = text.split(" ")
        if len(words) != length or "" in words:
            raise DataError(f"{brief(text)} is not {length} words", file=path, line=number)
        rows.append(row)
    if len(rows) < size:
        reason = f"the file ends after {len(rows)} of {size} {length}-grams"
        raise DataError(reason, file=path, line=first + len(rows), remedy="copy or create it again")
    log_probs, texts, backoffs = zip(*rows, strict=True) if rows else ((), (), ())
    return _Section(_nats(log_probs), list(texts), _nats(backoffs), first)


def _check(path: str | Path, line: int, limit: str, size: int, what: str) -> None:
    check_limit(limit, size, what, lambda reason: DataError(reason, file=path, line=line))


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
    """Codes of no character are left as they are."""
    codes = {code: int(code, 16) for code in ESCAPED.findall(text)}
    valid = {code for code, number in codes.items() if number < sys.maxunicode + 1 and number not in SURROGATES}
    return ESCAPED.sub(lambda match: chr(codes[match[1]]) if match[1] in valid else match[0], text)
