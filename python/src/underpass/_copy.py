"""Copies of files and folders."""

from __future__ import annotations

from typing import Any, Iterable, Optional, Union

from . import _native
from ._arguments import Path, call, path, texts
from ._error import Progress, Receipt, unwrap


def copy(
    src: Path,
    dst: Path,
    *,
    preserve: bool = False,
    follow_symlinks: bool = True,
    no_clobber: bool = False,
    update: bool = False,
    reflink: str = "auto",
    sparse: str = "auto",
    verify: Optional[str] = None,
    sync: bool = False,
    integrity: str = "detect",
    mechanism: Optional[str] = None,
    cancel: Optional[_native.Cancel] = None,
    progress: Optional[Progress] = None,
) -> Receipt:
    """Copies a file like ``underpass cp``, and returns the receipt.

    ``dst`` is a new name, or a folder to put the copy in. The copy appears under its name when it
    is complete, and has the mode and times of the original.

    >>> import underpass
    >>> from pathlib import Path
    >>> _ = Path("original").write_bytes(bytes(1_000_000))
    >>> receipt = underpass.copy("original", "copy", verify="cache")
    >>> receipt["files"], receipt["bytes"], receipt["verified"]
    (1, 1000000, 1)

    preserve
        Keep owner, group, extended attributes and ACLs too.
    follow_symlinks
        Copy what a link leads to, instead of the link.
    no_clobber, update
        Leave a file that exists as it is: always, or unless the original is newer.
    reflink, sparse
        Share blocks with the original, make holes: ``"auto"``, ``"always"`` or ``"never"``.
    verify
        Read the copy again and compare it: from the page ``"cache"``, or ``"direct"`` from the disk.
    sync
        Return only when the copy is on the disk.
    integrity
        Guard against changes while it is copied: ``"fast"`` (no check), ``"detect"`` (copy again,
        or fail), ``"lease"`` (make writers wait) or ``"snapshot"`` (copy a clone).
    mechanism
        Use only this one: ``"reflink"``, ``"copy_file_range"``, ``"sendfile"``, ``"splice"``,
        ``"mmap"`` or ``"read_write"``.
    cancel
        A token with which another thread can end the copy.
    progress
        A function that is called with the bytes that are done and the total, or `None` while that
        is unknown: at the end, and up to 50 times a second when they have changed. It runs on this
        thread. If it raises, the copy ends, and the exception is raised.
    """
    options = {
        **_DEFAULTS,
        "preserve": preserve,
        "follow_symlinks": follow_symlinks,
        "no_clobber": no_clobber,
        "update": update,
        "reflink": reflink,
        "sparse": sparse,
        "verify": verify,
        "sync": sync,
        "integrity": integrity,
        "mechanism": mechanism,
    }
    return unwrap(call(_native.copy, path(src), path(dst), options, cancel, progress))


def copytree(
    src: Path,
    dst: Path,
    *,
    archive: bool = False,
    preserve: bool = False,
    follow_symlinks: bool = False,
    no_clobber: bool = False,
    update: bool = False,
    resume: bool = False,
    one_file_system: bool = False,
    exclude: Union[str, Iterable[str]] = (),
    reflink: str = "auto",
    sparse: str = "auto",
    verify: Optional[str] = None,
    sync: bool = False,
    jobs: Optional[int] = None,
    integrity: str = "detect",
    mechanism: Optional[str] = None,
    cancel: Optional[_native.Cancel] = None,
    progress: Optional[Progress] = None,
) -> Receipt:
    """Copies a folder with everything in it like ``underpass cp -rT``, and returns the receipt.

    ``dst`` is the new name of the folder; if it exists, the two are merged. If ``src`` is not a
    folder, `NotADirectoryError` is raised. If something cannot be copied, everything else is, and
    then `Error` is raised: its receipt lists the ``errors``.

    >>> import underpass
    >>> from pathlib import Path
    >>> Path("tree/inner").mkdir(parents=True)
    >>> _ = Path("tree/inner/file").write_text("text")
    >>> _ = Path("tree/scratch.tmp").write_text("text")
    >>> receipt = underpass.copytree("tree", "copied", exclude=["*.tmp"])
    >>> receipt["files"], receipt["folders"], receipt["excluded"]
    (1, 2, 1)

    archive
        Copy everything as it is: like ``preserve``, and hard links stay hard links.
    resume
        Continue an interrupted copy: leave files that have the size and time of their originals.
    one_file_system
        Stay on the file system of ``src``.
    exclude
        Leave out entries whose name matches, or whose path if the pattern has a slash.
    jobs
        Copy with this number of threads instead of twice the processors, at most 8.

    All other arguments are those of `copy`.
    """
    options = {
        "tree": True,
        "archive": archive,
        "preserve": preserve,
        "follow_symlinks": follow_symlinks,
        "no_clobber": no_clobber,
        "update": update,
        "resume": resume,
        "one_file_system": one_file_system,
        "exclude": texts(exclude),
        "reflink": reflink,
        "sparse": sparse,
        "verify": verify,
        "sync": sync,
        "jobs": jobs,
        "integrity": integrity,
        "mechanism": mechanism,
    }
    return unwrap(call(_native.copy, path(src), path(dst), options, cancel, progress))


#: The options that only trees have.
_DEFAULTS: dict[str, Any] = {
    "tree": False,
    "archive": False,
    "resume": False,
    "one_file_system": False,
    "exclude": [],
    "jobs": None,
}
