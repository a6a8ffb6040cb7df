"""Exports for the MCP memory server and as Markdown."""

import io
import json
from datetime import UTC, datetime

import pytest

from butlers.memory_formats import Source, find_format
from butlers.modules.memory.operations import foreign_import, readable_export
from butlers.modules.memory.operations.foreign_records import ImportOptions
from formats.foreign_samples import SAMPLES

from .conftest import write_butler
from .sample_memory import open_memory, sample_tenant


@pytest.fixture(scope="module")
async def here(tmp_path_factory, worker, environment):
    async with open_memory(tmp_path_factory.mktemp("here") / "b", f"readable_{worker}", environment) as opened:
        yield opened


async def export(here, caller, name):
    out = io.StringIO()
    counts = await readable_export.export_readable(here.memory, caller, name, out.write)
    return out.getvalue(), counts


async def bring(here, caller, path):
    with Source(path) as source:
        options = ImportOptions(format="mcp-memory", file="m", butler=here.memory.butler, now=datetime.now(UTC))
        return await foreign_import.import_foreign(
            here.memory, caller, source, find_format("mcp-memory", source), options
        )


async def test_a_graph_of_the_memory_server_comes_back_as_it_was(here, tmp_path):
    path = SAMPLES["mcp-memory"](tmp_path, 5)
    caller = here.new_caller()
    await bring(here, caller, path)
    exported, _ = await export(here, caller, "mcp-memory")
    original = [json.loads(line) for line in path.read_text().splitlines()]

    def normal(lines):
        return sorted(
            json.dumps(each | {"observations": sorted(each.get("observations", []))}, sort_keys=True)
            for each in lines
        )

    assert normal(map(json.loads, exported.splitlines())) == normal(original)
    again, other = tmp_path / "again.jsonl", here.new_caller()
    again.write_text(exported)
    await bring(here, other, again)
    assert (await export(here, other, "mcp-memory"))[0] == exported


async def test_what_is_forgotten_superseded_or_of_another_tenant_is_not_exported(here):
    caller, other = await sample_tenant(here), here.new_caller()
    await here.call(other, "memory_store_fact", "Eve", "secret", "of another tenant")
    for name in readable_export.FORMATS:
        exported, counts = await export(here, caller, name)
        assert "eats no meat" in exported
        assert "Ask Ada before you book" in exported
        for gone in ("thirty-eight", "Shout", "Town 0", "another tenant"):
            assert gone not in exported
        assert counts["fact"] == 2


async def test_an_export_counts_nothing_as_used_and_is_the_same_twice(here):
    caller = await sample_tenant(here)
    before = await here.export(caller)
    for name in readable_export.FORMATS:
        assert await export(here, caller, name) == await export(here, caller, name)
    assert (await here.export(caller))[1:] == before[1:]


async def test_markdown_has_one_item_for_each_memory_and_no_text_leaves_it(here):
    caller = here.new_caller()
    hostile = "first\n# Heading\n- item\n```\n<script>alert(1)</script>\x1b[2J\u2028x"
    await here.call(caller, "memory_store_fact", "Ann\n## Rules", "favourite drink", hostile)
    await here.call(caller, "memory_store_rule", hostile)
    exported, _ = await export(here, caller, "markdown")
    assert [line for line in exported.splitlines() if line.startswith("#")] == [
        f"# Memories of {caller.tenant}",
        "## Facts",
        "### Ann ## Rules",
        "## Rules",
    ]
    assert [line[:2] for line in exported.splitlines() if line[:1] == "-"] == ["- ", "- "]
    assert "<script>" not in exported
    assert "\x1b" not in exported
    assert "  \\# Heading\n  \\- item\n" in exported


async def test_a_changed_fact_is_one_line_of_a_diff(here):
    caller = here.new_caller()
    for n in range(20):
        await here.call(caller, "memory_store_fact", f"Ann {n % 3}", f"p{n}", f"value {n}")
    before = (await export(here, caller, "markdown"))[0].splitlines()
    await here.call(caller, "memory_store_fact", "Ann 1", "p4", "another value")
    after = (await export(here, caller, "markdown"))[0].splitlines()
    assert len(before) == len(after)
    assert [line for line in after if line not in before] == ["- **p4**: another value"]


async def test_an_empty_tenant_is_an_empty_document(here):
    caller = here.new_caller()
    assert await export(here, caller, "mcp-memory") == ("", {})
    assert (await export(here, caller, "markdown"))[0] == f"# Memories of {caller.tenant}\n"


async def test_the_program_exports_both_formats(shell, tmp_path, worker, tenant):
    folder = write_butler(tmp_path, f"cli_{worker}")
    shell("import", folder, SAMPLES["mcp-memory"](tmp_path), "--tenant", tenant)
    for name, first in (("mcp-memory", '{"type":"entity"'), ("markdown", "# Memories of ")):
        file = tmp_path / name
        done = shell("memory", "export", folder, file, "--to", name, "--tenant", tenant)
        assert (done.returncode, file.read_text()[: len(first)]) == (0, first)
    refused = shell("memory", "export", folder, "--to", "zep", "--tenant", tenant)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "Choose one of butlers, mcp-memory, markdown." in refused.stderr
