"""What Python passes, in the form in which native code takes it."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterable, TypeVar, Union

#: A path: text, bytes, or an object such as `pathlib.Path`.
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

_T = TypeVar("_T")


def path(value: Path) -> str:
    """Returns a path as text; bytes that are not text are kept as the interpreter keeps them."""
    text = os.fsdecode(value)
    if "\0" in text:
        raise ValueError(f"a path has a null character: {text!r}")
    return text


def texts(value: Union[str, Iterable[str]]) -> list[str]:
    """Returns a list of texts, of which one may be given alone."""
    return [value] if isinstance(value, str) else list(value)


def call(native: Callable[..., _T], *arguments: Any) -> _T:
    """Calls a native function. An option that it cannot take is named without words of Rust."""
    try:
        return native(*arguments)
    except TypeError as error:
        reason = error.__cause__
        if reason is None or not str(error).startswith("failed to extract field"):
            raise
        option = str(error).rpartition(".")[2]
        while reason.__cause__ is not None:
            reason = reason.__cause__
        # A number of the right type that does not fit is a wrong value.
        if isinstance(reason, OverflowError):
            raise ValueError(f"{option}: the number is too small or too large") from None
        kind = ValueError if isinstance(reason, ValueError) else TypeError
        raise kind(f"{option}: {reason}") from None
