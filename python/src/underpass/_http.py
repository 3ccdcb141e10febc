"""Downloads and uploads."""

from __future__ import annotations

import errno
import os
from typing import Any, Iterable, Mapping, Optional, Tuple, Union

from . import _native
from ._arguments import Path, call, texts
from ._arguments import path as as_path
from ._error import Progress, Receipt, unwrap


def get(
    url: str,
    path: Path = ".",
    *,
    connections: Optional[int] = None,
    digest: Union[str, Iterable[str]] = (),
    digest_print: Union[str, Iterable[str]] = (),
    verify: bool = False,
    if_exists: str = "replace",
    rate: Optional[int] = None,
    mtime: bool = True,
    sync: bool = False,
    mechanism: Optional[str] = None,
    cancel: Optional[_native.Cancel] = None,
    progress: Optional[Progress] = None,
    **requests: Any,
) -> Receipt:
    """Fetches a file like ``underpass get``, and returns the receipt.

    ``path`` is a new name, or a folder to put the file in under the name that the URL ends in. The
    file appears under its name when it is complete; an interrupted download is kept as ``FILE.part``,
    and the same call resumes it.

    >>> import underpass
    >>> from pathlib import Path
    >>> Path("data").mkdir()
    >>> _ = Path("data/table.csv").write_text("a,b\\n1,2\\n")
    >>> with underpass.Server("data") as server:
    ...     receipt = underpass.get(server.url + "table.csv", "fetched.csv", digest_print="sha-256")
    >>> receipt["bytes"], receipt["digest"]["value"][:8]
    (8, '492d5ea4')

    connections
        Use up to this number, 1 to 64, instead of one by the size of the file.
    digest
        Fail unless the file has this digest: ``"sha-256:"`` or ``"sha-512:"`` and hexadecimal digits
        or Base64.
    digest_print
        Put the digest by ``"sha-256"`` or ``"sha-512"`` into the receipt.
    verify
        Request a digest from the server, and fail without one; a digest it sends is always checked.
    if_exists
        What becomes of a file with the name: ``"replace"`` it, keep it if it is the ``"same"`` by
        size and time and fail otherwise, or ``"refuse"``.
    rate
        Limit the download to this number of bytes per second.
    mtime
        Give the file the time of its last change on the server.
    sync
        Write the file to the disk before it gets its name.
    mechanism, cancel, progress
        As for `copy`. Bytes of earlier attempts are counted.
    requests
        Arguments of all requests: ``user=(name, password)``, ``bearer``, ``headers`` (a mapping),
        ``netrc=True``, ``proxy`` (a URL, or ``""`` for none, instead of the environment's),
        ``timeout=60.0`` and ``connect_timeout=30.0`` in seconds, ``retries=8``,
        ``max_redirects=10``, ``cacert`` (a file), ``insecure=False`` and ``pins``.
    """
    options = {
        "connections": connections,
        "digest": texts(digest),
        "digest_print": texts(digest_print),
        "verify": verify,
        "if_exists": if_exists,
        "rate": rate,
        "mtime": mtime,
        "sync": sync,
        "mechanism": mechanism,
    }
    to = as_path(path)
    if to.endswith("/") and not os.path.isdir(to):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), to)
    return unwrap(call(_native.get, url, to, options, _requests("get", requests), cancel, progress))


def get_tree(
    url: str,
    path: Path,
    *,
    connections: Optional[int] = None,
    replace: bool = False,
    mechanism: Optional[str] = None,
    cancel: Optional[_native.Cancel] = None,
    progress: Optional[Progress] = None,
    **requests: Any,
) -> Receipt:
    """Fetches a folder with everything in it like ``underpass get -r``, and returns the receipt.

    ``path`` is the new name of the folder; if it exists, the two are merged. A server of underpass
    sends one archive, others their listings and files. The same call resumes what was interrupted.
    If something cannot be created here, everything else is, and then `Error` is raised.

    >>> import underpass
    >>> from pathlib import Path
    >>> Path("data/inner").mkdir(parents=True)
    >>> _ = Path("data/inner/table.csv").write_text("a,b\\n1,2\\n")
    >>> with underpass.Server("data") as server:
    ...     receipt = underpass.get_tree(server.url, "fetched")
    >>> receipt["way"], receipt["files"], Path("fetched/inner/table.csv").read_text()
    ('archive', 1, 'a,b\\n1,2\\n')

    connections
        Use up to this number, 1 to 64, where files are fetched one by one, instead of 4.
    replace
        Replace files that exist and differ, instead of failing.
    mechanism, cancel, progress
        As for `copy`. In an archive, the bytes are those of the archive.
    requests
        As for `get`.
    """
    options = {"connections": connections, "replace": replace, "mechanism": mechanism}
    http = _requests("get_tree", requests)
    return unwrap(call(_native.get_tree, url, as_path(path), options, http, cancel, progress))


def put(
    path: Path,
    url: str,
    *,
    no_clobber: bool = False,
    digest: Optional[str] = None,
    resume: bool = True,
    rate: Optional[int] = None,
    integrity: str = "detect",
    mechanism: Optional[str] = None,
    cancel: Optional[_native.Cancel] = None,
    progress: Optional[Progress] = None,
    **requests: Any,
) -> Receipt:
    """Uploads a file like ``underpass put``, and returns the receipt.

    ``url`` is the file's new URL, or that of a folder to put it in, which ends in ``/``.

    >>> import underpass
    >>> from pathlib import Path
    >>> Path("data").mkdir()
    >>> _ = Path("table.csv").write_text("a,b\\n1,2\\n")
    >>> with underpass.Server("data", upload=True) as server:
    ...     receipt = underpass.put("table.csv", server.url)
    >>> receipt["status"], Path("data/table.csv").read_text()
    (201, 'a,b\\n1,2\\n')

    no_clobber
        Send nothing if the URL exists; the receipt then has ``was_there``.
    digest
        Send the digest by ``"sha-256"`` or ``"sha-512"`` along for the server to check. It reads the
        file first.
    resume
        Resume an interrupted upload, and keep what is needed to resume this one.
    rate, requests
        As for `get`.
    integrity, mechanism, cancel, progress
        As for `copy`. Bytes that the server has already are counted.
    """
    options = {
        "no_clobber": no_clobber,
        "digest": digest,
        "resume": resume,
        "rate": rate,
        "integrity": integrity,
        "mechanism": mechanism,
    }
    if "#" in url:
        # Another file would be replaced.
        raise ValueError(f"what follows '#' is not sent: write %23 instead: {url}")
    return unwrap(call(_native.put, as_path(path), url, options, _requests("put", requests), cancel, progress))


def _requests(function: str, requests: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the options of requests; those that are unknown are a `TypeError` of the function."""
    try:
        return _request_options(**requests)
    except TypeError as error:
        raise TypeError(str(error).replace(_request_options.__name__, function)) from None


def _request_options(
    *,
    user: Optional[Tuple[str, str]] = None,
    bearer: Optional[str] = None,
    headers: Optional[Mapping[str, str]] = None,
    netrc: bool = True,
    proxy: Optional[str] = None,
    timeout: float = 60.0,
    connect_timeout: float = 30.0,
    retries: int = 8,
    max_redirects: int = 10,
    cacert: Optional[Path] = None,
    insecure: bool = False,
    pins: Union[str, Iterable[str]] = (),
) -> Mapping[str, Any]:
    """Returns the options of requests with their defaults."""
    if isinstance(user, str):
        raise TypeError("user: a tuple of a name and a password is needed, not a string")
    return {
        "user": None if user is None else tuple(user),
        "bearer": bearer,
        "headers": list(dict(headers or {}).items()),
        "netrc": netrc,
        "proxy": proxy,
        "timeout": timeout,
        "connect_timeout": connect_timeout,
        "retries": retries,
        "max_redirects": max_redirects,
        "cacert": None if cacert is None else as_path(cacert),
        "insecure": insecure,
        "pins": texts(pins),
    }

