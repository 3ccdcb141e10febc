"""Downloads, uploads and the server."""

import hashlib
import os
import subprocess
import sys
import threading
import urllib.request

import pytest
import underpass
from program import program, receipt_of
from stalling import PATIENCE, Stalling, interrupted


@pytest.fixture
def data(folder):
    """A served folder with one file."""
    (folder / "data").mkdir()
    (folder / "data/file").write_bytes(os.urandom(3_000_000))
    return folder / "data"


@pytest.fixture
def stalling():
    server = Stalling()
    yield server
    server.close()


def test_the_program_has_the_version_of_the_module():
    assert program("--version").split() == ["underpass", underpass.__version__]


def test_a_fetched_file_is_the_served_one(data, folder):
    with underpass.Server(data) as server:
        receipt = underpass.get(server.url + "file", "fetched", connections=2)
        underpass.get(server.url + "file", folder)
    original = (data / "file").read_bytes()
    assert (folder / "fetched").read_bytes() == (folder / "file").read_bytes() == original
    assert (receipt["bytes"], receipt["from"], receipt["to"]) == (3_000_000, "socket", "file")
    assert server.receipt["bytes"] >= 6_000_000


def test_names_that_would_become_others_are_refused(data, folder):
    with underpass.Server(data, upload=True) as server:
        with pytest.raises(ValueError, match="%23"):
            underpass.put(data / "file", server.url + "new#1")
        with pytest.raises(NotADirectoryError):
            underpass.get(server.url + "file", "new/")
        with pytest.raises(TypeError, match="user"):
            underpass.get(server.url + "file", "fetched", user="me")
    assert os.listdir(data) == ["file"] and os.listdir(folder) == ["data"]


def test_receipts_have_the_fields_of_the_program(data):
    with underpass.Server(data, upload=True) as server:
        url = server.url + "file"
        ours = underpass.get(url, "a", digest_print="sha-256")
        assert list(ours) == list(receipt_of("get", "--digest-print", "-o", "b", url))
        url = server.url + "new"
        ours = underpass.put(data / "file", url, digest="sha-256")
        theirs = receipt_of("put", "--digest", "sha-256", str(data / "file"), url)
        assert list(ours) == list(theirs)


def test_progress_ends_with_everything(data, folder):
    seen = []
    report = lambda done, total: seen.append((done, total))
    end = (3_000_000, 3_000_000)
    with underpass.Server(data, upload=True) as server:
        underpass.get(server.url + "file", "fetched", progress=report)
        assert seen[-1] == end and seen == sorted(seen, key=lambda each: each[0])
        seen.clear()
        underpass.put("fetched", server.url + "sent", progress=report)
        assert seen[-1] == end
        seen.clear()
        underpass.get_tree(server.url, "tree", progress=report)
        assert seen[-1][0] >= 6_000_000
    seen.clear()
    underpass.copy("fetched", "copy", progress=report)
    assert seen[-1] == end


def test_progress_that_raises_ends_the_transfer(stalling):
    def report(done, total):
        if done >= 500:
            raise RuntimeError(total)

    with pytest.raises(RuntimeError, match="1000"):
        underpass.get(stalling.url + "file", "fetched", progress=report)
    assert not os.path.exists("fetched")


def test_a_folder_is_fetched_and_merged(data, folder):
    (data / "inner").mkdir()
    (data / "inner/one").write_text("1")
    with underpass.Server(data) as server:
        receipt = underpass.get_tree(server.url + "inner", "fetched")
        assert (receipt["files"], receipt["way"]) == (1, "archive")
        (folder / "fetched/one").write_text("other")
        reason = "fetched lacks one file.*: one: a different one exists, which only replace=True replaces"
        with pytest.raises(underpass.Error, match=reason):
            underpass.get_tree(server.url + "inner", "fetched")
        underpass.get_tree(server.url + "inner", "fetched", replace=True)
        assert (folder / "fetched/one").read_text() == "1"
        for wrong in ("file", "missing"):
            with pytest.raises(underpass.Error) as caught:
                underpass.get_tree(server.url + wrong, "wrong")
            assert caught.value.status == 404, wrong
        url = server.url + "inner/"
        ours = underpass.get_tree(url, "ours")
        assert list(ours) == list(receipt_of("get", "-r", "-d", "theirs", url))


def test_a_wrong_digest_leaves_no_file(data, folder):
    right = hashlib.sha256((data / "file").read_bytes()).hexdigest()
    with underpass.Server(data) as server:
        with pytest.raises(underpass.Error) as caught:
            underpass.get(server.url + "file", "fetched", digest="sha-256:" + "0" * 64)
        assert not (folder / "fetched").exists()
        assert caught.value.hint == "the file is damaged, or is a different file"
        assert "sha-256" in caught.value.receipt["error"]
        receipt = underpass.get(server.url + "file", "fetched", digest=["sha-256:" + right])
    assert receipt["digest"]["matches"] is True


def test_an_existing_file_is_replaced_kept_or_refused(data, folder):
    with underpass.Server(data) as server:
        url = server.url + "file"
        assert not underpass.get(url, "fetched", if_exists="same")["was_here"]
        assert underpass.get(url, "fetched", if_exists="same")["was_here"]
        with pytest.raises(underpass.Error):
            underpass.get(url, "fetched", if_exists="refuse")
        (folder / "fetched").write_text("another")
        with pytest.raises(underpass.Error):
            underpass.get(url, "fetched", if_exists="same")
        underpass.get(url, "fetched")
    assert (folder / "fetched").stat().st_size == 3_000_000


def test_an_error_has_the_status(data):
    with underpass.Server(data) as server:
        with pytest.raises(underpass.Error) as caught:
            underpass.get(server.url + "missing", "fetched")
        assert caught.value.status == 404
        with pytest.raises(underpass.Error) as caught:
            underpass.put(data / "file", server.url)
        assert caught.value.status in (403, 405)
        assert "--allow-upload" in str(caught.value)


def test_an_upload_arrives(data, folder):
    with underpass.Server(data, upload=True, create_parents=True) as server:
        receipt = underpass.put(data / "file", server.url + "inner/", digest="sha-256")
        assert (receipt["status"], receipt["was_there"]) == (201, False)
        assert receipt["url"] == server.url + "inner/file"
        assert underpass.put(data / "file", server.url + "inner/", no_clobber=True)["was_there"]
    assert (data / "inner/file").read_bytes() == (data / "file").read_bytes()


def test_a_password_is_asked_for(data):
    with underpass.Server(data, auth=["me:secret@/"]) as server:
        with pytest.raises(underpass.Error) as caught:
            underpass.get(server.url + "file", "fetched")
        assert caught.value.status == 401
        underpass.get(server.url + "file", "fetched", user=("me", "secret"))


def test_arguments_that_make_no_sense_are_refused(data):
    with underpass.Server(data) as server:
        url = server.url + "file"
        for options in (
            {"connections": 0},
            {"digest": "sha-256"},
            {"if_exists": "maybe"},
            {"rate": 0},
            {"timeout": 0},
            {"pins": ["a"]},
            {"headers": {"A": "b\r\nC: d"}},
        ):
            with pytest.raises(ValueError, match=next(iter(options))):
                underpass.get(url, "fetched", **options)
        with pytest.raises(TypeError, match="speed"):
            underpass.get(url, "fetched", speed=1)
    with pytest.raises(ValueError):
        underpass.get("http://", "fetched")
    with pytest.raises(ValueError, match="host"):
        underpass.Server(data, host="nowhere")
    with pytest.raises(OSError, match="missing"):
        underpass.Server("missing")


def test_a_server_stops_once_and_frees_its_port(data):
    server = underpass.Server(data)
    with urllib.request.urlopen(server.url + "file") as answer:
        assert len(answer.read()) == 3_000_000
    receipt = server.stop()
    assert (receipt["requests"], receipt["cut_off"]) == (1, 0)
    assert server.stop() == receipt
    port = int(server.url.split(":")[2].strip("/"))
    with underpass.Server(data, port=port) as again:
        assert again.url == server.url


def test_threads_fetch_at_the_same_time(data, folder):
    with underpass.Server(data) as server:
        get = lambda number: underpass.get(server.url + "file", f"fetched-{number}")
        threads = [threading.Thread(target=get, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    original = (data / "file").read_bytes()
    assert all((folder / f"fetched-{number}").read_bytes() == original for number in range(8))


def test_other_threads_run_meanwhile(stalling, folder):
    receipts = []
    get = lambda: receipts.append(underpass.get(stalling.url + "file", "fetched"))
    thread = threading.Thread(target=get)
    thread.start()
    # This thread would wait for the other one's lock.
    assert stalling.half_way.wait(PATIENCE)
    assert not receipts and not (folder / "fetched").exists()
    stalling.go_on.set()
    thread.join(PATIENCE)
    assert receipts[0]["bytes"] == 1000


def test_another_thread_can_cancel(stalling, folder):
    cancel = underpass.Cancel()
    errors = []

    def get():
        with pytest.raises(underpass.Error) as caught:
            underpass.get(stalling.url + "file", "fetched", cancel=cancel)
        errors.append(caught.value)

    thread = threading.Thread(target=get)
    thread.start()
    assert stalling.half_way.wait(PATIENCE)
    cancel.cancel()
    thread.join(PATIENCE)
    assert "cancelled" in errors[0].receipt["error"]
    assert not (folder / "fetched").exists()


def test_an_exception_ends_only_its_own_transfer(data, folder):
    def fail(done, total):
        raise LookupError

    token = underpass.Cancel()
    with underpass.Server(data) as server:
        url = server.url + "file"
        with pytest.raises(LookupError):
            underpass.get(url, "fetched", cancel=token, progress=fail, rate=3_000_000)
        assert not token.cancelled
        underpass.get(url, "again", cancel=token)
        token.cancel()
        with pytest.raises(underpass.Error, match="cancelled"):
            underpass.get(url, "third", cancel=token)


INTERRUPTED = """
import os, underpass
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", os.path.exists("fetched"))
"""


def test_control_c_ends_a_download(stalling):
    call = f"underpass.get({stalling.url + 'file'!r}, 'fetched')"
    assert interrupted(INTERRUPTED.format(call=call), stalling) == "interrupted False\n"


def test_control_c_ends_an_upload(stalling, folder):
    # More than the buffers of both sockets take.
    with open("big", "wb") as file:
        file.truncate(64 << 20)
    call = f"underpass.put('big', {stalling.url + 'file'!r})"
    assert interrupted(INTERRUPTED.format(call=call), stalling) == "interrupted False\n"


def test_a_handler_that_raises_nothing_lets_it_go_on(stalling):
    code = f"""
import os, signal, threading, time, underpass
seen = []
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
def send():
    while not seen:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)
try:
    threading.Thread(target=send).start()
    underpass.get({stalling.url + "file"!r}, "fetched")
except KeyboardInterrupt:
    print(bool(seen))
"""
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "True\n", done.stderr
