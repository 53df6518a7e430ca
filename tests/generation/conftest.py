"""Small stand-ins: a recurrent model, a model that is a table, tokenizers over characters and bytes."""

import codecs
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from torch import nn

EOS = 0


class TinyModel(nn.Module):
    """Embedding, one GRU cell, logits. Outputs at padded positions are NaN, to catch whoever reads them."""

    def __init__(self, vocab=29, width=16, seed=0, sharpness=3.0, ending=0.0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.embedding, self.cell, self.head = (
            nn.Embedding(vocab, width),
            nn.GRUCell(width, width),
            nn.Linear(width, vocab),
        )
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)
        with torch.no_grad():
            self.head.weight *= sharpness
            self.head.bias[EOS] += ending
        self.dropout = nn.Dropout(0.5)
        self.rows_seen = []  # how many rows each step had

    def initial_state(self, batch):
        return (self.head.weight.new_zeros(batch, self.cell.hidden_size),)

    def step(self, token, state):
        self.rows_seen.append(len(token))
        hidden = self.cell(self.embedding(token), state[0])
        return self.head(self.dropout(hidden)), (hidden,)

    def forward(self, tokens, state, lengths):
        outputs = []
        for time in range(tokens.shape[1]):
            logits, new = self.step(tokens[:, time], state)
            real = (time < lengths).unsqueeze(1)
            state = (torch.where(real, new[0], state[0]),)
            outputs.append(torch.where(real, logits, torch.nan))
        return torch.stack(outputs, dim=1), state


class TableModel:
    """The next token depends on the last one only: a row of logits for each token. Not a module."""

    def __init__(self, table):
        self.table = torch.as_tensor(table, dtype=torch.float32)

    def initial_state(self, batch):
        return ()

    def forward(self, tokens, state, lengths):
        return self.table[tokens], state

    def step(self, token, state):
        return self.table[token], state


def script(text, tokenizer, strength=50.0):
    """A table model that writes these tokens, one after another, then the end: greedy text, each token once."""
    ids = [EOS, *tokenizer.encode(text), EOS]
    table = torch.zeros(tokenizer.vocab_size, tokenizer.vocab_size)
    for here, after in pairwise(ids):
        table[here, after] = strength
    return TableModel(table)


class AnyLength:
    unk_id = None

    def check_length(self, tokens):
        """No text is too long."""


class Characters(AnyLength):
    eos_id = start_id = EOS

    def __init__(self, alphabet="abcdefghijklmnopqrstuvwxyz -"):
        self.alphabet = alphabet
        self.vocab_size = len(alphabet) + 1

    def encode(self, text):
        return [self.alphabet.index(character) + 1 for character in text]

    def decode(self, ids):
        return "".join(self.alphabet[token - 1] for token in ids)


class Bytes(AnyLength):
    eos_id = start_id = EOS
    vocab_size = 257

    def encode(self, text):
        return [byte + 1 for byte in text.encode()]

    def decode(self, ids):
        return bytes(token - 1 for token in ids).decode(errors="replace")


class Words(AnyLength):
    """One token a word; a space goes between words, not before the first."""

    eos_id = start_id = EOS

    def __init__(self, words):
        self.words = words
        self.vocab_size = len(words) + 1

    def encode(self, text):
        return [self.words.index(word) + 1 for word in text.split()]

    def decode(self, ids):
        return " ".join(self.words[token - 1] for token in ids)


class StreamDecoder:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.begin()

    def begin(self):
        self.started = False
        self.bytes = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token):
        if isinstance(self.tokenizer, Bytes):
            return self.bytes.decode(bytes([token - 1]))
        space = " " if isinstance(self.tokenizer, Words) and self.started else ""
        self.started = True
        return space + self.tokenizer.decode([token])

    def flush(self):
        rest = self.bytes.decode(b"", final=True)
        self.begin()
        return rest


@pytest.fixture(scope="module", autouse=True)
def _decoder():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elman.tokenizers.StreamDecoder", StreamDecoder, raising=False)
        yield


@pytest.fixture(scope="session")
def fake():
    return SimpleNamespace(
        TinyModel=TinyModel, TableModel=TableModel, Characters=Characters, Bytes=Bytes, Words=Words, script=script
    )
