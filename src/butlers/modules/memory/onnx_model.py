"""A model by itself: texts in, vectors out, in one run on the thread that asks."""

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


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """Tokenizer and session; a pooling where the session leaves that to us."""

    session: "InferenceSession"
    tokenizer: "Tokenizer"
    counter: "Tokenizer"
    pooling: Pooling | None = None

    def vectors(self, texts: Sequence[str]) -> list[Vector]:
        """Each text's vector, in one run."""
        inputs = self._inputs(self.tokenizer.encode_batch(list(texts)))
        found = self.session.run(None, inputs)[0]
        if self.pooling is not None:
            found = _pool_and_normalize(found, inputs["attention_mask"], self.pooling)
        vectors: list[Vector] = found.tolist()
        return vectors

    def _inputs(self, encodings: "Sequence[Encoding]") -> dict[str, Any]:
        import numpy as np

        told = {
            "input_ids": np.array([encoding.ids for encoding in encodings], dtype=np.int64),
            "attention_mask": np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64),
        }
        if any(wanted.name == "token_type_ids" for wanted in self.session.get_inputs()):
            told["token_type_ids"] = np.zeros_like(told["input_ids"])
        return told


def _pool_and_normalize(hidden: Any, mask: Any, pooling: Pooling) -> Any:
    """One normalised vector a text."""
    import numpy as np

    if hidden.ndim == 3:
        weights = mask[..., None].astype(np.float32)
        mean = (hidden * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
        hidden = hidden[:, 0] if pooling == "cls" else mean
    return hidden / np.maximum(np.linalg.norm(hidden, axis=1, keepdims=True), _TINY)


def load_minilm(cache_folder: Path) -> OnnxModel:
    """all-MiniLM-L6-v2, its graph built if need be."""
    return _load_model(minilm.graph_file(cache_folder), minilm.model_folder() / "tokenizer.json", minilm.MOST_TOKENS)


def load_folder(folder: OnnxFolder) -> OnnxModel:
    """The model in that folder; one whose vectors have another length than those that are kept is refused."""
    graph, words = folder.graph, folder.tokenizer
    try:
        model = _load_model(graph, words, folder.most_tokens, folder.pooling)
        # As long as a text may be: one it can't read would be noticed at the first long memory.
        dimensions = len(model.vectors(["word " * folder.most_tokens])[0])
    except Exception as error:
        raise ConfigurationFault(
            f"modules.memory.embedding.folder: the model in {folder.path} can't be used: {type(error).__name__}",
            hint="Its files may be damaged, or sentence_bert_config.json may promise longer texts than it can read.",
        ) from error
    if dimensions != minilm.DIMENSIONS:
        raise ConfigurationFault(
            f"modules.memory.embedding.folder: {folder.name} makes vectors of {dimensions} dimensions, and memories "
            f"are kept with {minilm.DIMENSIONS}",
            hint=f"Choose a model of {minilm.DIMENSIONS} dimensions: vectors of other lengths can't be compared.",
        )
    return model


def _load_model(graph: Path, words: Path, most_tokens: int, pooling: Pooling | None = None) -> OnnxModel:
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Threads that spin while they wait take the cores from the database beside them.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    tokenizer, counter = Tokenizer.from_file(str(words)), Tokenizer.from_file(str(words))
    tokenizer.enable_truncation(most_tokens)
    tokenizer.enable_padding()
    counter.no_truncation()
    counter.no_padding()
    return OnnxModel(session, tokenizer, counter, pooling)
