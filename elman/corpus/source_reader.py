"""Reads one source: its bytes in chunks, checked and decompressed, with all repairs of its text."""

import gzip
import re
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from elman.corpus.config import DataConfig
from elman.corpus.document import Repairs
from elman.corpus.sources import Source, open_file
from elman.errors import DataError
from elman.limits import VARIABLE, limits

CHUNK = 2**18  # bytes
NUL_SHARE = 0.3  # Latin text in UTF-16 has one NUL in two bytes; damaged UTF-8 has far fewer
MAGIC = {
    b"\x1f\x8b": "gzip data without .gz in its name",
    b"PK\x03\x04": "a zip archive",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ\0": "xz data",
    b"\x28\xb5\x2f\xfd": "zstandard data",
    b"PAR1": "a parquet file",
    b"%PDF-": "a PDF document",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
}
SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass
class SourceReader:
    """A source, the settings for reading it, and the counter of repairs."""

    source: Source
    config: DataConfig
    repairs: Repairs
    share_read: float = 0.0
    """How much of the source was read, from 0 to 1, where its size is known."""
    binary: bool = False
    """Whether it may hold something other than text."""

    def error(
        self, reason: str, line: int | None = None, column: str | int | None = None, remedy: str | None = None
    ) -> DataError:
        return DataError(reason, file=self.source.name, line=line, column=column, remedy=remedy)

    def too_long(self, line: int, hint: str = "") -> DataError:
        limit = self.config.max_record_bytes
        return self.error(f"the record is longer than {limit} bytes{hint}", line, remedy="raise data.max_record_bytes")

    def repair(self, kind: str, line: int = 0) -> None:
        self.repairs.add(kind, self.source.name, line)

    def chunks(self) -> Iterator[bytes]:
        """The decompressed bytes of the source; an error if the first chunk is clearly not UTF-8 text."""
        total = 0
        ahead = deque[tuple[bytes, float]]()  # a compressed file is read ahead, so that a zip bomb is found at once
        most_ahead = limits().unpacked_bytes // CHUNK + 1 if self.source.zipped else 0
        try:
            packed = self.source.path.stat().st_size
            with open_file(self.source.path) as raw, gzip.open(raw, "rb") if self.source.zipped else raw as file:
                while chunk := file.read(CHUNK):
                    if total == 0:
                        self._check_head(chunk)
                    total += len(chunk)
                    if self.source.zipped:
                        self.check_unpacked(total, raw.tell())
                    ahead.append((chunk, raw.tell() / max(1, packed)))
                    if len(ahead) > most_ahead:
                        chunk, self.share_read = ahead.popleft()
                        yield chunk
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            remedy = "download or compress it again"
            raise self.error(f"damaged gzip data after {total} bytes: {error}", remedy=remedy) from None
        except OSError as error:
            raise self.error(f"cannot be read: {error.strerror or error}") from None
        for chunk, self.share_read in ahead:
            yield chunk
        if total == 0:
            self.repair("empty file")

    def check_unpacked(self, size: int, packed: int) -> None:
        """Raises where so many packed bytes would become too many."""
        most = limits()
        if size > max(most.unpacked_bytes, most.unpacked_ratio * packed):
            remedy = f"unpack it yourself if you trust it, or set unpacked_ratio in {VARIABLE}"
            raise self.error(f"unpacks to more than {most.unpacked_ratio} times its size", remedy=remedy)

    def _check_head(self, head: bytes) -> None:
        utf16 = head.startswith((b"\xff\xfe", b"\xfe\xff"))
        if utf16 or (not self.binary and head.count(0) > NUL_SHARE * len(head)):
            found = "UTF-16 or UTF-32 text" if utf16 else "full of NUL bytes: UTF-16 text or not text at all"
            raise self.error(found, remedy="convert it: iconv -f UTF-16 -t UTF-8")
        for magic, kind in MAGIC.items():
            if head.startswith(magic):
                raise self.error(f"is {kind}, not plain text", remedy="decompress or convert it to UTF-8 text first")

    def decode(self, raw: bytes, line: int) -> str:
        """One or more lines of UTF-8 as text, repaired line by line if needed."""
        try:
            if b"\0" not in raw:
                return raw.decode()
        except UnicodeDecodeError:
            pass
        return "".join(self.mend(part, line + index) for index, part in enumerate(raw.splitlines(keepends=True)))

    def mend(self, raw: bytes, line: int) -> str:
        """Like `decode`, but counted as one line."""
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            self._invalid("invalid UTF-8", line, error.start + 1)
            text = raw.decode(errors="replace")
        return self.clean(text, line)

    def clean(self, text: str, line: int) -> str:
        """Text without NUL and without unpaired surrogates, which JSON escapes can produce."""
        if "\0" in text:
            self._invalid("NUL byte", line, text.index("\0") + 1)
            text = text.replace("\0", "")
        if match := SURROGATES.search(text):
            self._invalid("unpaired surrogate", line, match.start() + 1)
            text = SURROGATES.sub("\ufffd", text)
        return text

    def _invalid(self, kind: str, line: int, column: int) -> None:
        if self.config.invalid == "error":
            raise self.error(kind, line, column, remedy="data.invalid: repair replaces and counts these")
        self.repair(kind, line)
