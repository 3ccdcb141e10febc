"""Copies of files and folders."""

import os
import pickle

import pytest
import underpass
from program import receipt_of


def test_a_copy_has_the_bytes_mode_and_time_of_its_original():
    original = os.urandom(3_000_000)
    with open("original", "wb") as file:
        file.write(original)
    os.chmod("original", 0o640)
    os.utime("original", (1_000_000_000, 1_000_000_000))
    receipt = underpass.copy("original", "copy")
    with open("copy", "rb") as file:
        assert file.read() == original
    found = os.stat("copy")
    assert (found.st_mode & 0o777, found.st_mtime) == (0o640, 1_000_000_000)
    assert receipt["bytes"] == len(original) == sum(m["bytes"] for m in receipt["mechanisms"])


def test_a_folder_as_target_takes_the_file(folder):
    (folder / "original").write_text("text")
    (folder / "inner").mkdir()
    underpass.copy(folder / "original", folder / "inner")
    assert (folder / "inner/original").read_text() == "text"


@pytest.mark.parametrize("mechanism", ["copy_file_range", "sendfile", "splice", "read_write"])
def test_the_receipt_has_the_mechanism(folder, mechanism):
    (folder / "original").write_bytes(bytes(1_000_000))
    receipt = underpass.copy("original", "copy", mechanism=mechanism)
    assert [each["name"] for each in receipt["mechanisms"]] == [mechanism]
    assert (receipt["user_space_bytes"] > 0) == (mechanism == "read_write")


@pytest.mark.parametrize("mechanism", ["copy_file_range", "reflink"])
def test_a_mechanism_that_is_excluded_is_no_fallback(folder, mechanism):
    (folder / "original").write_bytes(bytes(1_000_000))
    with pytest.raises(underpass.Error, match="excluded"):
        underpass.copy("original", "copy", mechanism=mechanism, reflink="never")
    assert not (folder / "copy").exists()


def test_receipts_have_the_fields_of_the_program(folder):
    (folder / "tree").mkdir()
    (folder / "tree/file").write_bytes(bytes(100_000))
    ours = underpass.copytree("tree", "ours")
    program = receipt_of("cp", "-r", "tree", "program")
    assert list(ours) == list(program)
    assert (ours["files"], ours["folders"]) == (program["files"], program["folders"]) == (1, 1)
    assert list(underpass.copy("tree/file", "a")) == list(receipt_of("cp", "tree/file", "b"))


def test_an_existing_file_stays_if_it_is_to(folder):
    (folder / "original").write_text("new")
    (folder / "copy").write_text("old")
    assert underpass.copy("original", "copy", no_clobber=True)["kept"] == 1
    assert (folder / "copy").read_text() == "old"
    underpass.copy("original", "copy")
    assert (folder / "copy").read_text() == "new"


def test_hard_links_stay_hard_links_in_an_archive(folder):
    (folder / "tree").mkdir()
    (folder / "tree/a").write_text("text")
    os.link(folder / "tree/a", folder / "tree/b")
    assert underpass.copytree("tree", "copy", archive=True)["hard_links"] == 1
    assert os.path.samefile("copy/a", "copy/b")


def test_a_failure_has_message_hint_and_receipt(folder):
    (folder / "tree").mkdir()
    (folder / "tree/file").write_text("text")
    with pytest.raises(underpass.Error) as caught:
        underpass.copytree("tree", "tree/inner")
    error = caught.value
    assert "cannot be copied into itself" in error.message
    assert error.receipt["error"] == error.message
    assert isinstance(error, OSError)
    again = pickle.loads(pickle.dumps(error))
    assert (again.message, again.receipt) == (error.message, error.receipt)


def test_what_can_be_copied_is_copied(folder):
    (folder / "tree").mkdir()
    (folder / "tree/file").write_text("text")
    (folder / "tree/other").write_text("text")
    (folder / "copy/file").mkdir(parents=True)
    with pytest.raises(underpass.Error, match="a folder has that name") as caught:
        underpass.copytree("tree", "copy")
    assert (caught.value.receipt["files"], caught.value.receipt["failed"]) == (1, 1)
    assert len(caught.value.receipt["errors"]) == 1
    assert (folder / "copy/other").read_text() == "text"


def test_a_cancelled_copy_leaves_nothing(folder):
    (folder / "original").write_bytes(bytes(1_000_000))
    cancel = underpass.Cancel()
    assert not cancel.cancelled
    cancel.cancel()
    assert cancel.cancelled
    with pytest.raises(underpass.Error, match="cancelled"):
        underpass.copy("original", "copy", cancel=cancel)
    assert os.listdir() == ["original"]


@pytest.mark.parametrize(
    "options",
    [{"integrity": "sure"}, {"reflink": "maybe"}, {"mechanism": "magic"}, {"verify": "no"}],
)
def test_an_argument_that_makes_no_sense_is_a_value_error(folder, options):
    (folder / "original").write_text("text")
    with pytest.raises(ValueError, match=next(iter(options))):
        underpass.copy("original", "copy", **options)


def test_copy_refuses_folders_and_pipes(folder):
    os.mkfifo("pipe")
    for path in (".", "pipe"):
        with pytest.raises(ValueError, match="copytree"):
            underpass.copy(path, "copy")


def test_copytree_refuses_files(folder):
    (folder / "original").write_text("text")
    os.symlink("original", "link")
    os.mkfifo("pipe")
    for path in ("original", "link", "pipe"):
        with pytest.raises(NotADirectoryError, match="copy copies files") as caught:
            underpass.copytree(path, "copy")
        assert caught.value.filename == path
    assert not (folder / "copy").exists()
