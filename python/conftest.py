"""Fixtures of the tests and of the examples in docstrings."""

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder of its own for each test and example, without what the user's environment says."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "NETRC", "UNDERPASS_BEARER"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home/state"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work
