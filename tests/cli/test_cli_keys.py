"""The `butlers key` commands, and their immediate effect on a running butler."""

import json
import uuid
from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from .conftest import write_butler
from .test_cli_lifecycle import run_until_ready


def test_a_key_is_printed_once_and_then_only_its_id_is_shown(butlers, place):
    created = butlers("key", "create", place, "--tenant", "acme", "--actor", "support", "--expires", "30d")
    assert created.returncode == 0
    key = created.stdout.split()[-1]
    assert created.stdout == f"{key}\n"
    key_id = str(uuid.UUID(key.split("_")[1]))
    listed = butlers("key", "list", place)
    (row,) = [each for each in json.loads(butlers("key", "list", place, "--json").stdout) if each["id"] == key_id]
    assert (row["tenant"], row["actor"], row["roles"], row["elevated"]) == ("acme", "support", [], False)
    assert row["state"] == "active"
    expires_at = datetime.fromisoformat(row["expires_at"])
    assert timedelta(days=29, hours=23) < expires_at - datetime.now(UTC) < timedelta(days=30, minutes=1)
    assert key_id in listed.stdout
    assert key not in listed.stdout + json.dumps(row)
    assert "secret" not in row


def test_a_key_works_at_once_on_a_running_butler_and_stops_at_once(butlers, home, tmp_path, worker):
    folder = write_butler(tmp_path, f"cli_{worker}", '[butler.auth]\nmode = "keys"')
    with run_until_ready(home, folder) as (_, lines):
        address = lines[-1].removeprefix("ready: ").replace("/mcp", "/metrics")
        assert httpx2.get(address).status_code == 401
        created = butlers("key", "create", folder, "--tenant", "acme", "--role", "admin", "--elevated", "--json")
        (answer,) = json.loads(created.stdout)
        assert (answer["tenant"], answer["actor"]) == ("acme", "agent")
        headers = {"Authorization": f"Bearer {answer['key']}"}
        assert httpx2.get(address, headers=headers).status_code == 200
        revoked = butlers("key", "revoke", folder, answer["id"], "--json")
        assert (revoked.returncode, json.loads(revoked.stdout)) == (0, [{"revoked": answer["id"]}])
        assert httpx2.get(address, headers=headers).status_code == 401
    again = butlers("key", "revoke", folder, answer["id"])
    assert again.returncode == 1
    assert again.stderr == f"butlers: there is no active key {answer['id']}. `butlers key list` shows all keys.\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tenant", "a b"], "a tenant name is"),
        (["--tenant", "acme", "--role", "root"], "unknown role root. Roles: admin, reader."),
        (["--tenant", "acme", "--elevated"], "only an admin key can be elevated. Add --role admin."),
        (["--tenant", "acme", "--expires", "soon"], "is not a time span"),
        (["--tenant", "acme", "--expires", "0d"], "is not a time span"),
        (["--tenant", "acme", "--actor", " "], "a key needs an actor"),
    ],
)
def test_a_key_that_makes_no_sense_is_refused_in_one_line(butlers, place, options, message):
    refused = butlers("key", "create", place, *options)
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert len(refused.stderr.splitlines()) == 1
    assert message in refused.stderr


def test_what_is_no_id_can_not_be_revoked(butlers, place):
    refused = butlers("key", "revoke", place, "nonsense")
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        1,
        "butlers: nonsense is not a key id. `butlers key list` shows the ids.",
    )
