"""Predicts files: every record keeps its fields, and gets those of its answer.

A long job is resumable. Each group of records becomes a file in `OUT.parts`, named after a hash of the records, the
model and the settings. The same command reads the records again, predicts those without a file, and joins all parts.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch

import elman
from elman import files
from elman.batches.groups import groups
from elman.corpus.config import CONLL, RECORD_FORMATS, TEXT, WORDS, Column, Names, Record, Table, TwoColumnConfig
from elman.corpus.document import Repairs
from elman.corpus.record_formats import require_column
from elman.corpus.record_writers import RECORD_WRITERS, Answered, RecordWriter, writer_format
from elman.corpus.source_reader import CHUNK, SourceReader
from elman.corpus.sources import STANDARD_INPUT, locate, spool
from elman.corpus.table_detection import reject_tables
from elman.errors import ConfigError, DataError
from elman.pipeline.tasks.settings import Settings
from elman.pipeline.trained_model import TrainedModel
from elman.runs.lock import file_lock

PART_RECORDS = 8192
RELEASE_RECORDS = 2 * PART_RECORDS  # after which freed memory goes back; more often costs time
PROBE = "<mask>"  # a text that every task answers
ANSWER = "predicted_"  # prefix of a column of the answers whose name the records use
Progress = Callable[[int, float], None]  # records done, share of the input read


class StreamReader(SourceReader):
    """Reads standard input as it comes."""

    def chunks(self) -> Iterator[bytes]:
        stream: Any = sys.stdin.buffer
        yield from iter(lambda: stream.read1(CHUNK), b"")


@dataclass
class TablePrediction:
    """The answers of a model for the records of a file, or of standard input (`-`).

    `form` is the format of the input and `to` that of the output, where file names do not say them; `columns` are
    those that the model reads, where their names do not say it.
    """

    model: TrainedModel
    data: str
    form: str | None = None
    to: str | None = None
    columns: list[Column] | None = None
    probabilities: bool = False
    min_probability: float = 0.0
    search: Settings = field(default_factory=dict)
    _known_inputs: dict[Names, dict[str, str]] = field(default_factory=dict, init=False)

    def to_stream(self, write: Callable[[bytes], Any]) -> None:
        """Writes each answer as soon as it is there."""
        writer = self._writer(self.to or self._form)
        if not writer.streams:
            raise ConfigError(f"{self.to or self._form} is written to a file only: add --out FILE, or choose with --to")
        write(writer.head())
        for row in self._answered(self._table.records):
            write(writer.part([row]))

    def to_file(self, out: Path, progress: Progress = lambda done, share: None) -> int:
        """Writes a file, which replaces an existing one when it is complete; returns the number of records."""
        if self.data != str(STANDARD_INPUT) and out.exists() and out.samefile(self._reader.source.path):
            raise ConfigError(f"--out {out}: is the input; give another name")
        writer = self._writer(self.to or writer_format(str(out)))
        folder, parts = out.with_name(f"{out.name}.parts"), list[Path]()
        files.make_folder(folder)
        with file_lock(folder / "lock"):
            files.clean_leftovers(folder)
            done = self._write_parts(folder, writer, parts, progress)
            with files.new_file(temporary := files.temporary_path(folder / "joined")) as joined:
                writer.join(parts, joined)
            files.rename(temporary, out)
            files.sync_folder(out.parent)
        files.remove(folder)
        return done

    def _write_parts(self, folder: Path, writer: RecordWriter, parts: list[Path], progress: Progress) -> int:
        """Predicts those that are not there, while the records of the next ones are read; returns the number of
        records."""
        done, begun = 0, False

        def records() -> Iterator[Record]:
            nonlocal done, begun
            for number, group in enumerate(groups(self._table.records, PART_RECORDS)):
                parts.append(folder / self._part_name(number, writer, group))
                if not begun and parts[-1].exists():
                    done += len(group)
                    progress(done, self._reader.share_read)
                    continue
                begun = True  # also if later parts are there: answers are to be without gaps
                yield from group

        rest = records()
        first = next(rest, None)
        answered = self._answered(chain([first], rest), done, PART_RECORDS) if first else iter(())
        written = len(parts) - 1
        while rows := list(islice(answered, PART_RECORDS)):
            files.atomic_write(parts[written], writer.part(rows))
            done, written = done + len(rows), written + 1
            progress(done, self._reader.share_read)
        return done

    @property
    def repairs(self) -> list[str]:
        return self._reader.repairs.describe()

    @property
    def notes(self) -> list[str]:
        return self.model.task.pop_notes()

    # Input

    @cached_property
    def _form(self) -> str:
        """The format of the input; CoNLL is not among the record formats, since its records are sentences."""
        (source,) = self._sources
        named = source.name.lower().removesuffix(".gz").endswith(RECORD_WRITERS[CONLL].suffixes)
        form = self.form or (CONLL if named else source.format)
        if form not in (TEXT, WORDS, CONLL, *RECORD_FORMATS):
            raise RECORD_FORMATS.unknown(form, also=(TEXT, WORDS, CONLL))
        return form

    @cached_property
    def _sources(self) -> list[Any]:
        found = locate(self.data)
        if len(found) != 1:
            raise ConfigError(f"--data {self.data}: names {len(found)} files; predict one after the other")
        return found

    @cached_property
    def _reader(self) -> SourceReader:
        source, config = replace(self._sources[0], format=self._form), self.model.recipe.data
        if source.path != STANDARD_INPUT:
            return SourceReader(source, config, Repairs())
        if self._form == "parquet":  # its index is at the end
            return SourceReader(spool(source, self), config, Repairs())
        return StreamReader(source, config, Repairs())

    @cached_property
    def _table(self) -> Table:
        numbered = any(isinstance(column, int) for column in self._asked_columns)  # then tables have no header
        table = self.model.task.open_table(self._reader, self.model.recipe, header=not numbered)
        if self._form == TEXT and self.form is None:
            names = {*map(str, self._asked_columns), *self.model.task.inputs}
            return table._replace(records=reject_tables(self._reader, table.records, names))
        first = next(table.records, None) if numbered and not self.columns else None
        if first is None:
            return table
        if not {*first.values} & {*self.model.task.inputs}:
            return table._replace(records=chain([first], table.records))
        records = (record._replace(names=first.values) for record in table.records)  # other than in training
        return table._replace(names=first.values, records=records)

    @property
    def _has_header(self) -> bool:
        return self._table.names[:1] != ("1",)

    @cached_property
    def _asked_columns(self) -> list[Column]:
        """What --columns names, or what the columns were in training: the first input, and a target to score."""
        task, data = self.model.task, self.model.recipe.data
        if not isinstance(data, TwoColumnConfig):
            return self.columns or [data.column]
        columns = self.columns or data.columns or list(data.sides)
        if len(columns) == 2 and not task.has_targets:  # label and text
            return columns[data.sides.index(task.inputs[0]) :][:1]
        return columns

    def _inputs(self, names: Names, line: int | None) -> dict[str, str]:
        """The column that each input of the task is read from."""
        task = self.model.task
        asked = [str(column) for column in self._asked_columns]
        stripped = {name.strip(): name for name in names}
        if self.columns:
            found = [stripped[require_column(self._reader, stripped, column, line)] for column in asked]
            return dict(zip([task.inputs[0], "target"], found, strict=False))
        inputs = {name: stripped[name] for name in task.inputs if name in stripped}
        if asked[0] in stripped and asked[0] not in inputs:
            inputs = {task.inputs[0]: stripped[asked[0]]}
        if not inputs and self._form != "jsonl":  # whose records say themselves what they lack
            require_column(self._reader, stripped, asked[0], line)
        target = next((stripped[name] for name in (*asked[1:], "target") if name in stripped), None)
        return {**inputs, "target": target} if target and task.has_targets else inputs

    def _line(self, record: Record) -> Settings:
        """What the task predicts for a record."""
        if record.names not in self._known_inputs:
            self._known_inputs[record.names] = self._inputs(record.names, record.line or None)
        values = dict(zip(record.names, record.values, strict=True))
        chosen = {name: values[column] for name, column in self._known_inputs[record.names].items()}
        return {name: _text(value) for name, value in (chosen or values).items()}

    # Output

    def _writer(self, form: str) -> RecordWriter:
        form = TEXT if form == WORDS else form if form in RECORD_WRITERS else "jsonl"
        return RECORD_WRITERS[form](self._table, self._added, self._has_header, self.model.task.format)

    @cached_property
    def _added(self) -> Names:
        """Names of the columns of an answer."""
        (row,) = self._answered(iter([Record(self._table.names, (PROBE,) * len(self._table.names), 0)]))
        self.model.task.pop_notes()
        return tuple(row.columns)

    def _answered(self, records: Iterator[Record], first: int = 0, window: int | None = None) -> Iterator[Answered]:
        """Each record with its answer; `first` is the number of records before, `window` how many tasks may predict
        together: their answers must not depend on where a job began again."""
        waiting, done, task = deque[tuple[Record, Settings]](), 0, self.model.task
        task.window = window
        search = {**self.search, **({"first_line": first} if task.searches else {})}

        def lines() -> Iterator[Settings]:
            for record in records:
                waiting.append((record, self._line(record)))
                yield waiting[-1][1]

        try:
            least = self.min_probability
            for answer in self.model.predict(
                lines(), probabilities=self.probabilities, min_probability=least, **search
            ):
                (record, given), done = waiting.popleft(), done + 1
                if done % RELEASE_RECORDS == 0:
                    from elman.memory import release_freed  # not needed by short jobs

                    release_freed()
                yield Answered(record, answer, partial(self._named, given))
        except DataError as error:
            if error.file is not None or error.line is None:
                raise
            line, file = waiting[error.line - done - 1][0].line, self._reader.source.name
            raise DataError(error.reason, file=file, line=line, remedy=error.remedy) from None

    def _named(self, given: Settings, row: Answered, columns: bool) -> Settings:
        """What an answer says beside what was `given`, under names that the record does not use."""
        new = {name: value for name, value in row.answer.items() if name not in given or given[name] != value}
        new = self.model.task.answer_columns(new) if columns else new
        own, names = self._table.names, row.record.names
        return {f"{ANSWER}{name}" if name in own or name in names else name: value for name, value in new.items()}

    # Parts of a file

    @cached_property
    def _job(self) -> bytes:
        """Hash of what answers depend on, besides the records."""
        settings = [
            elman.__version__,
            self.probabilities,
            self.min_probability,
            self._asked_columns,
            self.model.with_search(self.search).plain(),
        ]
        told = blake2b(repr(settings).encode())
        for name, values in self.model.model.state_dict().items():
            told.update(name.encode())
            told.update(values.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return told.digest()

    def _part_name(self, number: int, writer: RecordWriter, records: list[Record]) -> str:
        told = blake2b(self._job, digest_size=16)
        for record in records:
            told.update(repr(tuple(record)).encode())
        return f"{number:08d}-{told.hexdigest()}.{writer.name}"


def _text(value: Any) -> Any:
    """A value as the model was trained on it: line breaks are \\n."""
    if value is None:
        return ""
    return value.replace("\r\n", "\n").replace("\r", "\n") if isinstance(value, str) and "\r" in value else value
