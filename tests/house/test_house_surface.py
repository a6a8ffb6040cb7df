"""The public surface against the recorded one: tools, schemas, commands, options and configuration keys."""

import json
import runpy

import pytest

from .files import ROOT

RECORDED = json.loads((ROOT / "tests" / "house" / "public_surface.json").read_text(encoding="utf-8"))
# Old name to new name of an entry, or of an argument or option inside one. A rename is documented in CHANGELOG.md.
RENAMED: dict[str, dict[str, str]] = {"tools": {}, "commands": {}, "configuration": {}}
RENAMED["configuration"] |= {
    "butler.sessions.most_at_once": "butler.sessions.max_concurrent",
    "butler.sessions.most_waiting": "butler.sessions.max_queued",
    "butler.sessions.memory_seconds": "butler.sessions.memory_timeout_seconds",
    "butler.sessions.tool": "butler.sessions.trigger_tool",
    "modules.memory.consolidation.trust": "modules.memory.consolidation.distilled_confidence",
}
RENAMED_INSIDE: dict[str, dict[str, str]] = {
    "memory_retract_from": {"also_elsewhere": "include_corroborated"},
    "butlers memory retract-from": {"--also-elsewhere": "--include-corroborated"},
}


@pytest.mark.parametrize("group", ["tools", "commands", "configuration"])
def test_the_public_surface_is_the_recorded_one(group):
    current = runpy.run_path(str(ROOT / "scripts" / "public_surface.py"))["surface"]()[group]
    renamed = RENAMED[group]
    expected = {
        renamed.get(name, name): rename_keys(entry, RENAMED_INSIDE.get(name, {}))
        for name, entry in RECORDED[group].items()
    }
    assert json.loads(json.dumps(current)) == expected


def rename_keys(entry: object, renamed: dict[str, str]) -> object:
    """Return an entry with the keys of its objects renamed, at any depth."""
    if isinstance(entry, dict):
        return {renamed.get(key, key): rename_keys(value, renamed) for key, value in entry.items()}
    return entry


@pytest.mark.parametrize("name", RENAMED_INSIDE)
def test_a_documented_rename_is_of_the_recorded_surface(name):
    recorded = json.dumps({**RECORDED["tools"], **RECORDED["commands"]}[name])
    assert all(f'"{old}"' in recorded for old in RENAMED_INSIDE[name])


def test_the_recorded_surface_has_the_nineteen_tools():
    core = [name for name, tool in RECORDED["tools"].items() if tool["toolset"] == "core" and name != "trigger"]
    assert len(core) == 19
