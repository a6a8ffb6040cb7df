"""Fixtures for tests of connections: a butler, a project, and a home folder of its own."""

import pytest

from butlers import app
from cli.conftest import butlers, write_butler  # noqa: F401 — a fixture


@pytest.fixture
def owner(tmp_path, monkeypatch):
    """The user's home folder, which is empty."""
    folder = tmp_path / "owner"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME", "BUTLERS_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BUTLERS_HOME", "/data/butlers")
    return folder


@pytest.fixture
def project(tmp_path, owner):
    folder = tmp_path / "some project"
    folder.mkdir()
    return folder


@pytest.fixture
def config(tmp_path):
    """The configuration of a butler with a fixed port."""
    return make_config(tmp_path, "tea_house")


def make_config(parent, name, extra=""):
    folder = write_butler(parent, name, extra)
    text = (folder / "butler.toml").read_text()
    (folder / "butler.toml").write_text(text.replace("port = 0", "port = 8155"))
    return app.load_configuration(folder)
