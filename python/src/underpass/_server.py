"""A file server within a Python process."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Iterable, Mapping, Optional, Type, Union

from . import _native
from ._arguments import Path, call, path, texts
from ._error import Receipt


class Server:
    """Serves a folder or a file over HTTP, for tests and notebooks.

    It listens at once and serves from threads of its own until `stop`, the end of the ``with``
    block, or the end of the object. By default only this machine can reach it, at any free port,
    and nothing can be changed.

    >>> import underpass, urllib.request
    >>> from pathlib import Path
    >>> Path("data").mkdir()
    >>> _ = Path("data/hello").write_text("hello")
    >>> with underpass.Server("data") as server:
    ...     urllib.request.urlopen(server.url + "hello").read()
    b'hello'
    >>> server.receipt["requests"]
    1

    The sandbox of ``underpass serve`` would confine the whole process, so there is none here.

    host, port
        The address or name of this machine to listen on, and the port; 0 for any free one.
    upload, delete
        Allow clients to upload files and create folders, to delete them.
    create_parents
        Create missing parent folders of an upload.
    auth
        Rules such as ``"user:password@/folder"``, ``"user:password@/:rw"``.
    hide, show_hidden
        Patterns of paths that are not served; whether names that begin with a dot are.
    headers, cors
        Headers of every response; whether pages of every origin may read the responses.
    workers
        Serve with this number of threads instead of one for each core.
    timeout
        Close a connection on which nothing has moved for this time in seconds.
    drain
        Let running transfers take this time in seconds once the server is to stop.
    integrity
        As for `copy`.
    """

    #: What the server did, once it has stopped: ``requests``, ``bytes`` that were sent with their
    #: heads, ``cut_off`` transfers, and ``elapsed_s``.
    receipt: Optional[Receipt] = None

    def __init__(
        self,
        root: Path = ".",
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        upload: bool = False,
        delete: bool = False,
        create_parents: bool = False,
        auth: Union[str, Iterable[str]] = (),
        hide: Union[str, Iterable[str]] = (),
        show_hidden: bool = False,
        headers: Optional[Mapping[str, str]] = None,
        cors: bool = False,
        workers: Optional[int] = None,
        timeout: float = 75.0,
        drain: float = 25.0,
        integrity: str = "detect",
    ) -> None:
        options = {
            "host": host,
            "port": port,
            "upload": upload,
            "delete": delete,
            "create_parents": create_parents,
            "auth": texts(auth),
            "hide": texts(hide),
            "show_hidden": show_hidden,
            "headers": list(dict(headers or {}).items()),
            "cors": cors,
            "workers": workers,
            "timeout": timeout,
            "drain": drain,
            "integrity": integrity,
        }
        self._server = call(_native.Server, path(root), options)
        #: The URL of the served folder or file; it ends in ``/``.
        self.url = f"http://{self._server.addresses[0]}/"

    def stop(self) -> Receipt:
        """Stops once running transfers have ended, and returns the receipt."""
        text = self._server.stop()
        if text is not None:
            self.receipt = json.loads(text)
        return self.receipt or {}

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<underpass.Server {self.url}{' (stopped)' if self.receipt else ''}>"
