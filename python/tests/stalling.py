"""A server that begins to answer and then waits, and programs that meet it."""

import contextlib
import signal
import socket
import subprocess
import sys
import threading

#: Seconds within which everything happens, on a loaded machine too.
PATIENCE = 120


class Stalling:
    """Takes one request and sends half of a file, or takes half of one."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d/" % self.listener.getsockname()[1]
        self.half_way = threading.Event()
        self.go_on = threading.Event()
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while not self.closed.is_set():
                peer, _ = self.listener.accept()
                threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer):
        with peer, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                received = peer.recv(4096)
                if not received:
                    return
                head += received
            if head.startswith(b"GET"):
                fields = b"Content-Length: 1000\r\nETag: \"a\"\r\nConnection: close\r\n"
                peer.sendall(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n" + bytes(500))
            self.half_way.set()
            self.go_on.wait(PATIENCE)
            if head.startswith(b"GET"):
                peer.sendall(bytes(500))

    def close(self):
        self.closed.set()
        self.go_on.set()
        self.listener.close()


def interrupted(code, stalling):
    """Runs Python code and interrupts it half way; returns what it printed."""
    program = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell has what it runs in the background ignore the signal, and Python leaves it so.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert stalling.half_way.wait(PATIENCE)
        program.send_signal(signal.SIGINT)
        output, errors = program.communicate(timeout=PATIENCE)
    finally:
        program.kill()
        program.wait()
    assert program.returncode == 0, errors
    return output
