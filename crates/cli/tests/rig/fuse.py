#!/usr/bin/python3
"""A file system in user space that passes everything on to a folder, but for the faults in a file of JSON.

usage: fuse.py FOLDER MOUNT-POINT FAULTS

Faults are errors of calls, such as {"flush": "EDQUOT"}, and:
    "size": 0          reports this size for each file
    "links": 0         reports no names for each file
    "changed": TIME    reports this time of the last change for each file
    "stuck": OFFSET    answers reads beyond this offset with EAGAIN
    "pause": SECONDS   answers each read after this time
    "cached": true     lets the kernel keep what it has read, but no attributes; only at the start
    "threads": true    serves several calls at once; only at the start
    "names": BYTES     refuses longer names
    "fixed": true      refuses to rename folders
    "below": PREFIX    calls fail for paths with this prefix alone
    "again": CALL      lets the second of these calls and all later ones hang until the fault is removed
"""
import errno
import json
import os
import stat
import sys
import time

from fusepy import FUSE, FuseOSError, Operations

folder, mount_point, faults_file = sys.argv[1:]


def faults():
    with open(faults_file) as file:
        return json.load(file)


class Faulty(Operations):
    calls = 0

    def __call__(self, call, path, *args):
        self.calls += call == faults().get("again")
        while call == faults().get("again") and self.calls > 1:
            time.sleep(0.01)
        paths = [path, *(arg for arg in args if isinstance(arg, str))]
        if any(len(os.path.basename(each).encode()) > faults().get("names", 255) for each in paths):
            raise FuseOSError(errno.ENAMETOOLONG)
        if call in faults() and path.startswith(faults().get("below", "/")):
            raise FuseOSError(getattr(errno, faults()[call]))
        try:
            return getattr(self, call)(folder + path, *args)
        except OSError as error:
            raise FuseOSError(error.errno) from error

    def getattr(self, path, handle=None):
        found = os.lstat(path)
        names = "st_mode st_nlink st_uid st_gid st_size st_ino st_blocks st_atime st_mtime st_ctime"
        attributes = {name: getattr(found, name) for name in names.split()}
        if "size" in faults() and stat.S_ISREG(found.st_mode):
            attributes |= {"st_size": faults()["size"], "st_blocks": 0}
        if stat.S_ISREG(found.st_mode):
            attributes["st_nlink"] = faults().get("links", found.st_nlink)
        attributes["st_ctime"] = faults().get("changed", found.st_ctime)
        return attributes

    def readdir(self, path, handle):
        return [".", "..", *os.listdir(path)]

    def open(self, path, flags):
        return os.open(path, flags & ~os.O_APPEND)

    def create(self, path, mode, info=None):
        return os.open(path, os.O_RDWR | os.O_CREAT, mode)

    def read(self, path, len, offset, handle):
        time.sleep(faults().get("pause", 0))
        if offset + len > faults().get("stuck", offset + len):
            raise FuseOSError(errno.EAGAIN)
        return os.pread(handle, len, offset)

    def write(self, path, data, offset, handle):
        return os.pwrite(handle, data, offset)

    def truncate(self, path, len, handle=None):
        os.truncate(path, len)

    def flush(self, path, handle):
        return 0

    def release(self, path, handle):
        os.close(handle)

    def fsync(self, path, only_data, handle):
        os.fsync(handle)

    def fsyncdir(self, path, only_data, handle):
        return 0

    def mkdir(self, path, mode):
        os.mkdir(path, mode)

    def rmdir(self, path):
        os.rmdir(path)

    def unlink(self, path):
        os.unlink(path)

    def rename(self, path, new):
        if os.path.isdir(path) and faults().get("fixed"):
            raise FuseOSError(errno.ENOSYS)
        os.rename(path, folder + new)

    def chmod(self, path, mode):
        os.chmod(path, mode)

    def utimens(self, path, times=None):
        os.utime(path, times)


options = {"kernel_cache": True, "attr_timeout": 0} if "cached" in faults() else {"direct_io": True}
options["nothreads"] = "threads" not in faults()
FUSE(Faulty(), mount_point, foreground=True, entry_timeout=60, **options)
