"""The butler's embedding model for the peers: the same files and session settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

MAX_TOKENS = 256


class Embedder:
    """Vectors of texts, computed in one run of the session."""

    def __init__(self, graph: Path, tokenizer: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            str(graph), options, providers=["CPUExecutionProvider"], disabled_optimizers=["SkipLayerNormFusion"]
        )
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()

    def array(self, texts: Sequence[str]) -> "np.ndarray[Any, Any]":
        """The vectors as one array."""
        encodings = self._tokenizer.encode_batch(list(texts))
        inputs = {
            "input_ids": np.array([encoding.ids for encoding in encodings], dtype=np.int64),
            "attention_mask": np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64),
        }
        vectors: np.ndarray[Any, Any] = self._session.run(None, inputs)[0]
        return vectors

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """The vectors as lists."""
        vectors: list[list[float]] = self.array(texts).tolist()
        return vectors
