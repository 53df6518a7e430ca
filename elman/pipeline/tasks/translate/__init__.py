"""Translation: any sequence from any other, by an encoder-decoder or all tokens at once."""
