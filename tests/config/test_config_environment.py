"""Environment variables: defaults, values and refusals."""

from pathlib import Path

import pytest

from butlers.environment import Environment, read_environment
from butlers.errors import ConfigurationFault

DEFAULTS = Environment(
    home=Path.home() / ".local/share/butlers",
    database_url=None,
    admin_database_url=None,
    log_level="info",
    log_format="console",
)


def test_an_empty_environment_is_enough() -> None:
    assert read_environment({}) == DEFAULTS


def test_a_blank_value_counts_as_unset() -> None:
    names = ("HOME", "DATABASE_URL", "ADMIN_DATABASE_URL", "LOG", "LOG_FORMAT")
    assert read_environment({f"BUTLERS_{name}": " " for name in names}) == DEFAULTS


def test_every_variable_is_read() -> None:
    assert read_environment(
        {
            "BUTLERS_HOME": "/srv/butlers",
            "BUTLERS_DATABASE_URL": "postgresql://app@db/x",
            "BUTLERS_ADMIN_DATABASE_URL": "postgres://owner@db/x",
            "BUTLERS_LOG": "DEBUG",
            "BUTLERS_LOG_FORMAT": "json",
        }
    ) == Environment(Path("/srv/butlers"), "postgresql://app@db/x", "postgres://owner@db/x", "debug", "json")


def test_the_real_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUTLERS_LOG", "error")
    assert read_environment().log_level == "error"


def test_a_tilde_in_home_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_environment({"BUTLERS_HOME": "~/b"}).home == tmp_path / "b"
    assert read_environment({}).home == tmp_path / ".local/share/butlers"


def test_a_relative_home_becomes_absolute() -> None:
    assert read_environment({"BUTLERS_HOME": "here"}).home.is_absolute()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("BUTLERS_LOG", "loud", "BUTLERS_LOG: 'loud' is not one of debug, info, warning, error, critical"),
        ("BUTLERS_LOG_FORMAT", "xml", "BUTLERS_LOG_FORMAT: 'xml' is not one of console, json"),
        (
            "BUTLERS_DATABASE_URL",
            "mysql://me:hunter2@h",
            "BUTLERS_DATABASE_URL: is not the URL of a PostgreSQL",
        ),
        (
            "BUTLERS_ADMIN_DATABASE_URL",
            "hunter2",
            "BUTLERS_ADMIN_DATABASE_URL: is not the URL of a PostgreSQL",
        ),
        ("BUTLERS_HOME", "~nobody-of-that-name/x", "BUTLERS_HOME: "),
    ],
)
def test_a_bad_value_is_refused_with_the_name_of_its_variable(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigurationFault) as caught:
        read_environment({name: value})
    assert caught.value.message.startswith(message)
    assert "hunter2" not in caught.value.message


def test_all_bad_values_are_reported_at_once() -> None:
    with pytest.raises(ConfigurationFault) as caught:
        read_environment({"BUTLERS_LOG": "x", "BUTLERS_LOG_FORMAT": "y"})
    assert [line.split(":")[0] for line in caught.value.message.splitlines()] == [
        "BUTLERS_LOG",
        "BUTLERS_LOG_FORMAT",
    ]
