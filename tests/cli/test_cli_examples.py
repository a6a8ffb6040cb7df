"""The example of a personal memory, as its README says: the server that Claude Desktop would start answers."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fastmcp import Client

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "linux": ".config/Claude/claude_desktop_config.json",
    "darwin": "Library/Application Support/Claude/claude_desktop_config.json",
}


async def test_the_memory_of_the_personal_example_is_what_claude_desktop_sees(home, cluster, tmp_path):
    (tmp_path / "butlers").mkdir()
    (commands,) = re.findall(r"```sh\n(.*?)```", (ROOT / "examples/personal/README.md").read_text(), re.DOTALL)
    variables = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "BUTLERS_HOME": str(home),
    }
    done = subprocess.run(
        ["sh", "-ec", commands], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    settings = json.loads((tmp_path / SETTINGS[sys.platform]).read_text())
    async with Client(settings) as desktop:
        (found,) = (await desktop.call_tool("memory_recall", {"topic": "what to drink"})).structured_content["result"]
    assert (found["predicate"], found["content"]) == ("favourite_tea", "Darjeeling, first flush")


@pytest.mark.parametrize("page", sorted((ROOT / "examples").glob("*/README.md")), ids=lambda path: path.parent.name)
def test_the_readme_of_an_example_has_about_ten_lines(page):
    assert 8 <= len(page.read_text().splitlines()) <= 14
