"""The files that other programs install butlers from agree with their one description, and with the code."""

import json
import re
import runpy
import stat
import tomllib

import pytest
import yaml

from butlers.app import load_configuration
from butlers.modules.memory import model_package
from butlers.modules.memory.tools import TOOLS

from .container_file import command, copied_for_the_build, settings, stages, values
from .files import ROOT

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "package_files.py"))
DESCRIPTION = SCRIPT["description"]()
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
NAME = SCRIPT["registry_name"]()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
PORT = 8101


def test_the_generated_files_are_what_their_description_says_now():
    stale = [str(path.relative_to(ROOT)) for path, text in SCRIPT["render"]().items() if path.read_text() != text]
    assert stale == [], "run `python scripts/package_files.py`"


def test_every_file_in_the_generated_folders_is_generated():
    folders = [ROOT / name for name in ("plugins", "extensions", ".claude-plugin")]
    assert {path for folder in folders for path in folder.rglob("*") if path.is_file()} <= set(SCRIPT["render"]())


def test_there_is_one_version():
    server = json.loads((ROOT / "server.json").read_text())
    labels = settings(stages()[-1], "LABEL")
    assert {
        VERSION,
        server["version"],
        server["packages"][0]["version"],
        json.loads((ROOT / "plugins/butlers/.claude-plugin/plugin.json").read_text())["version"],
        json.loads((ROOT / "extensions/gemini/gemini-extension.json").read_text())["version"],
        json.loads((ROOT / "extensions/mcpb/manifest.json").read_text())["version"],
        labels["org.opencontainers.image.version"],
        COMPOSE["services"]["butler"]["image"].partition(":")[2],
    } == {VERSION}


def test_the_readme_and_the_image_carry_the_name_in_the_registry():
    assert re.findall(r"mcp-name: (\S+)", (ROOT / "README.md").read_text()) == [NAME]
    labels = settings(stages()[-1], "LABEL")
    assert labels["io.modelcontextprotocol.server.name"] == NAME
    repository = json.loads((ROOT / "server.json").read_text())["repository"]["url"]
    assert labels["org.opencontainers.image.source"] == repository
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", NAME)


def test_the_registry_s_limits_are_kept():
    server = json.loads((ROOT / "server.json").read_text())
    assert len(server["description"]) <= 100
    assert len(server["title"]) <= 100


def test_the_bundle_lists_the_tools_that_an_agent_sees():
    manifest = json.loads((ROOT / "extensions/mcpb/manifest.json").read_text())
    assert [tool["name"] for tool in manifest["tools"]] == [tool.name for tool in TOOLS if tool.toolset == "core"]
    assert all(10 < len(tool["description"]) < 400 for tool in manifest["tools"])


def test_the_container_runs_as_a_user_with_a_volume_and_a_health_check():
    *_, stage = stages()
    assert values(stage, "USER") == ["10001"], "a number, so that an orchestrator sees that it is not root"
    assert values(stage, "VOLUME") == [settings(stage, "ENV")["BUTLERS_HOME"]] == ["/data"]
    assert values(stage, "EXPOSE") == [str(PORT)]
    assert values(stage, "STOPSIGNAL") == ["SIGTERM"]
    assert command(stage, "ENTRYPOINT") + command(stage, "CMD") == ["butlers", "run", "/data/butler"]
    (health,) = values(stage, "HEALTHCHECK")
    assert f"http://127.0.0.1:{PORT}/health" in health
    names = [name for name, _ in stage]
    assert names.index("USER") < names.index("VOLUME") < names.index("ENTRYPOINT"), "as the user from there on"


def test_the_container_has_the_model_of_this_release_by_its_hash():
    (line,) = [rest for rest in values(stages()[0], "RUN") if "--hash" in rest]
    assert model_package.REQUIREMENT in line


def test_the_files_of_the_container_exist_and_are_not_ignored():
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [*copied_for_the_build(), "container/butler.toml", "src/butlers/templates/CLAUDE.md"]
    assert [name for name in copied if not (ROOT / name).exists() or name.split("/")[0] not in kept] == []


def test_the_butler_of_the_container_is_reachable_and_asks_for_a_key():
    butler = load_configuration(ROOT / "container").butler
    assert (butler.http.host, butler.port, butler.auth.mode) == ("0.0.0.0", PORT, "keys")  # noqa: S104 — in a container
    assert "butler" in butler.http.allowed_hosts, "the name of the service in the compose file"


def test_the_compose_file_stops_gently_and_publishes_on_loopback_only():
    services = COMPOSE["services"]
    limits = load_configuration(ROOT / "container").butler.limits
    assert int(services["butler"]["stop_grace_period"].rstrip("s")) > limits.drain_seconds + limits.grace_seconds
    assert services["butler"]["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert services["butler"]["depends_on"]["database"]["condition"] == "service_healthy"
    assert "ports" not in services["database"]
    assert set(COMPOSE["volumes"]) == {each.split(":")[0] for one in services.values() for each in one["volumes"]}
    assert "POSTGRES_PASSWORD:?" in services["butler"]["environment"]["BUTLERS_ADMIN_DATABASE_URL"], (
        "no default password"
    )


@pytest.mark.parametrize("folder", ["plugins/butlers", "extensions/gemini"])
def test_a_plugin_names_only_files_that_it_has(folder):
    for path in (ROOT / folder).rglob("*.json"):
        for name in re.findall(r"(?:PLUGIN_ROOT|extensionPath|root)\}?/([\w./-]+)", path.read_text()):
            assert (ROOT / folder / name).is_file(), name
    assert not (ROOT / folder / "butler.sh").stat().st_mode & stat.S_IWOTH
