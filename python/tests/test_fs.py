"""The file system for fsspec."""

import gzip
import http.server
import os
import threading

import fsspec
import pandas
import pytest
import underpass
from stalling import Stalling, interrupted


@pytest.fixture
def served(folder):
    """A server of a folder with a table, which takes uploads."""
    (folder / "data/inner").mkdir(parents=True)
    (folder / "data/table.csv").write_text("a,b\n" + "".join(f"{n},{n * n}\n" for n in range(1000)))
    (folder / "data/inner/one").write_text("1")
    with underpass.Server(folder / "data", upload=True) as server:
        yield server


@pytest.fixture
def calls(monkeypatch):
    """The URLs that our engine was called with."""
    seen = []
    for name in ("get", "get_tree", "put"):
        real = getattr(underpass._http, name)

        def spy(*args, _real=real, **kwargs):
            seen.append(args)
            return _real(*args, **kwargs)

        monkeypatch.setattr(underpass._http, name, spy)
    return seen


def test_pandas_reads_a_table(served):
    table = pandas.read_csv("underpass+" + served.url + "table.csv")
    assert (table["b"] == table["a"] ** 2).all() and len(table) == 1000


def test_pandas_reads_a_table_that_is_fetched_first(served, folder, calls):
    url = "simplecache::underpass+" + served.url + "table.csv"
    options = {"simplecache": {"cache_storage": str(folder / "cache")}}
    table = pandas.read_csv(url, storage_options=options)
    assert len(table) == 1000 and len(calls) == 1


def test_whole_files_are_moved_by_the_engine(served, folder, calls):
    fs, path = fsspec.url_to_fs("underpass+" + served.url + "table.csv")
    assert fs.unstrip_protocol(path) == "underpass+" + served.url + "table.csv"
    fs.get_file(path, "fetched")
    fs.put_file("fetched", served.url + "sent.csv")
    fs.get(path, "again")
    fs.put("again", "underpass+" + served.url + "twice.csv")
    original = (folder / "data/table.csv").read_bytes()
    for name in ("fetched", "again", "data/sent.csv", "data/twice.csv"):
        assert (folder / name).read_bytes() == original, name
    assert len(calls) == 4


def test_folders_are_listed_and_fetched(served, folder):
    fs, _ = fsspec.url_to_fs("underpass+" + served.url)
    assert any(entry["name"] == served.url + "inner/" for entry in fs.ls(served.url))
    fs.get(served.url + "inner/", str(folder / "fetched") + "/", recursive=True)
    assert (folder / "fetched/one").read_text() == "1"


def test_a_folder_is_fetched_at_once(served, folder, calls):
    fs, _ = fsspec.url_to_fs("underpass+" + served.url)
    (folder / "here").mkdir()
    callback = fsspec.Callback()
    fs.get(served.url + "inner", "here", recursive=True, callback=callback)
    fs.get(served.url + "inner", "new", recursive=True, batch_size=8)
    fs.get(served.url, folder / "all", recursive=True)
    assert [len(call) for call in calls] == [2, 2, 2]
    assert callback.value == callback.size > 0
    for name in ("here/inner/one", "new/one", "all/inner/one"):
        assert (folder / name).read_text() == "1", name
    fs.get(served.url + "inner/one", "file", recursive=True)
    assert (folder / "file").read_text() == "1"
    with pytest.raises(FileNotFoundError):
        fs.get(served.url + "missing", "missing", recursive=True)


def test_pages_of_folders_are_not_fetched_as_files(served, folder):
    (folder / "data/inner/deep").mkdir()
    (folder / "data/inner/deep/two").write_text("2")
    (folder / "data/none").mkdir()
    fs, _ = fsspec.url_to_fs("underpass+" + served.url)
    fs.get(served.url + "*", "glob", recursive=True)
    fs.get(served.url + "inner", "level", recursive=True, maxdepth=1)
    fs.get([served.url + "inner", served.url + "table.csv"], "list/", recursive=True)
    fs.get([served.url + "inner/", served.url + "none/"], "slash/", recursive=True)

    def below(name):
        return sorted(str(path.relative_to(folder / name)) for path in (folder / name).rglob("*"))

    tree = ["inner", "inner/deep", "inner/deep/two", "inner/one", "none", "table.csv"]
    assert below("glob") == tree
    assert below("level") == ["deep", "one"]
    # A list has no folders of its own.
    assert below("list") == ["one", "table.csv", "two"]
    assert below("slash") == ["one", "two"]
    # A pattern that does not end in a slash or star finds folders without a slash.
    fs.get(served.url + "in*", "one", recursive=True)
    fs.get(served.url + "[int]*", "some", recursive=True)
    fs.get(served.url + "[int]*", "few", recursive=True, maxdepth=1)
    fs.get([served.url + "in*", served.url + "t*"], "globs/", recursive=True)
    assert below("one") == ["deep", "deep/two", "one"]
    assert below("some") == tree
    assert below("few") == ["inner", "none", "table.csv"]
    assert below("globs") == ["one", "table.csv", "two"]


def test_names_do_not_depend_on_the_way_they_are_fetched(served, folder, calls):
    names = ["[b].txt", "a%2Fb", "x y.txt", "\udcfe", "\udcff", "\u00fc.txt"]
    (folder / "data/names").mkdir()
    for name in names:
        (folder / "data/names" / name).write_bytes(os.fsencode(name))
    fs, url = fsspec.url_to_fs("underpass+" + served.url + "names")
    found = fs.ls(url, detail=False)
    fs.get(url, "tree", recursive=True)
    fs.get(url, "level", recursive=True, maxdepth=1)
    fs.get(found, "list/")
    fs.get(url + "/*", "glob/")
    for path in found:
        fs.get(path, "one/")
    for way in ("tree", "level", "list", "glob", "one"):
        assert sorted(path.name for path in (folder / way).iterdir()) == sorted(names), way
        assert all((folder / way / name).read_bytes() == os.fsencode(name) for name in names), way


def test_no_name_leads_out_of_the_target():
    from underpass.fs import _decoded

    for name in ("..%2Fx", "%2e%2e", "%2e", "a%2fb", "a%00b"):
        assert _decoded("http://host/" + name) == "http://host/" + name
    assert _decoded("http://host/a%20b/%25") == "http://host/a b/%"


@pytest.mark.parametrize("call", [{}, {"maxdepth": 1}, {"maxdepth": 2}])
def test_no_link_leads_out_of_the_target(folder, call):
    links = ["good", "../../escaped", "sub/../../../another"]
    page = "".join(f'<a href="{link}">link</a>' for link in links).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            is_own = "underpass" in self.headers["User-Agent"]
            is_page = self.path.split("?")[0].rstrip("/") == "/x"
            self.send_response(404 if is_page and is_own else 200)
            body = page if is_page else b"a file"
            self.send_header("Content-Type", "text/html" if is_page else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        fs = fsspec.filesystem("underpass+http", skip_instance_cache=True)
        (folder / "a/b/c").mkdir(parents=True)
        url = f"underpass+http://127.0.0.1:{server.server_port}/x"
        with pytest.raises(ValueError, match="is not below"):
            fs.get(url, str(folder / "a/b/c/target"), recursive=True, **call)
        server.shutdown()
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_a_page_is_fetched_as_a_file(served, folder):
    (folder / "data/page.html").write_text('<a href="link">link</a>')
    fs, path = fsspec.url_to_fs("underpass+" + served.url + "page.html")
    fs.get(path, "page")
    assert (folder / "page").read_text() == '<a href="link">link</a>'
    with pytest.raises(FileNotFoundError, match="is a folder"):
        fs.get(served.url + "inner", "folder")


def test_parts_are_read_by_plain_http(served, calls):
    fs, path = fsspec.url_to_fs("underpass+" + served.url + "table.csv")
    assert fs.cat_file(path, start=4, end=7) == b"0,0"
    with fs.open(path) as file:
        file.seek(4)
        assert file.read(3) == b"0,0"
    assert not calls


def test_parts_of_a_file_with_a_packed_form_are_its_own(served, folder):
    table = (folder / "data/table.csv").read_bytes()
    (folder / "data/table.csv.gz").write_bytes(gzip.compress(table))
    fs, path = fsspec.url_to_fs("underpass+" + served.url + "table.csv")
    assert fs.cat_file(path, start=0, end=100) == table[:100]
    assert fs.tail(path, 100) == table[-100:]
    with fs.open(path) as file:
        file.seek(5000)
        assert file.read(500) == table[5000:5500]


def test_servers_that_pack_parts_are_asked_not_to():
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.headers["Accept-Encoding"])
            self.send_response(206)
            self.send_header("Content-Length", "3")
            self.end_headers()
            self.wfile.write(b"abc")

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        fs = fsspec.filesystem("underpass+http")
        assert fs.cat_file(f"http://127.0.0.1:{server.server_port}/", start=0, end=3) == b"abc"
        server.shutdown()
    assert asked == ["identity"]


def test_what_is_missing_is_a_missing_file(served, folder):
    fs, path = fsspec.url_to_fs("underpass+" + served.url + "missing")
    assert not fs.exists(path)
    with pytest.raises(FileNotFoundError):
        fs.get_file(path, "fetched")
    assert not (folder / "fetched").exists()
    with pytest.raises(FileNotFoundError):
        fs.put("missing", path)


def test_a_file_that_exists_is_kept_if_it_is_to_be_new(served, folder):
    fs, path = fsspec.url_to_fs("underpass+" + served.url + "inner/one")
    (folder / "two").write_text("2")
    with pytest.raises(FileExistsError):
        fs.put_file("two", path, mode="create")
    assert (folder / "data/inner/one").read_text() == "1"


NAMES = ["a#b", "a#c", "a%20b", "a b", "a?b", "a?c", "\udcff", "\u00fc"]


@pytest.mark.parametrize(
    "source, target",
    [("names", ""), ("names/", "inner"), ("names", "new"), ("names/*", "inner"), (NAMES, "inner/")],
)
def test_names_are_sent_as_they_are(served, folder, source, target):
    fs, url = fsspec.url_to_fs("underpass+" + served.url)
    (folder / "names").mkdir()
    for name in NAMES:
        (folder / "names" / name).write_bytes(os.fsencode(name))
    paths = [f"names/{name}" for name in source] if isinstance(source, list) else source
    fs.put(paths, url + target, recursive=True)
    sent = next(folder.glob("data/**/a#b")).parent
    assert sorted(path.name for path in sent.iterdir() if path.name != "one") == sorted(NAMES)
    assert all((sent / name).read_bytes() == os.fsencode(name) for name in NAMES)


def test_a_folder_is_sent_with_its_folders(served, folder):
    fs, url = fsspec.url_to_fs("underpass+" + served.url)
    (folder / "tree/a/b").mkdir(parents=True)
    (folder / "tree/empty").mkdir()
    (folder / "tree/a/b/file").write_text("text")
    for _ in range(2):
        fs.put(folder / "tree", url + "new", recursive=True)
    assert (folder / "data/new/a/b/file").read_text() == "text"
    assert (folder / "data/new/empty").is_dir()


def test_a_url_with_a_number_sign_is_not_cut(served, folder):
    fs, _ = fsspec.url_to_fs("underpass+" + served.url)
    (folder / "file").write_text("text")
    with pytest.raises(ValueError, match="%23"):
        fs.put("file", "underpass+" + served.url + "inner/a#b")
    assert not (folder / "data/inner/a").exists()


def test_two_files_of_one_name_are_not_sent_to_one_url(served, folder):
    fs, url = fsspec.url_to_fs("underpass+" + served.url)
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "file").write_text(name)
    with pytest.raises(ValueError, match="same name"):
        fs.put(["one/file", "two/file"], url + "inner/")
    assert not (folder / "data/inner/file").exists()


def test_passwords_are_for_parts_and_whole_files(folder):
    (folder / "data").mkdir()
    (folder / "data/file").write_text("text")
    with underpass.Server("data", auth=["me:secret@/"]) as server:
        with pytest.raises(TypeError, match="user"):
            fsspec.filesystem("underpass+http", user="me")
        with pytest.raises(ValueError, match="user"):
            fsspec.filesystem("underpass+http", user=("me:too", "secret"))
        fs = fsspec.filesystem("underpass+http", user=("me", "secret"))
        fs.get_file(server.url + "file", "fetched")
        assert fs.cat_file(server.url + "file") == b"text"
    assert (folder / "fetched").read_text() == "text"


def test_fields_are_sent_to_no_server_to_which_a_redirect_leads(folder):
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, self.headers.get("X-Key")))
            if self.path == "/file":
                self.send_response(200)
            else:
                self.send_response(302)
                self.send_header("Location", "/other" if self.path == "/" else f"{other}file")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args):
            pass

    servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    url, other = [f"http://127.0.0.1:{server.server_address[1]}/" for server in servers]
    fs = fsspec.filesystem("underpass+http", headers={"X-Key": "secret"}, skip_instance_cache=True)
    assert fs.cat_file(url) == b""
    assert seen == [("/", "secret"), ("/other", "secret"), ("/file", None)]
    for server in servers:
        server.shutdown()
        server.server_close()


def test_two_urls_of_one_name_are_not_fetched_to_one_file(served, folder):
    (folder / "data/inner/table.csv").write_text("another")
    fs, _ = fsspec.url_to_fs("underpass+" + served.url)
    with pytest.raises(ValueError, match="same name"):
        fs.get([served.url + "table.csv", served.url + "inner/table.csv"], "fetched/")
    assert not (folder / "fetched/table.csv").exists()


def test_progress_ends_with_the_size(served):
    callback = fsspec.Callback()
    fs, path = fsspec.url_to_fs("underpass+" + served.url + "inner/one")
    fs.get_file(path, "fetched", callback=callback)
    assert (callback.size, callback.value) == (1, 1)
    fs.put_file("fetched", served.url + "sent", callback=callback)
    assert (callback.size, callback.value) == (1, 1)


def test_control_c_ends_a_download():
    stalling = Stalling()
    code = f"""
import fsspec, os
fs, path = fsspec.url_to_fs("underpass+{stalling.url}file")
try:
    fs.get_file(path, "fetched")
except KeyboardInterrupt:
    print("interrupted", os.path.exists("fetched"))
"""
    try:
        assert interrupted(code, stalling) == "interrupted False\n"
    finally:
        stalling.close()
