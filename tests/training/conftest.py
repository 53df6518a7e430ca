"""Small models and batches for the training tests."""

import pytest
import torch

from elman.batches import Documents, Stream, TokenStore
from elman.corpus import Document
from elman.models import LanguageModel, StackConfig
from elman.tokenizers import train_tokenizer

TEXTS = ["the cat sat on the mat", "a dog", "the dog saw the cat on a mat and ran", "", "cats ran and ran and ran"] * 8


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    documents = [Document(text, size=len(text) + 1) for text in TEXTS]
    return TokenStore.build(documents, train_tokenizer("word", TEXTS), tmp_path_factory.mktemp("store"), "train")


@pytest.fixture(params=["stream", "documents"])
def batches(request, store):
    if request.param == "stream":
        return Stream(store, 6, 5, seed=1)
    return Documents(store, 6, 5, seed=1)


@pytest.fixture
def make_model(store):
    def make(seed=0, **settings):
        torch.manual_seed(seed)
        config = {"pattern": ["lstm"], "hidden_size": 8, "num_layers": 2, **settings}
        return LanguageModel(StackConfig.make(config), store.vocab_size).double()

    return make
