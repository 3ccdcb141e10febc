"""A file over TCP, by read and sendall or by os.sendfile, and a receiver for it.

Tells on standard output, as one line of JSON, how many bytes were moved in how many seconds. Ends
with 0, with 1 and a reason on standard error, or with 2 if called wrongly.
"""

import os
import socket
import sys
import time

USAGE = (
    "usage: sendall|sendfile FILE HOST PORT CHUNK (0: all, of sendfile)"
    " | receive HOST FILE|- BUFFER"
)


def send(way, path, host, port, chunk):
    """Sends the file by chunks, and returns the bytes and when it began."""
    with open(path, "rb", buffering=0) as file:
        with socket.create_connection((host, port)) as connection:
            started = time.monotonic()
            if way == "sendall":
                sent = by_sendall(file, connection, chunk)
            else:
                sent = by_sendfile(file, connection, chunk)
            return sent, started


def by_sendall(file, connection, chunk):
    """A bytes object of its own for each chunk."""
    sent = 0
    while data := file.read(chunk):
        connection.sendall(data)
        sent += len(data)
    return sent


def by_sendfile(file, connection, chunk):
    """Nothing of the file reaches the interpreter."""
    size = os.fstat(file.fileno()).st_size
    sent = 0
    while sent < size:
        count = os.sendfile(connection.fileno(), file.fileno(), sent, chunk or size - sent)
        if count == 0:
            raise EOFError("the file has become shorter")
        sent += count
    return sent


def receive(host, path, length):
    """Takes what one sender sends, and returns the bytes and when it began."""
    with socket.create_server((host, 0)) as listener:
        print(f"listening on {host}:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
        connection, _ = listener.accept()
    received = 0
    with connection, open(os.devnull if path == "-" else path, "wb", buffering=0) as file:
        started = time.monotonic()
        while data := connection.recv(length):
            received += len(data)
            if path != "-":
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
    return received, started


def main(words):
    """Does what was asked for, and returns the exit code."""
    try:
        match words:
            case ["sendall" | "sendfile" as way, path, host, port, chunk]:
                done, started = send(way, path, host, int(port), int(chunk))
            case ["receive", host, path, length]:
                done, started = receive(host, path, int(length))
            case _:
                print(USAGE, file=sys.stderr)
                return 2
    except (OSError, EOFError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f'{{"bytes": {done}, "elapsed_s": {time.monotonic() - started:.9f}}}')
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
