"""The example of a coding memory, as its README says, with the real Claude Code and Codex."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from .model_server import model_server, questions
from .real_agents import ANSWER, REAL_AGENTS, session_variables

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
TOLD = "We deploy on Tuesdays, because the warehouse counts on Mondays."


def commands(example: str) -> list[str]:
    """The commands of an example's README, with the path of the example."""
    text = (ROOT / "examples" / example / "README.md").read_text()
    (block,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return str(block).replace("examples/", f"{ROOT}/examples/", 1).splitlines()


def approve(program: Path, folder: Path) -> None:
    """Write a program `codex` that passes the approvals which a person gives."""
    options = "--skip-git-repo-check --dangerously-bypass-hook-trust"
    (folder / "codex").write_text(f'#!/bin/sh\nshift\nexec "{program}" exec {options} "$@"\n')
    (folder / "codex").chmod(0o755)


async def test_what_one_agent_is_told_the_other_knows(run, programs, owner, tmp_path, cluster):
    project = owner / "code" / "shop"
    project.mkdir(parents=True)
    (owner / "butlers").mkdir()
    approve(programs / "codex", tmp_path)
    *told, asked = commands("coding")
    async with model_server(ANSWER) as model:
        variables: dict[str, str] = {}
        for name in ("claude-code", "codex"):
            REAL_AGENTS[name].prepare(owner, project, model.url)
            variables |= session_variables(REAL_AGENTS[name], model.url)
        done = await run("sh", "-ec", "\n".join(told), **variables)
        assert done.returncode == 0, done.stderr
        for _ in range(60):
            found = await run("butlers", "memory", "search", owner / "butlers/coding", "deploy", "--json")
            if found.stdout.strip() not in {"", "[]"}:
                break
            await asyncio.sleep(0.5)
        assert TOLD in json.loads(found.stdout)[0]["content"]
        done = await run("sh", "-ec", f"cd ~/code/shop\nPATH={tmp_path}:$PATH\n{asked}", **variables)
        assert done.returncode == 0, done.stderr
    assert TOLD in questions(model)[-1], "the episode of Claude Code is in what the model of Codex reads"
