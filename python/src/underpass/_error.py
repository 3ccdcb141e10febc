"""The failure of a transfer, and receipts."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Optional, Tuple

#: What a transfer did: the fields that the program prints for ``--json``.
Receipt = Dict[str, Any]

#: Takes the bytes that are done and the total, or `None` while that is unknown.
Progress = Callable[[int, Optional[int]], Any]


class Error(OSError):
    """A transfer that failed.

    >>> import underpass
    >>> try:
    ...     underpass.copy("missing", "copy")
    ... except underpass.Error as error:
    ...     print(error.message)
    opening missing: No such file or directory
    """

    #: What failed, where and why, in one line.
    message: str
    #: What helps, if something does. It names options of the program; most are arguments here.
    hint: Optional[str]
    #: What was done before it failed.
    receipt: Receipt

    #: The status with which an HTTP server refused it, if it did.
    status: Optional[int]

    def __init__(
        self, message: str, hint: Optional[str], receipt: Receipt, status: Optional[int] = None
    ) -> None:
        super().__init__(message if hint is None else f"{message} ({hint})")
        self.message = message
        self.hint = hint
        self.receipt = receipt
        self.status = status

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.message, self.hint, self.receipt, self.status)


def unwrap(outcome: Tuple[str, Optional[str], Optional[str], Optional[int]]) -> Receipt:
    """Returns the receipt of a transfer, or raises why it failed."""
    text, message, hint, status = outcome
    receipt: Receipt = json.loads(text)
    if message is not None:
        raise Error(message, hint, receipt, status)
    return receipt
