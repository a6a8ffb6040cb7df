"""The configuration reference page matches the models."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from butlers.config import ButlerConfig
from butlers.modules.memory.config import MemoryModuleConfig
from butlers.toml_diagnostics import table_model_of

ROOT = Path(__file__).parents[2]


def descriptions(model: type[BaseModel]) -> Iterator[tuple[str, str | None]]:
    """Yield every key of a model and of its nested tables with its description."""
    for name, field in model.model_fields.items():
        if table := table_model_of(field.annotation):
            yield from descriptions(table)
        else:
            yield name, field.description


def test_the_page_is_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "config_reference.py"))
    page = (ROOT / "docs" / "reference" / "config.md").read_text(encoding="utf-8")
    assert page == script["render"](), "run `python scripts/config_reference.py`"


def test_every_key_has_a_description() -> None:
    for model in (ButlerConfig, MemoryModuleConfig):
        assert not [name for name, description in descriptions(model) if not description]


def test_every_key_of_the_example_files_is_on_the_page() -> None:
    page = (ROOT / "docs" / "reference" / "config.md").read_text(encoding="utf-8")
    for example in ROOT.glob("examples/*/butler.toml"):
        for key in re.findall(r"^(?:# )?([a-z_]+) = ", example.read_text(encoding="utf-8"), re.MULTILINE):
            assert f"`{key}`" in page or f".{key}]" in page
