"""Loading and running of an embedding model on the calling thread."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from butlers.errors import ConfigurationFault
from butlers.modules.memory import minilm
from butlers.modules.memory.onnx_folder import OnnxFolder, Pooling

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Encoding, Tokenizer

Vector = list[float]
_TINY = 1e-12
SLOW_FUSIONS = ("SkipLayerNormFusion",)
"""Optimizers of ONNX Runtime whose operator is slower on a CPU than those it replaces."""


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """A session with its tokenizers; `pooling` is None if the graph pools by itself."""

    session: "InferenceSession"
    tokenizer: "Tokenizer"
    counter: "Tokenizer"
    pooling: Pooling | None = None

    def vectors(self, texts: Sequence[str]) -> list[Vector]:
        """The vectors of the texts, from one run."""
        inputs = self._inputs(self.tokenizer.encode_batch(list(texts)))
        output = self.session.run(None, inputs)[0]
        if self.pooling is not None:
            output = _pool_and_normalize(output, inputs["attention_mask"], self.pooling)
        vectors: list[Vector] = output.tolist()
        return vectors

    def _inputs(self, encodings: "Sequence[Encoding]") -> dict[str, Any]:
        import numpy as np

        inputs = {
            "input_ids": np.array([encoding.ids for encoding in encodings], dtype=np.int64),
            "attention_mask": np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64),
        }
        if any(each.name == "token_type_ids" for each in self.session.get_inputs()):
            inputs["token_type_ids"] = np.zeros_like(inputs["input_ids"])
        return inputs


def _pool_and_normalize(hidden: Any, mask: Any, pooling: Pooling) -> Any:
    """One normalised vector per text."""
    import numpy as np

    if hidden.ndim == 3:
        weights = mask[..., None].astype(np.float32)
        mean = (hidden * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
        hidden = hidden[:, 0] if pooling == "cls" else mean
    return hidden / np.maximum(np.linalg.norm(hidden, axis=1, keepdims=True), _TINY)


def load_minilm(cache_folder: Path) -> OnnxModel:
    """all-MiniLM-L6-v2; its graph is built if it is missing."""
    tokenizer = minilm.model_folder(cache_folder) / minilm.TOKENIZER_FILE
    return _load_model(minilm.graph_file(cache_folder), tokenizer, minilm.MAX_TOKENS)


def load_folder(folder: OnnxFolder) -> OnnxModel:
    """The model in the folder; raises ConfigurationFault if it can't run or has other dimensions than the table."""
    graph, tokenizer = folder.graph, folder.tokenizer
    try:
        model = _load_model(graph, tokenizer, folder.max_tokens, folder.pooling)
        # Tried with the longest text: otherwise the first long memory would fail.
        dimensions = len(model.vectors(["word " * folder.max_tokens])[0])
    except Exception as error:
        raise ConfigurationFault(
            f"modules.memory.embedding.folder: the model in {folder.path} can't be used: {type(error).__name__}",
            hint="Check its files, and that max_seq_length in sentence_bert_config.json is not too large for it.",
        ) from error
    if dimensions != minilm.DIMENSIONS:
        raise ConfigurationFault(
            f"modules.memory.embedding.folder: {folder.name} has vectors of {dimensions} dimensions, but memories "
            f"are stored with {minilm.DIMENSIONS}",
            hint=f"Choose a model with {minilm.DIMENSIONS} dimensions.",
        )
    return model


def _load_model(graph: Path, tokenizer_file: Path, max_tokens: int, pooling: Pooling | None = None) -> OnnxModel:
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Spinning threads would take the cores from the database on the same machine.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
        graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOW_FUSIONS
    )
    tokenizer, counter = (Tokenizer.from_file(str(tokenizer_file)) for _ in range(2))
    tokenizer.enable_truncation(max_tokens)
    tokenizer.enable_padding()
    counter.no_truncation()
    counter.no_padding()
    return OnnxModel(session, tokenizer, counter, pooling)
