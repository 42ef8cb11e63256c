"""A folder on an object store, or on another file system that pyarrow or fsspec support. Experimental.

The store must create objects atomically, and its listings must show every earlier write, as those of S3, GCS and Azure
Blob Storage do. On file systems where unfinished files are visible (HDFS), files are written under a temporary name and
renamed.

Tested on an S3 server (moto), with pyarrow (`s3://`) and with fsspec (`s3a://`): two clients write and list, create
concurrently, take over, and kill a writer. The tests also passed once on MinIO. A store over a network, and one that
fails, were not tested.

There is no lock: a second receiver takes the spool over by its claim, and the first one stops with `SpoolFencedError`.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs

from stompy.deadline import Deadline
from stompy.errors import SpoolError
from stompy.spark.spool.files import TEMPORARY, Entry, HeldLock
from stompy.world import secrets, time

_WITH_RENAME = frozenset({"hdfs", "local", "mock"})
"""pyarrow's names of file systems on which unfinished files are visible and a rename is atomic."""

_CREATE_TIMEOUT = 60.0
"""Seconds to wait for other processes that create the same object; restarts when one of them comes or goes."""
_POLL_INTERVAL = 0.1
"""Seconds between checks whether they have finished."""


class RemoteFiles:
    """A folder below a URL.

    Args:
        url: such as `s3://bucket/folder`; opened by pyarrow or, if it does not support the URL, by fsspec.
        filesystem: a `pyarrow.fs.FileSystem` to use instead; `url` is then a path on it.

    Raises:
        SpoolError: neither of them supports the URL, or the store cannot be reached.
    """

    local = False

    def __init__(self, url: str, *, filesystem: Any = None) -> None:
        self._url = _without_login(url).rstrip("/")
        self._fs, root = (filesystem, url) if filesystem is not None else _find(url)
        self._root = root.rstrip("/")
        self._renames = self._fs.type_name in _WITH_RENAME

    @property
    def url(self) -> str:
        """The URL, without credentials."""
        return self._url

    def read(self, name: str) -> bytes | None:
        """Return the bytes of an object, or `None` if it does not exist."""
        with _os_errors(self._path(name)):
            try:
                with self._fs.open_input_file(self._path(name)) as file:
                    data: bytes = file.read()
                    return data
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        """Write a whole object; replace an existing one."""
        path = self._path(name)
        with _os_errors(path):
            if not self._renames:
                self._put(path, data)
                return
            unfinished = f"{posixpath.dirname(path)}/{TEMPORARY}{posixpath.basename(path)}-{secrets.token_hex(4)}"
            self._put(unfinished, data)
            self._fs.move(unfinished, path)

    def _put(self, path: str, data: bytes) -> None:
        if isinstance(self._fs, fs.PyFileSystem) and isinstance(self._fs.handler, fs.FSSpecHandler):
            self._fs.handler.fs.pipe_file(path, data)
            return
        try:
            with self._fs.open_output_stream(path, compression=None) as stream:
                stream.write(data)
        except BaseException:
            # Closing the stream may have created an object with the part that was written.
            with contextlib.suppress(OSError):
                self._fs.delete_file(path)
            raise

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless it exists; return whether it was written.

        pyarrow and fsspec have no conditional write that every store supports. So each process first creates a marker
        object, then lists those of the others: of two processes, at least one sees the other's marker. A process that
        sees neither another marker nor the object writes the object, and removes its marker. A process that sees others
        keeps its marker only if it is the first by name.

        Raises:
            SpoolError: a process died here and left its marker; the error says what to remove.
        """
        folder, _, last = self._path(name).rpartition("/")
        prefix = f"{TEMPORARY}create-{last}-"
        mine, shown = f"{prefix}{secrets.token_hex(8)}", False
        seen, deadline = set[str](), Deadline(_CREATE_TIMEOUT)
        with _os_errors(folder):
            try:
                while not self.exists(name):
                    if not shown:
                        self._put(f"{folder}/{mine}", b"")
                        shown = True
                    rivals = {one for one in self._names(folder) if one.startswith(prefix)} - {mine}
                    if not rivals and not self.exists(name):
                        self.write(name, data)
                        return True
                    if rivals != seen:
                        seen, deadline = rivals, Deadline(_CREATE_TIMEOUT)
                    elif deadline.expired:
                        raise SpoolError(
                            "another process was making it and has not finished. If none is running, remove "
                            + ", ".join(f"{folder}/{one}" for one in sorted(rivals)),
                            path=self._path(name),
                        )
                    if min(rivals, default=mine) < mine:
                        self._fs.delete_file(f"{folder}/{mine}")
                        shown = False
                    time.sleep(_POLL_INTERVAL)
                return False
            finally:
                if shown:
                    self._fs.delete_file(f"{folder}/{mine}")

    def exists(self, name: str) -> bool:
        """Return whether an object exists."""
        with _os_errors(self._path(name)):
            return bool(self._fs.get_file_info(self._path(name)).type != fs.FileType.NotFound)

    def list(self, folder: str, known: Mapping[str, Entry] | None = None) -> list[Entry]:
        """Return the entries of a folder; empty if it does not exist. `known` has no effect."""
        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        with _os_errors(self._path(folder)):
            infos = self._fs.get_file_info(selector)
        return [
            Entry(info.base_name, info.size or 0, _seconds(info), info.type == fs.FileType.Directory)
            for info in infos
            if not info.base_name.startswith(TEMPORARY)
        ]

    def _names(self, folder: str) -> set[str]:
        infos = self._fs.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        return {info.base_name for info in infos}

    def remove(self, name: str) -> None:
        """Remove an object, if it exists."""
        with _os_errors(self._path(name)), contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(self._path(name))

    def make_folder(self, name: str) -> None:
        """Create a folder, if the store has folders."""
        with _os_errors(self._path(name)):
            self._fs.create_dir(self._path(name), recursive=True)

    def sync(self, folder: str) -> None:
        """Do nothing: listed objects are durable."""

    def sweep(self, folder: str) -> None:
        """Remove unfinished files of segments."""
        if not self._renames:
            return
        with _os_errors(self._path(folder)):
            for info in self._fs.get_file_info(fs.FileSelector(self._path(folder), allow_not_found=True)):
                if info.base_name.startswith(f"{TEMPORARY}seg-"):
                    self._fs.delete_file(info.path)

    def lock(self, name: str) -> HeldLock:
        """Return a lock without effect."""
        return _NoLock()

    def touch(self, name: str) -> None:
        """Do nothing: without a lock, no process watches the heartbeat."""

    def _path(self, name: str) -> str:
        return posixpath.join(self._root, name) if name else self._root


class _NoLock:
    def release(self) -> None:
        """Do nothing."""


def _find(url: str) -> tuple[Any, str]:
    try:
        return fs.FileSystem.from_uri(url)
    except (pa.ArrowException, ValueError, OSError) as first:
        with contextlib.suppress(ImportError, ValueError, OSError):
            import fsspec

            # Without a cache: listings must show the claims that other processes have written.
            found, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
            return fs.PyFileSystem(fs.FSSpecHandler(found)), path
        scheme = urlsplit(url).scheme
        raise SpoolError(
            f"the file system {scheme!r} cannot be used: {type(first).__name__} from pyarrow, and fsspec does not know "
            "it either; is the package for it installed?",
            path=_without_login(url),
        ) from first


@contextlib.contextmanager
def _os_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise SpoolError(f"it cannot be used: {error}", path=path) from error


def _seconds(info: Any) -> float:
    return info.mtime.timestamp() if info.mtime is not None else 0.0


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
