"""Start and stop of modules: their order, and failures."""

import subprocess
import sys
from typing import Any

import pytest
from fastmcp import Client

from butlers.errors import ConfigurationFault, Unavailable
from butlers.host import module_loader
from probe import ProbeConfig, ProbeModule

STEPS: list[str] = []


@pytest.fixture(autouse=True)
def steps():
    STEPS.clear()
    return STEPS


def module_type(title, *needs, fails=False, fails_to_stop=False):
    """Return a module class that records its start and stop."""

    class RecordingModule(ProbeModule):
        name = title
        dependencies = needs
        branch = None

        async def on_startup(self, config, database, butler, spawner):
            STEPS.append(f"start {title}")
            if fails:
                raise Unavailable("it is raining") if fails is True else fails
            await super().on_startup(config, database, butler, spawner)

        async def on_shutdown(self):
            STEPS.append(f"stop {title}")
            if fails_to_stop:
                raise RuntimeError("stumbled")

        def tools(self):
            return ()

        def jobs(self):
            return ()

        async def gauges(self):
            return {}

    return RecordingModule


def configured(*names, **options):
    return {name: ProbeConfig(enabled=True, **options.get(name, {})) for name in names}


def order(*module_types, config=None):
    available = {each.name: each for each in module_types}
    return [each.name for each in module_loader.modules_in_order(available, config or configured(*available))]


def test_each_module_comes_after_those_it_needs():
    assert order(module_type("c", "b", "a"), module_type("b", "a"), module_type("a")) == ["a", "b", "c"]


def test_a_module_that_is_not_enabled_is_left_out():
    config = {**configured("a"), "b": ProbeConfig()}
    assert order(module_type("a"), module_type("b"), config=config) == ["a"]


def test_a_module_whose_need_is_not_enabled_is_refused():
    with pytest.raises(ConfigurationFault, match=r"modules\.b needs modules\.a\. Set modules\.a\.enabled = true"):
        order(module_type("a"), module_type("b", "a"), config=configured("b"))


def test_modules_that_need_one_another_are_refused():
    with pytest.raises(ConfigurationFault, match=r"in a circle: (a → b → a|b → a → b)"):
        order(module_type("a", "b"), module_type("b", "a"))


async def start(*module_types, **options):
    database: Any = None  # these modules don't use it
    return await module_loader.start_modules(
        list(module_types), configured(*(each.name for each in module_types), **options), database, "test", None
    )


async def test_modules_stop_in_the_opposite_order_whatever_one_of_them_does():
    started = await start(module_type("a"), module_type("b", fails_to_stop=True), module_type("c"))
    await module_loader.stop_modules(started)
    assert STEPS == ["start a", "start b", "start c", "stop c", "stop b", "stop a"]


async def test_one_that_fails_stops_those_before_it_and_says_why():
    with pytest.raises(Unavailable, match=r"the module c did not start: it is raining\. Fix it"):
        await start(module_type("a"), module_type("b"), module_type("c", fails=True), module_type("d"))
    assert STEPS == ["start a", "start b", "start c", "stop c", "stop b", "stop a"]


async def test_one_that_fails_lets_go_of_what_it_had_taken():
    with pytest.raises(Unavailable):
        await start(module_type("a", fails=True))
    assert STEPS == ["start a", "stop a"]


async def test_an_error_nobody_foresaw_is_named_by_its_kind_alone():
    with pytest.raises(Unavailable, match="the module a did not start: ValueError") as caught:
        await start(module_type("a", fails=ValueError("a secret")))
    assert "secret" not in str(caught.value)


async def test_an_optional_one_that_fails_is_left_out(caplog):
    started = await start(module_type("a"), module_type("b", fails=True), module_type("c"), b={"optional": True})
    assert [each.name for each in started] == ["a", "c"]
    assert STEPS == ["start a", "start b", "stop b", "start c"]
    assert caplog.records[-1].part == "b"


async def test_one_that_needs_a_module_that_was_left_out_does_not_start():
    with pytest.raises(Unavailable, match="the module b did not start: it needs a, which did not start"):
        await start(module_type("a", fails=True), module_type("b", "a"), a={"optional": True})


async def test_both_may_be_optional():
    both = {"a": {"optional": True}, "b": {"optional": True}}
    assert await start(module_type("a", fails=True), module_type("b", "a"), **both) == []
    assert "start b" not in STEPS


async def test_a_running_butler_starts_and_stops_its_modules(folder, running):
    place = folder(probe=False, memory=False)
    with (place / "butler.toml").open("a") as file:
        file.write("[modules.b]\nenabled = true\n[modules.a]\nenabled = true\n")
    async with running(place, modules=(module_type("b", "a"), module_type("a"))):
        assert STEPS == ["start a", "start b"]
    assert STEPS == ["start a", "start b", "stop b", "stop a"]


PROGRAM = """
from pathlib import Path
import typer
from probe import MODULES
from butlers import app
from butlers.cli.output import command

@command
async def run(folder: Path) -> None:
    await app.serve_http(folder, 0, modules=MODULES)

typer.run(run)
"""


def test_a_module_that_fails_ends_the_start_with_its_reason_in_one_line(folder, variables):
    place = str(folder(probing="fail = true"))
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, place], env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    lines = [line for line in ended.stderr.splitlines() if line.startswith("butlers: ")]
    assert lines == [
        "butlers: the module probe did not start: RuntimeError. "  # noqa: ISC004
        "Fix it, or set modules.probe.optional = true to run without it."
    ]
    assert "Traceback" not in ended.stderr
    assert "told to fail" not in ended.stderr


async def test_an_optional_module_that_fails_leaves_the_butler_running(folder, running):
    place = folder(probing="fail = true\noptional = true")
    async with running(place) as server, Client(server.mcp) as client:
        assert "probe_whoami" not in {each.name for each in await client.list_tools()}


@pytest.mark.parametrize("table", ["", "[modules.memory]\nenabled = false\n"], ids=["absent", "disabled"])
async def test_without_memory_the_butler_runs_and_its_tables_are_not_made(folder, running, table, cluster):
    place = folder(memory=False, fresh=True)
    with (place / "butler.toml").open("a") as file:
        file.write(table)
    async with running(place) as server, Client(server.mcp) as client:
        assert not (await client.call_tool("probe_write", {"text": "a"})).is_error
        tables = await server.database.fetch_row(
            "select to_regclass('facts') as facts, to_regclass('job_runs') as runs"
        )
    assert (tables["facts"], tables["runs"]) == (None, "job_runs")
