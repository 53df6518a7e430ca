"""Tokenizers of the `tokenizers` library that are built like those of well-known models."""

import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

SENTENCES = ["the cat sat on the mat .", "the dog , the DOG ! saw the cats", "naïve café 猫 😀 <a>"] * 3


def byte_level() -> hf.Tokenizer:
    """As GPT-2's."""
    library = hf.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator(SENTENCES, trainer)
    library.add_special_tokens(["</s>"])  # the last id
    return library


def byte_fallback() -> hf.Tokenizer:
    """As Llama 2's: a space before each text, bytes for what is unknown."""
    marks = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    library = hf.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    strip = decoders.Strip(" ", 1, 0)
    library.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip])
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=marks, show_progress=False)
    library.train_from_iterator(SENTENCES, trainer)
    content = library.to_str().replace('"special":true', '"special":false')  # bytes are no marks to leave out
    return hf.Tokenizer.from_str(content)


def word_pieces() -> hf.Tokenizer:
    """As BERT's."""
    library = hf.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=60, special_tokens=["[UNK]", "</s>"], show_progress=False)
    library.train_from_iterator(SENTENCES, trainer)
    return library


def unigrams() -> hf.Tokenizer:
    library = hf.Tokenizer(models.Unigram())
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    marks = ["</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=40, special_tokens=marks, unk_token="<unk>", show_progress=False)
    library.train_from_iterator(SENTENCES, trainer)
    return library


BUILDERS = (byte_level, byte_fallback, word_pieces, unigrams)
