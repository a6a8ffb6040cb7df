"""A folder with an ONNX model and its tokenizer, as such models are published."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from butlers.errors import ConfigurationFault

Pooling = Literal["mean", "cls"]
_MAX_TOKENS = 512


@dataclass(frozen=True)
class OnnxFolder:
    """The folder of a model, and how its token vectors are pooled."""

    path: Path
    pooling: Pooling = "mean"

    @property
    def name(self) -> str:
        """The model's name: that of the folder."""
        return self.path.name

    @property
    def graph(self) -> Path:
        """The path of the ONNX file; raises ConfigurationFault if there is none."""
        return self._find_file("model.onnx", "onnx/model.onnx")

    @property
    def tokenizer(self) -> Path:
        """The path of the tokenizer's file; raises ConfigurationFault if there is none."""
        return self._find_file("tokenizer.json")

    def _find_file(self, *candidates: str) -> Path:
        found = next((self.path / name for name in candidates if (self.path / name).is_file()), None)
        if found is None:
            raise ConfigurationFault(
                f"modules.memory.embedding.folder: there is no {candidates[0]} in {self.path}",
                hint="Put the model's ONNX file and its tokenizer.json there, or leave the key out.",
            )
        return found

    @cached_property
    def digest(self) -> str:
        """The version of the model: a hash of its files and of how they are used."""
        digest = hashlib.sha256(f"{self.pooling} {self.max_tokens}".encode())
        for path in (self.graph, self.tokenizer):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()[:12]

    @property
    def max_tokens(self) -> int:
        """The tokens of a text that the model reads; a default if the folder does not say it clearly."""
        config = self.path / "sentence_bert_config.json"
        try:
            length = json.loads(config.read_text(encoding="utf-8"))["max_seq_length"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return _MAX_TOKENS
        return min(length, _MAX_TOKENS) if isinstance(length, int) and length > 0 else _MAX_TOKENS
