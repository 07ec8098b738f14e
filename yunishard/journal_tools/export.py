"""The command `yunishard journal export`: the steps in full, or one file from which a journal can be replayed."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from yunishard.common.process.folders import make_temporary_folder
from yunishard.common.text_formats import format_count
from yunishard.journal_tools.anonymise import collect_names
from yunishard.journal_tools.export_file import (
    SUFFIXES,
    ExportReader,
    Transform,
    make_head,
    open_to_write,
    write_export,
)
from yunishard.journal_tools.inspection import expand_step, notify
from yunishard.journal_tools.views import Source


def export_journal(source: Source, args: argparse.Namespace) -> None:
    """Write every step as a line of JSON; with `--complete` or `--anonymise` also what a replay needs.

    Raises:
        OSError: the options contradict each other, or a file cannot be written.
    """
    if args.names and not args.anonymise:
        raise OSError("--names needs --anonymise")
    with _open_output(args.output) as write:
        if args.anonymise:
            _export_anonymised(source, write, args.names)
            return
        with closing(source.open()) as reader:
            if args.complete:
                write_export(write, reader, make_head(source.partition, anonymised=False), Transform())
                return
            for step in reader.read_steps(reader.find_first()):
                write(msgspec.json.encode(expand_step(step)) + b"\n")


def _export_anonymised(source: Source, write: Callable[[bytes], object], names_file: str | None) -> None:
    """Read the journal twice: for the names, and to replace them; from a private copy, as its worker may write."""
    with make_temporary_folder("journal") as folder:
        path = folder / f"copy{SUFFIXES[0]}"
        with closing(source.open()) as reader, open_to_write(path) as file:
            write_export(file.write, reader, make_head(source.partition, anonymised=False), Transform())
        copy = ExportReader(path)
        names, rm = collect_names(copy)
        partition = names.partition(source.partition, rm)
        last = write_export(write, copy, make_head(partition, anonymised=True), names.transform)
    if names_file is not None:
        with open_to_write(Path(names_file)) as file:
            document = {pseudonym: name for name, pseudonym in sorted(names.pseudonyms.items())}
            file.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    replaced, removed = format_count(len(names.pseudonyms), "name"), format_count(names.texts_removed, "text")
    notify(f"up to step {last}: {replaced} replaced, {removed} removed; read the file before you send it")


@contextmanager
def _open_output(path: str | None) -> Iterator[Callable[[bytes], object]]:
    if path is None:
        yield lambda line: sys.stdout.write(line.decode())
        return
    with open_to_write(Path(path)) as file:
        yield file.write
