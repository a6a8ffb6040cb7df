"""A model somebody brings: an ONNX file and its tokenizer in a folder, as such models are published."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from butlers.errors import ConfigurationFault

Pooling = Literal["mean", "cls"]
_LONGEST = 512
_PLACES = ("model.onnx", "onnx/model.onnx")


@dataclass(frozen=True)
class OnnxFolder:
    """Where the files are, and how a text's vector is made of its tokens'."""

    path: Path
    pooling: Pooling = "mean"

    @property
    def name(self) -> str:
        """The folder's name: what the model is called."""
        return self.path.name

    @property
    def graph(self) -> Path:
        """The ONNX file."""
        found = next((self.path / place for place in _PLACES if (self.path / place).is_file()), None)
        if found is None:
            raise ConfigurationFault(
                f"modules.memory.embedding.folder: there is no model.onnx in {self.path}",
                hint="Put the model's ONNX file and its tokenizer.json there, or leave the key out.",
            )
        return found

    @property
    def tokenizer(self) -> Path:
        """The tokenizer's file."""
        path = self.path / "tokenizer.json"
        if not path.is_file():
            raise ConfigurationFault(
                f"modules.memory.embedding.folder: there is no tokenizer.json in {self.path}",
                hint="Put the model's ONNX file and its tokenizer.json there, or leave the key out.",
            )
        return path

    @cached_property
    def digest(self) -> str:
        """What tells this version of the model from any other: its files, and how they are used."""
        whole = hashlib.sha256(f"{self.pooling} {self.most_tokens}".encode())
        for path in (self.graph, self.tokenizer):
            with path.open("rb") as file:
                whole.update(hashlib.file_digest(file, "sha256").digest())
        return whole.hexdigest()[:12]

    @property
    def most_tokens(self) -> int:
        """How many tokens of a text the model reads."""
        told = self.path / "sentence_bert_config.json"
        try:
            most = json.loads(told.read_text(encoding="utf-8"))["max_seq_length"]
        except (OSError, ValueError, KeyError, TypeError):
            return _LONGEST
        return min(most, _LONGEST) if isinstance(most, int) and most > 0 else _LONGEST
