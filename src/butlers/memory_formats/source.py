"""Files, folders, zip archives and SQLite databases to import from, read with limits and never written."""

import codecs
import os
import shutil
import sqlite3
import stat
import struct
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO, Self

from butlers.errors import InvalidInput
from butlers.memory_formats.records import Problem

HEAD_BYTES = 64 * 1024
MAX_FILES = 200_000
MAX_TEXT_BYTES = 4 * 1024 * 1024
"""Of a Markdown file; a longer one is a problem."""
_MAX_RATIO, _MIN_SUSPICIOUS_BYTES = 150, 16 * 1024 * 1024
_MAX_DIRECTORY_BYTES = 64 * 1024 * 1024
_SQLITE_MAGIC = b"SQLite format 3\x00"
_MAX_VALUE_BYTES = 32 * 1024 * 1024
_QUERY_SECONDS, _OPCODES_BETWEEN_CHECKS = 120.0, 100_000
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_END_OF_DIRECTORY, _END_OF_DIRECTORY_64 = b"PK\x05\x06", b"PK\x06\x06"
_MAX_END_BYTES = 66_000
Row = Sequence[Any]


class UnreadableSource(InvalidInput):
    """A file or folder that can't be imported."""

    hint = "Nothing was imported. Choose another file."


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a source, with its name relative to it."""

    name: str
    path: Path
    archive: zipfile.ZipFile | None = None
    member: zipfile.ZipInfo | None = None

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Yield the content as UTF-8 without a byte order mark."""
        if self.archive and self.member:
            with self.archive.open(self.member) as file:
                yield _as_utf8(file)
        else:
            with _open_regular(self.path) as plain:
                yield _as_utf8(plain)

    def head(self) -> bytes:
        """Return the beginning of the content; empty if it can't be read."""
        try:
            with self.open() as file:
                return file.read(HEAD_BYTES)
        except (OSError, ValueError, InvalidInput, zipfile.BadZipFile, NotImplementedError, RuntimeError):
            return b""

    def read_text(self) -> str:
        """Return the whole text; raises `ValueError` if it is too long or not UTF-8."""
        with self.open() as file:
            raw = file.read(MAX_TEXT_BYTES + 1)
        if len(raw) > MAX_TEXT_BYTES:
            raise ValueError(f"it is longer than {MAX_TEXT_BYTES:,} bytes")
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise ValueError("it is not UTF-8") from None

    @property
    def modified_at(self) -> datetime | None:
        """The time of the last change, or None if it is not known."""
        with suppress(OSError, ValueError, OverflowError):
            if self.member:
                return datetime(*self.member.date_time, tzinfo=UTC)
            return datetime.fromtimestamp(self.path.stat().st_mtime, UTC)
        return None

    def problem(self) -> Problem | None:
        """Return why the file must not be read; None if it may."""
        if self.member is None:
            return None
        if self.member.flag_bits & 1:
            return Problem(self.name, "it is encrypted")
        size, packed = self.member.file_size, max(self.member.compress_size, 1)
        if size > _MIN_SUSPICIOUS_BYTES and size / packed > _MAX_RATIO:
            return Problem(self.name, f"it unpacks to {size / packed:,.0f} times its size")
        return None


class Source:
    """A file, a folder or a zip archive."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name or path.resolve().name
        try:
            status = path.stat()
        except OSError as error:
            raise UnreadableSource(f"{path} can't be read: {error.strerror}") from None
        self.is_folder = stat.S_ISDIR(status.st_mode)
        if not self.is_folder and not stat.S_ISREG(status.st_mode):
            raise UnreadableSource(f"{path} is neither a file nor a folder")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if archive := self.__dict__.get("archive"):
            archive.close()

    @cached_property
    def head(self) -> bytes:
        """The beginning of the file, as UTF-8; empty for a folder or an archive."""
        is_readable = not self.is_folder and self.archive is None
        return SourceFile(self.name, self.path).head() if is_readable else b""

    @cached_property
    def archive(self) -> zipfile.ZipFile | None:
        """The file as an opened zip archive; None if it is none. Raises `UnreadableSource` for a broken one."""
        if self.is_folder:
            return None
        with _open_regular(self.path) as file:
            if file.read(4) not in {b"PK\x03\x04", _END_OF_DIRECTORY}:
                return None
            _check_directory(file, self.path)
        try:
            return zipfile.ZipFile(self.path)
        except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError):
            raise UnreadableSource(f"{self.path} is a broken zip archive") from None

    @property
    def is_sqlite(self) -> bool:
        """Whether the file is an SQLite database."""
        return self.head.startswith(_SQLITE_MAGIC)

    def files(self, *patterns: str) -> Iterator[SourceFile]:
        """Yield the files whose last name matches a pattern, in the order of their names; one file always matches.

        Raises `UnreadableSource` for too many files. Links to files and folders are not followed.
        """
        if self.is_folder:
            found: Iterator[SourceFile] = _walk(self.path)
        elif self.archive is not None:
            members = [each for each in self.archive.infolist() if not each.is_dir()]
            found = iter([SourceFile(each.filename, self.path, self.archive, each) for each in members])
        else:
            yield SourceFile(self.name, self.path)
            return
        matching = [each for each in found if any(fnmatch(each.name.rpartition("/")[2], one) for one in patterns)]
        yield from sorted(matching, key=lambda each: each.name)

    @contextmanager
    def database(self) -> Iterator["ForeignDatabase"]:
        """Yield a copy of the SQLite database, its write-ahead log included; raises `UnreadableSource`."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy.db"
            for suffix in ("", "-wal"):
                original = self.path.with_name(self.path.name + suffix)
                if original.is_file():
                    shutil.copyfile(original, copy.with_name(copy.name + suffix))
            database = ForeignDatabase(copy)
            try:
                yield database
            except sqlite3.Error as error:
                raise UnreadableSource(f"{self.path} can't be read as an SQLite database: {error}") from None
            finally:
                database.close()


class ForeignDatabase:
    """An SQLite database of another program: only tables are read, and no query goes on for ever."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)
        self._connection.execute("pragma trusted_schema = off")
        self._connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)

    def columns(self, table: str) -> set[str]:
        """Return the names of the columns of a table; none if there is no such table, or it is a view."""
        known = self._connection.execute("select 1 from sqlite_master where type = 'table' and name = ?", (table,))
        if known.fetchone() is None:
            return set()
        rows = self._connection.execute("select name from pragma_table_info(?)", (table,))
        return {str(name) for (name,) in rows}

    def rows(self, query: str) -> Iterator[Row]:
        """Yield the rows of a query."""
        deadline = monotonic() + _QUERY_SECONDS
        self._connection.set_progress_handler(lambda: monotonic() > deadline, _OPCODES_BETWEEN_CHECKS)
        yield from self._connection.execute(query)

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


@contextmanager
def _open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a file without waiting for a writer: the path may have become that of a pipe."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise UnreadableSource(f"{path} can't be read: {error.strerror}") from None
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UnreadableSource(f"{path} is not a file")
        yield file


def _as_utf8(file: Any) -> BinaryIO:
    """Return the file as UTF-8 without a byte order mark; it was UTF-8, or UTF-16 with its mark."""
    mark = file.peek(3)[:3]
    if mark.startswith(codecs.BOM_UTF8):
        file.read(len(codecs.BOM_UTF8))
    if mark[:2] in _UTF16:
        return codecs.EncodedFile(file, "utf-8", "utf-16", "replace")
    return file  # type: ignore[no-any-return]


def _walk(folder: Path) -> Iterator[SourceFile]:
    number = 0
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in {".git", "node_modules"})
        for name in names:
            path = Path(root, name)
            if not path.is_symlink() and path.is_file():
                number += 1
                if number > MAX_FILES:
                    raise UnreadableSource(f"{folder} has more than {MAX_FILES:,} files")
                yield SourceFile(path.relative_to(folder).as_posix(), path)


def _check_directory(file: BinaryIO, path: Path) -> None:
    """Raise `UnreadableSource` if the list of the archive's files is too long to be read into memory."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _MAX_END_BYTES))
    end = file.read()
    at, at_64 = end.rfind(_END_OF_DIRECTORY), end.rfind(_END_OF_DIRECTORY_64)
    length = 0
    with suppress(struct.error):
        if at >= 0:
            length = struct.unpack_from("<I", end, at + 12)[0]
        if at_64 >= 0:
            length = struct.unpack_from("<Q", end, at_64 + 40)[0]
    if length > _MAX_DIRECTORY_BYTES:
        raise UnreadableSource(f"{path} has too many files")
