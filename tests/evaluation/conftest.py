"""Small stand-ins: a recurrent model with losses, batches with fresh and with carried state, words as tokens."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from elman.batches import Batch

EOS, UNK = 0, 1


class TinyModel(nn.Module):
    """Embedding, one GRU cell, logits. Outputs at padded positions are NaN, to detect any use of them."""

    def __init__(self, vocab=12, width=8, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.embedding, self.cell = nn.Embedding(vocab, width), nn.GRUCell(width, width)
        self.head, self.dropout = nn.Linear(width, vocab), nn.Dropout(0.5)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.7, generator=generator)

    def initial_state(self, batch):
        return (self.head.weight.new_zeros(batch, self.cell.hidden_size),)

    def forward(self, tokens, state, lengths=None):
        lengths = torch.full((len(tokens),), tokens.shape[1]) if lengths is None else lengths
        outputs = []
        for time in range(tokens.shape[1]):
            new = self.cell(self.embedding(tokens[:, time]), state[0])
            real = (time < lengths).unsqueeze(1)
            outputs.append(torch.where(real, self.head(self.dropout(new)), torch.nan))
            state = (torch.where(real, new, state[0]),)
        return torch.stack(outputs, dim=1), state

    def losses(self, inputs, targets, state, lengths=None):
        logits, state = self.forward(inputs, state, lengths)
        return -logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1), state


class Documents:
    """Each document, with its end, begins fresh; longest first, long ones in chunks of `length`."""

    def __init__(self, documents, batch_size, length):
        self.documents, self.batch_size, self.length = sorted(documents, key=len, reverse=True), batch_size, length

    def epoch(self, number, start=0):
        for first in range(0, len(self.documents), self.batch_size):
            group = self.documents[first : first + self.batch_size]
            for begin in range(0, len(group[0]) + 1, self.length):
                rows = [([EOS, *document], [*document, EOS]) for document in group if len(document) + 1 > begin]
                yield batch_of(rows, slice(begin, begin + self.length), begin == 0)


class Lanes:
    """One text in parallel streams with carried state; the first ones may be longer by one."""

    def __init__(self, documents, lanes, length):
        targets = [token for document in documents for token in [*document, EOS]]
        inputs = [EOS, *targets[:-1]]
        size, extra = divmod(len(targets), lanes)
        cuts = [lane * size + min(lane, extra) for lane in range(lanes + 1)]
        self.rows = [(inputs[a:b], targets[a:b]) for a, b in pairwise(cuts)]
        self.length = length

    def epoch(self, number, start=0):
        for begin in range(0, len(self.rows[0][0]), self.length):
            yield batch_of(
                [row for row in self.rows if len(row[0]) > begin], slice(begin, begin + self.length), begin == 0
            )


def batch_of(rows, span, fresh):
    parts = [(inputs[span], targets[span]) for inputs, targets in rows]
    lengths = [len(inputs) for inputs, _ in parts]
    width = max(lengths)
    inputs, targets = (
        torch.tensor([part[which] + [EOS] * (width - len(part[which])) for part in parts]) for which in (0, 1)
    )
    return Batch(inputs, targets, None if min(lengths) == width else torch.tensor(lengths), fresh)


class Words:
    """One token a word, `<unk>` for others."""

    eos_id, start_id, unk_id = EOS, EOS, UNK

    def __init__(self, words):
        self.ids = {word: number + 2 for number, word in enumerate(words)}
        self.vocab_size = len(words) + 2

    def encode(self, text):
        return [self.ids.get(word, UNK) for word in text.split()]


def facts(documents, **known):
    tokens = sum(len(document) + 1 for document in documents)
    usual = {
        "bytes": 5 * tokens,
        "characters": 4 * tokens,
        "words": tokens,
        "unknowns": 0,
        "unknown_bytes": 0,
        "surface": 0.0,
    }
    return SimpleNamespace(documents=len(documents), tokens=tokens, **usual | known)


@pytest.fixture(scope="session")
def fake():
    return SimpleNamespace(TinyModel=TinyModel, Documents=Documents, Lanes=Lanes, Words=Words, facts=facts)
