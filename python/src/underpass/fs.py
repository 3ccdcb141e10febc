"""A file system for fsspec, and so for pandas, Dask and others: ``underpass+http://`` URLs.

Whole files are fetched and sent by underpass; parts of files are read by fsspec's own HTTP client.

>>> import fsspec, underpass
>>> from pathlib import Path
>>> Path("data").mkdir()
>>> _ = Path("data/table.csv").write_text("a,b\\n1,2\\n")
>>> with underpass.Server("data") as server:
...     fs, path = fsspec.url_to_fs("underpass+" + server.url + "table.csv")
...     fs.get(path, "fetched.csv")
...     fs.cat_file(path, start=0, end=3)
[None]
b'a,b'
>>> Path("fetched.csv").read_text()
'a,b\\n1,2\\n'

This module needs ``pip install 'underpass[fsspec]'``.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from base64 import b64encode
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple
from urllib.parse import quote, unquote

from aiohttp import ClientError, TraceConfig
from fsspec.asyn import sync
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.implementations.http import HTTPFileSystem
from fsspec.implementations.local import LocalFileSystem, make_path_posix
from fsspec.core import has_magic
from fsspec.utils import isfilelike, other_paths
from yarl import URL

from . import _http
from ._error import Error, Progress, Receipt
from ._native import Cancel

_PREFIX = "underpass+"

# Arguments of fsspec's own transfers, which have no meaning for ours.
_OF_FSSPEC = ("batch_size", "chunk_size")


class UnderpassFileSystem(HTTPFileSystem):  # type: ignore[misc]
    """Files of HTTP servers, which underpass fetches and sends.

    user, bearer, headers
        A name and a password, a token, and fields of all requests.
    options
        Further arguments of `underpass.get` and `underpass.put`, such as ``retries``.

    All other arguments are those of fsspec's ``HTTPFileSystem``.
    """

    protocol = ("underpass+http", "underpass+https")

    def __init__(
        self,
        *args: Any,
        user: Optional[Tuple[str, str]] = None,
        bearer: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
        options: Optional[Mapping[str, Any]] = None,
        client_kwargs: Optional[Mapping[str, Any]] = None,
        **kwargs: Any,
    ) -> None:
        fields = dict(headers or {})
        self._options = {**(options or {}), "user": user, "bearer": bearer, "headers": fields}
        self._running: Set[Cancel] = set()
        client: Dict[str, Any] = dict(client_kwargs or {})
        # Parts are counted in bytes of the file itself, which some servers send packed.
        identity = {"Accept-Encoding": "identity"}
        client["headers"] = {**identity, **client.get("headers", {}), **fields}
        client["trace_configs"] = [*client.get("trace_configs", ()), _dropping(fields)]
        if isinstance(user, str):
            raise TypeError("user: a tuple of a name and a password is needed, not a string")
        if user is not None:
            if ":" in user[0]:
                raise ValueError("user: a name cannot contain a colon")
            encoded = b64encode(":".join(user).encode()).decode()
            client["headers"]["Authorization"] = f"Basic {encoded}"
        elif bearer is not None:
            client["headers"]["Authorization"] = f"Bearer {bearer}"
        super().__init__(*args, client_kwargs=client, **kwargs)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return path[len(_PREFIX) :] if path.startswith(_PREFIX) else path

    def unstrip_protocol(self, name: str) -> str:
        """Returns the URL with the prefix by which fsspec finds this file system."""
        return name if name.startswith(_PREFIX) else _PREFIX + name

    def encode_url(self, url: str) -> Any:
        """Returns the URL for the HTTP client."""
        return super().encode_url(self._strip_protocol(url))

    async def _ls_real(self, url: str, detail: bool = True, **kwargs: Any) -> Any:
        # Links of our own listings begin with a dot, so that names may contain a colon.
        def plain(name: str) -> str:
            return name.replace("/./", "/")

        found = await super()._ls_real(self._strip_protocol(url), detail=detail, **kwargs)
        if not detail:
            return [plain(name) for name in found]
        return [{**entry, "name": plain(entry["name"])} for entry in found]

    async def _get_file(
        self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, **kwargs: Any
    ) -> None:
        rpath = self._strip_protocol(rpath)
        if isfilelike(lpath):
            await super()._get_file(rpath, lpath, callback=callback, **kwargs)
            return
        kwargs.pop("chunk_size", None)
        kwargs["progress"] = _progress(callback)
        receipt = await self._run(_http.get, rpath, lpath, rpath=rpath, **kwargs)
        _finish(callback, receipt)

    async def _get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: Optional[int] = None,
        **kwargs: Any,
    ) -> Any:
        is_plain = isinstance(rpath, str) and isinstance(lpath, (str, os.PathLike))
        if recursive and is_plain and maxdepth is None and not has_magic(rpath):
            url, target = self._strip_protocol(rpath), os.fspath(lpath)
            # As fsspec: into a folder that exists, unless the URL ends in a slash.
            into = target.endswith("/") or os.path.isdir(target)
            if into and not url.endswith("/"):
                target = os.path.join(target, _decoded(url.rsplit("/", 1)[-1]))
            own = {name: value for name, value in kwargs.items() if name not in _OF_FSSPEC}
            call = {"progress": _progress(callback), "replace": True, **own}
            # A file is not a folder, and fetched as one.
            with contextlib.suppress(FileNotFoundError):
                await self._run(_http.get_tree, url, target, rpath=url, **call)
                return None
        if not isinstance(lpath, list):
            rpath, lpath = await self._pairs(rpath, lpath, recursive, maxdepth)
        kwargs.update(recursive=recursive, callback=callback, maxdepth=maxdepth)
        return await super()._get(rpath, lpath, **kwargs)

    async def _pairs(
        self, rpath: Any, lpath: Any, recursive: bool, maxdepth: Optional[int]
    ) -> Tuple[List[str], List[str]]:
        """Returns the URLs to fetch and the path of each: fsspec's choice, but with decoded names."""
        is_one = isinstance(rpath, str)
        rpath = self._strip_protocol(rpath)
        urls = await self._expand_path(rpath, recursive=recursive, maxdepth=maxdepth)
        if is_one and not recursive:
            urls = [url for url in urls if not await self._is_folder(url)]
            if not urls and not has_magic(rpath):
                raise FileNotFoundError(f"{rpath} is a folder (recursive=True fetches it)")
        folders: Set[str] = set()
        if recursive:
            # `_get` has asked whether a single URL is a folder, unless there is a depth.
            is_known = is_one and maxdepth is None and not has_magic(rpath)
            given = [] if is_known else [rpath] if is_one else rpath
            folders = await self._folders(urls, given, maxdepth)
        lpath = make_path_posix(lpath)
        is_folder = lpath.endswith("/") or os.path.isdir(lpath)
        into = is_one and (
            len(urls) == 1 if has_magic(rpath) else is_folder and not rpath.endswith("/")
        )
        names = [_decoded(url) for url in urls]
        paths = other_paths(names, lpath, exists=into, flatten=not is_one) if urls else []
        _check_contained(lpath, paths)
        for url, path in zip(urls, paths):
            # The names of a list stand next to each other, without folders.
            if url in folders and is_one:
                os.makedirs(path, exist_ok=True)
        files = [(url, path) for url, path in zip(urls, paths) if url not in folders]
        urls, paths = [url for url, _ in files], [path for _, path in files]
        if len(set(paths)) < len(paths):
            raise ValueError(f"several of these URLs have the same name: {', '.join(urls)}")
        return urls, paths

    async def _folders(
        self, urls: List[str], given: List[str], maxdepth: Optional[int]
    ) -> Set[str]:
        """Returns which of the URLs that were found by those that were given are folders."""
        # Those that a listing names end in a slash, but not all that were given or match a pattern.
        folders = {url for url in urls if url.endswith("/")}
        for url in given:
            if has_magic(url):
                matches = await self._glob(url, maxdepth=maxdepth, detail=True)
                found = [name for name, facts in matches.items() if facts["type"] == "directory"]
                folders.update(name for name in found if name in urls)
            elif url in urls and (
                any(other.startswith(url + "/") for other in urls) or await self._is_folder(url)
            ):
                folders.add(url)
        return folders

    async def _is_folder(self, url: str) -> bool:
        """Returns whether a URL is that of a folder. A page may be a file, whatever links it has."""
        is_page = url.lower().endswith((".html", ".htm", ".xhtml"))
        return url.endswith("/") or (not is_page and await self._isdir(url))

    async def _put(
        self,
        lpath: Any,
        rpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: Optional[int] = None,
        **kwargs: Any,
    ) -> Any:
        if not isinstance(rpath, list):
            lpath, rpath = await self._targets(lpath, rpath, recursive, maxdepth)
        if isinstance(lpath, list):
            for path, url in zip(lpath, rpath):
                if os.path.isdir(path):
                    await self._make_folder(url)
        kwargs.update(recursive=recursive, callback=callback, maxdepth=maxdepth)
        return await super()._put(lpath, rpath, **kwargs)

    async def _targets(
        self, lpath: Any, rpath: Any, recursive: bool, maxdepth: Optional[int]
    ) -> Tuple[List[str], List[str]]:
        """Returns the paths to send and the URL of each: fsspec's choice, but with encoded names."""
        is_one = isinstance(lpath, (str, os.PathLike))
        lpath = make_path_posix(lpath)
        paths = LocalFileSystem().expand_path(lpath, recursive=recursive, maxdepth=maxdepth)
        if is_one and (not recursive or maxdepth is not None):
            paths = [path for path in paths if not os.path.isdir(path)]
        rpath = self._strip_protocol(rpath)
        into = is_one and (
            len(paths) == 1
            if has_magic(lpath)
            else not lpath.endswith("/") and (rpath.endswith("/") or await self._isdir(rpath))
        )
        names = [quote(path, errors="surrogateescape") for path in paths]
        urls = other_paths(names, rpath, exists=into, flatten=not is_one) if paths else []
        if len(set(urls)) < len(urls):
            raise ValueError(f"several of these files have the same name: {', '.join(paths)}")
        return paths, urls

    async def _make_folder(self, url: str) -> None:
        """Creates a folder where the server can. Where it cannot, the answers to its files count."""
        session = await self.set_session()
        with contextlib.suppress(ClientError, asyncio.TimeoutError):
            async with session.request("MKCOL", self.encode_url(url.rstrip("/") + "/")):
                pass

    async def _put_file(
        self,
        lpath: Any,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        method: str = "put",
        mode: str = "overwrite",
        **kwargs: Any,
    ) -> None:
        rpath = self._strip_protocol(rpath)
        if "#" in rpath:
            raise ValueError(f"what follows '#' is not sent: write %23 instead: {rpath}")
        if isfilelike(lpath) or method.lower() != "put":
            kwargs.update(callback=callback, method=method, mode=mode)
            await super()._put_file(lpath, rpath, **kwargs)
            return
        kwargs.pop("chunk_size", None)
        kwargs.setdefault("no_clobber", mode == "create")
        kwargs["progress"] = _progress(callback)
        os.stat(lpath)  # raises FileNotFoundError, as from fsspec
        receipt = await self._run(_http.put, os.fspath(lpath), rpath, rpath=rpath, **kwargs)
        if mode == "create" and receipt["was_there"]:
            raise FileExistsError(rpath)
        _finish(callback, receipt)

    async def _run(
        self, transfer: Callable[..., Receipt], *args: Any, rpath: str, **kwargs: Any
    ) -> Receipt:
        """Runs a transfer on a thread that `_interruptible` can cancel."""
        token = Cancel()
        self._running.add(token)
        call = functools.partial(transfer, *args, cancel=token, **{**self._options, **kwargs})
        try:
            return await asyncio.get_running_loop().run_in_executor(None, call)
        except Error as error:
            if error.status in (404, 410):
                raise FileNotFoundError(rpath) from error
            raise
        except asyncio.CancelledError:
            token.cancel()
            raise
        finally:
            self._running.discard(token)

    def _interruptible(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Waits for a coroutine as fsspec does. Ctrl-C ends the transfers that it began."""
        try:
            return sync(self.loop, method, *args, **kwargs)
        except KeyboardInterrupt:
            for token in list(self._running):
                token.cancel()
            raise

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Fetches files; see fsspec."""
        return self._interruptible(self._get, *args, **kwargs)

    def put(self, *args: Any, **kwargs: Any) -> Any:
        """Sends files; see fsspec."""
        return self._interruptible(self._put, *args, **kwargs)

    def get_file(self, *args: Any, **kwargs: Any) -> Any:
        """Fetches a file; see fsspec."""
        return self._interruptible(self._get_file, *args, **kwargs)

    def put_file(self, *args: Any, **kwargs: Any) -> Any:
        """Sends a file; see fsspec."""
        return self._interruptible(self._put_file, *args, **kwargs)


def _dropping(fields: Mapping[str, str]) -> TraceConfig:
    """Returns a trace that removes these fields when a redirect leads to another server."""

    async def on_redirect(_session: Any, _context: Any, params: Any) -> None:
        answered = params.response
        to = answered.headers.get("Location") or answered.headers.get("URI") or ""
        if answered.url.join(URL(to)).origin() != answered.url.origin():
            for name in fields:
                params.headers.popall(name, None)

    config = TraceConfig()
    config.on_request_redirect.append(on_redirect)
    return config


def _decoded(url: str) -> str:
    """Returns a URL with the names as they are; one that is no name of a file stays encoded."""

    def name(part: str) -> str:
        decoded = unquote(part, errors="surrogateescape")  # as the interpreter names files
        return part if decoded in ("", ".", "..") or "/" in decoded or "\0" in decoded else decoded

    return "/".join(name(part) for part in url.split("/"))


def _check_contained(target: str, paths: List[str]) -> None:
    """Refuses paths that a name of the server has led out of the target."""
    root = os.path.abspath(target)
    for path in paths:
        found = os.path.abspath(path)
        if found != root and not found.startswith(os.path.join(root, "")):
            raise ValueError(f"{path!r} is not below {target!r}")


def _progress(callback: Any) -> Optional[Progress]:
    """Returns the function that passes progress on to a callback of fsspec."""
    if callback is DEFAULT_CALLBACK:
        return None

    def report(done: int, total: Optional[int]) -> None:
        if total is not None and total != callback.size:
            callback.set_size(total)
        callback.absolute_update(done)

    return report


def _finish(callback: Any, receipt: Receipt) -> None:
    """Reports the whole file at its end."""
    size = receipt["bytes"] + receipt["resumed_at"]
    callback.set_size(size)
    callback.absolute_update(size)
