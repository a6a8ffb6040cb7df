"""Documentation tests: generated pages, addresses in files, pinned versions, examples."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest
import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from butlers.cli import app

from .files import ROOT, texts

REFERENCE = ROOT / "docs" / "reference"


@pytest.mark.parametrize("page", ["cli.md", "config.md", "schema.md"])
def test_the_reference_is_there(page):
    assert (REFERENCE / page).read_text(encoding="utf-8").startswith("# ")


def test_the_page_of_commands_is_what_the_commands_say_now():
    script = runpy.run_path(str(ROOT / "scripts" / "cli_reference.py"))
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    assert page == script["render"](), "run `python scripts/cli_reference.py`"


def command_paths(command, path="butlers"):
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield path
        return
    for name, subcommand in subcommands.items():
        yield from command_paths(subcommand, f"{path} {name}")


def test_every_command_stands_on_its_page():
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    commands = list(command_paths(typer.main.get_command(app)))
    assert "butlers key create" in commands
    assert [command for command in commands if f"## `{command}`" not in page] == []


HOME = re.compile(r"/(?:home|Users)/[A-Za-z]|/roo[t]/")
# Matches the context of a registry's address, so that no registry has to be named here.
REGISTRY = re.compile(r"(?:index|find)-(?:url|links)\b|/simpl[e]/|\"resolved\": *\"http", re.IGNORECASE)


def test_no_file_names_a_home_folder_or_a_registry():
    this_file = Path(__file__).relative_to(ROOT)
    found = {
        str(path): match[0]
        for path, text in texts().items()
        for match in (HOME.search(text), REGISTRY.search(text))
        if match and path != this_file
    }
    assert found == {}
    assert HOME.search("/home/" + "ada")
    assert REGISTRY.search("--extra-index" + "-url https://example.com")


def pins() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    versions: dict[str, str] = {}
    for line in lines:
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+]+)( ; .+)?", line)
        assert match, f"requirements.lock: {line}"
        versions[canonicalize_name(match[1])] = match[2]
    return versions


def test_the_lock_pins_everything_that_is_asked_for_and_names_no_address():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    pinned = pins()
    for requirement in (Requirement(text) for group in groups for text in group):
        name = canonicalize_name(requirement.name)
        assert name in pinned, f"{requirement} is not pinned"
        assert requirement.specifier.contains(pinned[name], prereleases=True), (
            f"{requirement} is pinned to {pinned[name]}"
        )
    assert "://" not in (ROOT / "requirements.lock").read_text()


def test_the_example_butlers_have_a_manual_and_a_configuration():
    for folder in (ROOT / "examples").iterdir():
        assert (folder / "butler.toml").is_file()
        assert (folder / "CLAUDE.md").is_file()
