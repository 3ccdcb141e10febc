"""Moves files without copying their bytes through user space.

>>> import underpass
>>> from pathlib import Path
>>> _ = Path("original").write_bytes(b"some bytes")
>>> receipt = underpass.copy("original", "copy")
>>> receipt["bytes"], Path("copy").read_bytes()
(10, b'some bytes')

Every function returns the receipt of what it did: a dict with the fields that the program prints
for ``--json``. While it runs, other threads of Python run too, and Ctrl-C ends it: what was
incomplete is gone or, for downloads and uploads, kept apart so that the same call resumes it. A
transfer that fails raises `Error`; an argument that makes no sense raises `ValueError`.
"""

from ._copy import copy, copytree
from ._error import Error, Progress, Receipt
from ._http import get, get_tree, put
from ._native import Cancel, __version__
from ._server import Server

__all__ = [
    "Cancel",
    "Error",
    "Progress",
    "Receipt",
    "Server",
    "__version__",
    "copy",
    "copytree",
    "get",
    "get_tree",
    "put",
]
