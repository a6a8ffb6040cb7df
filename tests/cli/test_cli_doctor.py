"""The checks of `butlers doctor`, passing and failing, with their fixes."""

import json

import asyncpg

from .conftest import write_butler


def findings(result):
    return {check["name"]: check for check in json.loads(result.stdout)}


def test_a_healthy_butler_passes_every_check(butlers, new):
    """In a database of its own: dead letters and old runs of jobs that other tests leave are findings too."""
    assert butlers("migrate", new).returncode == 0
    result = butlers("doctor", new, "--json")
    found = findings(result)
    assert result.returncode == 0
    assert list(found)[:6] == ["configuration", "runtime", "outbox", "database", "schema", "row-level security"]
    # Neither the runtime's program nor a backup exists yet; other tests leave events in the outbox.
    missing = {"runtime", "outbox", "backup"}
    assert {check["state"] for name, check in found.items() if name not in missing} == {"ok"}
    assert {"model", "backlog", "jobs"} <= set(found)
    assert "embedded PostgreSQL" in found["database"]["found"]
    assert "vector" in found["schema"]["found"] + found["database"]["found"]
    table = butlers("doctor", cwd=new)
    assert table.returncode == 0
    assert all(name in table.stdout for name in found)


def test_no_configuration(butlers, tmp_path):
    result = butlers("doctor", tmp_path, "--json")
    (check,) = json.loads(result.stdout)
    assert result.returncode == 1
    assert (check["name"], check["state"]) == ("configuration", "fail")
    assert check["fix"] == "`butlers init DIR` writes one."


def test_a_runtime_that_is_not_installed_is_a_warning(butlers, tmp_path, worker):
    folder = write_butler(
        tmp_path, f"cli_{worker}", '[butler.runtime]\ntype = "command"\ncommand = ["no-such-program"]'
    )
    result = butlers("doctor", folder, "--json")
    check = findings(result)["runtime"]
    assert result.returncode == 0
    assert (check["state"], check["found"]) == ("warn", "the program no-such-program is not installed")
    assert "butler.runtime.command" in check["fix"]


def test_a_model_server_without_its_key_is_a_warning(butlers, tmp_path, worker):
    runtime = 'type = "openai"\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\napi_key_env = "NO_SUCH_KEY"'
    folder = write_butler(tmp_path, f"cli_{worker}", f"[butler.runtime]\n{runtime}")
    assert findings(butlers("doctor", folder, "--json"))["runtime"]["fix"].startswith("Export NO_SUCH_KEY")
    assert findings(butlers("doctor", folder, "--json", NO_SUCH_KEY="x"))["runtime"]["state"] == "ok"


def test_a_database_that_is_not_there(butlers, place):
    result = butlers("doctor", place, "--json", BUTLERS_DATABASE_URL="postgresql://me:hunter2@127.0.0.1:1/none")
    check = findings(result)["database"]
    assert result.returncode == 1
    assert check["state"] == "fail"
    assert check["fix"]
    assert "hunter2" not in result.stdout


async def test_a_schema_only_the_owner_could_bring_up_to_date(butlers, new, cluster):
    connection = await asyncpg.connect(cluster.dsn("postgres"))
    await connection.execute(f"create database {new.name}")
    await connection.execute(f"create role {new.name} login")
    await connection.close()
    address = cluster.dsn(new.name, new.name)
    result = butlers("doctor", new, "--json", BUTLERS_DATABASE_URL=address)
    check = findings(result)["schema"]
    assert result.returncode == 1
    assert check["state"] == "fail"
    assert "BUTLERS_ADMIN_DATABASE_URL" in check["fix"]


async def test_lifted_row_level_security_is_found_and_refused(butlers, new):
    administrator = butlers("dsn", new, "--admin").stdout.strip()
    connection = await asyncpg.connect(administrator)
    await connection.execute("alter table job_runs no force row level security")
    await connection.close()
    result = butlers("doctor", new, "--json")
    check = findings(result)["row-level security"]
    assert result.returncode == 1
    assert (check["state"], check["found"]) == ("fail", "row-level security is not forced on job_runs")
    assert "FORCE ROW LEVEL SECURITY" in check["fix"]
    refused = butlers("run", new)
    assert refused.returncode == 1
    assert refused.stderr.startswith("butlers: row-level security is not forced on job_runs.")


async def test_dead_letters_in_the_backlog_are_a_warning(butlers, new):
    administrator = butlers("dsn", new, "--admin").stdout.strip()
    connection = await asyncpg.connect(administrator)
    await connection.execute(
        "insert into episodes (tenant_id, butler, content, consolidation_status)"
        " values ('default', 'b', 'c', 'dead_letter')"
    )
    await connection.close()
    result = butlers("doctor", new, "--json")
    check = findings(result)["backlog"]
    assert result.returncode == 0
    assert (check["state"], "1 dead-lettered" in check["found"]) == ("warn", True)
    assert check["fix"]
