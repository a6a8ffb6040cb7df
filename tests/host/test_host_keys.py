"""API keys over real HTTP."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from fastmcp import Client

from butlers.errors import InvalidInput
from butlers.host import api_keys

KEYS = '[butler.auth]\nmode = "keys"'
ERAS = ("auto", "legacy")


def result(answer):
    return answer.json()["result"]


def who(answer):
    return result(answer)["structuredContent"]


def refused(answer):
    assert result(answer)["isError"]
    return result(answer)["content"][0]["text"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_key_says_who_calls(folder, listening, keyring, era):
    async with listening(folder(KEYS)) as site, keyring() as ring:
        key = await ring.make("acme")
        async with Client(site.mcp, auth=key, mode=era) as client:
            seen = (await client.call_tool("probe_whoami", {})).structured_content
    assert (seen["tenant"], seen["actor"], seen["roles"], seen["elevated"]) == ("acme", "robot", [], False)


async def test_without_a_key_that_is_in_force_nobody_gets_in(folder, listening, keyring):
    async with listening(folder(KEYS)) as site, keyring() as ring:
        good = await ring.make()
        prefix, key_id, secret = good.split("_", 2)
        credentials = [
            None,
            "garbage",
            "butlers_",
            "butlers__",
            "butlers_zz_secret",
            f"{prefix}_{uuid.uuid4().hex}_{secret}",
            f"{prefix}_{key_id}_{secret[:-1]}",
            f"{prefix}_{key_id}_",
            f"other_{key_id}_{secret}",
            good.upper(),
            "%00%ff",
            "x" * 5000,
        ]
        for credential in credentials:
            answer = await site.call(credential)
            assert answer.status_code == 401, credential
            assert answer.headers["www-authenticate"].startswith("Bearer")
        assert (await site.call(good)).status_code == 200


async def test_a_key_in_another_scheme_opens_nothing(folder, listening, keyring):
    async with listening(folder(KEYS)) as site, keyring() as ring:
        answer = await site.send("POST", "/mcp", json={}, headers={"Authorization": f"Basic {await ring.make()}"})
    assert answer.status_code == 401


async def test_an_expired_key_opens_nothing(folder, listening, keyring):
    async with listening(folder(KEYS)) as site, keyring() as ring:
        now = datetime.now(UTC)
        assert (await site.call(await ring.make(expires_at=now - timedelta(seconds=1)))).status_code == 401
        assert (await site.call(await ring.make(expires_at=now + timedelta(hours=1)))).status_code == 200


async def test_a_key_works_at_once_and_stops_at_once(folder, listening, keyring):
    async with listening(folder(KEYS)) as site, keyring() as ring:
        key = await ring.make()
        assert (await site.call(key)).status_code == 200
        await ring.end(key)
        assert (await site.call(key)).status_code == 401


async def test_an_admin_that_is_not_elevated_stays_in_its_tenant(folder, listening, keyring):
    async with listening(folder(KEYS)) as site, keyring() as ring:
        admin = await ring.make(roles=("admin",))
        assert who(await site.call(admin))["roles"] == ["admin"]
        assert refused(await site.call(admin, tenant_id="globex")).startswith("forbidden: ")


async def test_an_elevated_admin_works_wholly_inside_the_tenant_it_names(folder, listening, keyring):
    there, here = f"t{uuid.uuid4().hex}", f"t{uuid.uuid4().hex}"
    async with listening(folder(KEYS)) as site, keyring() as ring:
        admin = await ring.make(here, roles=("admin",), elevated=True)
        seen = who(await site.call(admin, tenant_id=there))
        await site.call(admin, "probe_write", text="theirs", tenant_id=there)
        assert who(await site.call(admin, "probe_write", text="mine"))["rows"] == 1
        rows = await ring.owner.fetch("select tenant_id, text from probe_rows where tenant_id = $1", there)
    assert (seen["tenant"], seen["home_tenant"], seen["elevated"]) == (there, here, True)
    assert [tuple(row) for row in rows] == [(there, "theirs")]


def test_a_key_without_the_admin_role_can_not_be_elevated():
    with pytest.raises(InvalidInput, match="only an admin key can be elevated"):
        api_keys.NewKey(tenant="acme", actor="robot", elevated=True)


async def test_elevation_without_the_admin_role_opens_no_other_tenant(folder, listening, keyring):
    async with listening(folder(KEYS)) as site, keyring() as ring:
        key = await ring.make()
        await ring.owner.execute("update api_keys set elevated = true where id = $1", key.split("_")[1])
        assert who(await site.call(key))["elevated"]
        assert refused(await site.call(key, tenant_id="globex")).startswith("forbidden: ")


@pytest.mark.parametrize("wrong", [{"roles": ("root",)}, {"tenant": ""}, {"actor": " "}])
def test_a_key_that_makes_no_sense_is_not_made(wrong):
    with pytest.raises(InvalidInput):
        api_keys.NewKey(**{"tenant": "acme", "actor": "robot", **wrong})


async def test_the_table_holds_hashes_only(folder, listening, keyring):
    async with listening(folder(KEYS)), keyring() as ring:
        key = await ring.make()
        secret = key.split("_", 2)[2]
        row = await ring.owner.fetchrow(
            "select k::text, secret_hash from api_keys k where id = $1", key.split("_")[1]
        )
    assert secret not in row["k"]
    assert secret.encode().hex() not in row["k"]
    assert len(row["secret_hash"]) == 32


async def test_a_database_that_is_away_is_not_a_wrong_key(folder, listening, keyring, wire, by_wire):
    async with listening(folder(KEYS)):
        pass
    async with listening(folder(KEYS), env=by_wire) as site, keyring() as ring:
        key = await ring.make(roles=("admin",))
        assert (await site.call(key)).status_code == 200
        await wire.cut()
        assert (await site.call(key)).status_code == 503
        metrics = await site.get("/metrics", authorization=f"Bearer {key}")
        assert metrics.status_code == 503
        health = await site.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "unavailable")
        await wire.join()
        assert (await site.call(key)).status_code == 200
        assert (await site.get("/health")).status_code == 200


async def test_metrics_are_for_admins_where_callers_need_keys(folder, listening, keyring):
    async with listening(folder(KEYS)) as site, keyring() as ring:
        plain, admin = await ring.make(), await ring.make(roles=("admin",))
        assert (await site.get("/metrics")).status_code == 401
        assert (await site.get("/metrics", authorization="Bearer nonsense")).status_code == 401
        assert (await site.get("/metrics", authorization=f"Basic {admin}")).status_code == 401
        assert (await site.get("/metrics", authorization=f"Bearer {plain}")).status_code == 403
        page = await site.get("/metrics", authorization=f"Bearer {admin}")
    assert page.status_code == 200
    assert "butlers_pool_connections" in page.text


async def test_one_tenants_flood_leaves_the_others_alone(folder, listening, keyring):
    limits = "[butler.limits]\ncalls_per_second = 0.01\nburst = 3\n"
    async with listening(folder(limits + KEYS)) as site, keyring() as ring:
        loud, quiet = await ring.make("loud"), await ring.make("quiet")
        for _ in range(3):
            assert who(await site.call(loud))["tenant"] == "loud"
        assert refused(await site.call(loud)).startswith("overloaded: more than 0.01 calls a second. ")
        assert who(await site.call(quiet))["tenant"] == "quiet"
        page = (await site.server.metrics.render(site.server.database, {})).decode()
    assert 'outcome="overloaded",tool="probe_whoami"} 1.0' in page
