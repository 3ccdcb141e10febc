"""What the functions take, and what they say about arguments that make no sense."""

import os
import signal
import socket
import threading
from pathlib import Path

import pytest
import underpass


@pytest.mark.parametrize("kind", [str, os.fsencode, Path, lambda name: Path(name).resolve()])
def test_a_path_is_text_bytes_or_an_object(folder, kind):
    (folder / "tree").mkdir()
    (folder / "tree/file").write_text("text")
    underpass.copy(kind("tree/file"), kind("copy"))
    underpass.copytree(kind("tree"), kind("copies"))
    with underpass.Server(kind("tree"), upload=True) as server:
        underpass.get(server.url + "file", kind("fetched"))
        underpass.get_tree(server.url, kind("all"))
        underpass.put(kind("copy"), server.url)
    for path in ("copy", "copies/file", "fetched", "all/file", "tree/copy"):
        assert (folder / path).read_text() == "text"


def test_a_name_that_is_no_text_is_kept(folder):
    (folder / "file").write_text("text")
    name = os.fsdecode(b"na\xffme")
    underpass.copy("file", name)
    underpass.copy(b"na\xffme", b"again\xfe")
    with underpass.Server(".") as server:
        underpass.get(server.url + "na%FFme", b"fetched\xfd")
    assert {b"na\xffme", b"again\xfe", b"fetched\xfd"} <= set(os.listdir(b"."))


def test_a_path_with_a_null_character_makes_no_sense(folder):
    for call in (underpass.copy, underpass.copytree):
        with pytest.raises(ValueError, match="null character"):
            call("a\0b", "copy")


@pytest.mark.parametrize("excluded", ["*.tmp", ["*.tmp"], ("*.tmp",)])
def test_one_pattern_may_be_given_alone(folder, excluded):
    (folder / "tree").mkdir()
    for name in ("file", "file.tmp"):
        (folder / "tree" / name).write_text("text")
    receipt = underpass.copytree("tree", "copy", exclude=excluded)
    assert (receipt["files"], receipt["excluded"], os.listdir("copy")) == (1, 1, ["file"])
    with underpass.Server("tree", hide=excluded, auth="me:secret@/") as server:
        underpass.get(server.url + "file", "fetched", user=["me", "secret"])
        for name, user, status in [("file", None, 401), ("file.tmp", ("me", "secret"), 404)]:
            with pytest.raises(underpass.Error) as caught:
                underpass.get(server.url + name, "other", user=user)
            assert caught.value.status == status


@pytest.mark.parametrize(
    "kind, option, value",
    [
        (TypeError, "rate", "fast"),
        (TypeError, "mtime", "yes"),
        (TypeError, "timeout", "soon"),
        (TypeError, "headers", {"X": 1}),
        (ValueError, "connections", -1),
        (ValueError, "connections", 2**70),
        (ValueError, "rate", -1),
        (ValueError, "retries", -1),
        (ValueError, "bearer", "secret\nX-Other: 1"),
        (ValueError, "bearer", "secret\n"),
        # A server would take what follows the colon for the password.
        (ValueError, "user", ("me:too", "secret")),
    ],
)
def test_a_wrong_option_is_named(folder, kind, option, value):
    with pytest.raises(kind, match=f"^{option}: ") as caught:
        underpass.get("http://127.0.0.1:1/x", "file", **{option: value})
    assert not any(word in str(caught.value) for word in ("field", "integral"))


def test_an_unknown_argument_is_one_of_the_function(folder):
    for function in (underpass.get, underpass.get_tree):
        with pytest.raises(TypeError, match=rf"^{function.__name__}\(\) got .* 'nosuch'"):
            function("http://localhost:1/", "file", nosuch=1)
    with pytest.raises(TypeError, match=r"^put\(\) got .* 'nosuch'"):
        underpass.put("file", "http://localhost:1/", nosuch=1)


def test_a_wrong_option_of_copies_and_servers_is_named(folder):
    (folder / "file").write_text("text")
    with pytest.raises(TypeError, match="^sync: "):
        underpass.copy("file", "copy", sync="x")
    for options in ({"port": -1}, {"port": 70_000}, {"workers": -1}, {"workers": 1025}):
        with pytest.raises(ValueError, match=f"^{next(iter(options))}: "):
            underpass.Server(".", **options)
    with pytest.raises(OSError) as caught:
        underpass.Server("missing")
    assert "os error" not in str(caught.value)


def test_a_server_listens_on_a_name(folder):
    (folder / "file").write_text("text")
    with underpass.Server(".", host="localhost") as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert underpass.get(server.url + "file", "fetched")["bytes"] == 4
    with pytest.raises(ValueError, match="^host: 'no such host'"):
        underpass.Server(".", host="no such host")


def test_a_process_that_was_forked_does_not_wait_for_the_server(folder):
    (folder / "file").write_text("text")
    server = underpass.Server(".")
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        said = server.stop()
        del server
        os._exit(0 if said == {} else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert underpass.get(server.url + "file", "fetched")["bytes"] == 4
    assert server.stop()["requests"] == 1


def test_ctrl_c_while_a_function_for_progress_calls_back(folder):
    (folder / "inner").write_text("text")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # Sends a head and a part of the body, and nothing more.
        def serve():
            connection, _ = listener.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + bytes(1000))
            ended.wait(60)
            connection.close()

        ended = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()

        def progress(done, total):
            underpass.copy("inner", "copied")
            os.kill(os.getpid(), signal.SIGINT)
            underpass.copy("inner", "copied")

        url = f"http://127.0.0.1:{listener.getsockname()[1]}/file"
        # Whoever runs the tests in the background has it ignored.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt):
            underpass.get(url, "file", progress=progress, retries=0)
        signal.signal(signal.SIGINT, before)
        ended.set()
        thread.join()
    assert not os.path.exists("file") and os.path.exists("copied")
