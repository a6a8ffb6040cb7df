"""The public surface against the recorded one: tools, schemas, commands, options and configuration keys."""

import json
import runpy

import pytest

from .files import ROOT

RECORDED = json.loads((ROOT / "tests" / "house" / "public_surface.json").read_text(encoding="utf-8"))
# Old name to new name. A rename is documented in CHANGELOG.md.
RENAMED: dict[str, dict[str, str]] = {"tools": {}, "commands": {}, "configuration": {}}


@pytest.mark.parametrize("group", ["tools", "commands", "configuration"])
def test_the_public_surface_is_the_recorded_one(group):
    current = runpy.run_path(str(ROOT / "scripts" / "public_surface.py"))["surface"]()[group]
    renamed = RENAMED[group]
    expected = {renamed.get(name, name): entry for name, entry in RECORDED[group].items()}
    assert json.loads(json.dumps(current)) == expected


def test_the_recorded_surface_has_the_nineteen_tools():
    core = [name for name, tool in RECORDED["tools"].items() if tool["toolset"] == "core" and name != "trigger"]
    assert len(core) == 19
