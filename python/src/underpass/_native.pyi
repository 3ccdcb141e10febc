"""Types of the native part. Use the package `underpass`."""

from os import PathLike
from typing import Any, Callable, Mapping, Optional, Tuple, Union

_Path = Union[str, "PathLike[str]"]
_Progress = Optional[Callable[[int, Optional[int]], Any]]
_Outcome = Tuple[str, Optional[str], Optional[str], Optional[int]]

__version__: str

class Cancel:
    def __init__(self) -> None: ...
    def cancel(self) -> None: ...
    @property
    def cancelled(self) -> bool: ...

class Server:
    def __init__(self, root: _Path, options: Mapping[str, Any]) -> None: ...
    @property
    def addresses(self) -> list[str]: ...
    def stop(self) -> Optional[str]: ...

def copy(
    source: _Path,
    target: _Path,
    options: Mapping[str, Any],
    cancel: Optional[Cancel] = None,
    progress: _Progress = None,
) -> _Outcome: ...
def get(
    url_text: str,
    path: _Path,
    options: Mapping[str, Any],
    http: Mapping[str, Any],
    cancel: Optional[Cancel] = None,
    progress: _Progress = None,
) -> _Outcome: ...
def get_tree(
    url_text: str,
    path: _Path,
    options: Mapping[str, Any],
    http: Mapping[str, Any],
    cancel: Optional[Cancel] = None,
    progress: _Progress = None,
) -> _Outcome: ...
def put(
    path: _Path,
    url_text: str,
    options: Mapping[str, Any],
    http: Mapping[str, Any],
    cancel: Optional[Cancel] = None,
    progress: _Progress = None,
) -> _Outcome: ...
