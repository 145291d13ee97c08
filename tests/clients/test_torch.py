"""Models as torch exports them, with random weights, against torch's own answers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("onnxscript", reason="needs onnxscript")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs what stands for it")

TINY = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
IDS = torch.arange(20).reshape(2, 10) * 11 % 97

TEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertModel", {}),
    "roberta": ("RobertaModel", {}),
    "albert": ("AlbertModel", {"embedding_size": 16}),
    "electra": ("ElectraModel", {"embedding_size": 16}),
    "mpnet": ("MPNetModel", {}),
}


class First(torch.nn.Module):  # type: ignore[misc] # torch may be absent
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Any) -> Any:
        return self.model(x)[0]


def export(model: Any, x: Any, path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(model, (x,), dynamo=True, verbose=False)
        program.save(path, external_data=True)
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def check(model: Any, x: Any, folder: Path) -> None:
    torch.manual_seed(0)
    wrapped = First(model).eval()
    with torch.no_grad():
        expected = wrapped(x).numpy()
    session = export(wrapped, x, folder / "model.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    binding = session.io_binding()
    binding.bind_cpu_input(session.get_inputs()[0].name, x.numpy())
    binding.bind_output(session.get_outputs()[0].name)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", TEXT)
def test_encoders_of_text(kind: str, tmp_path: Path) -> None:
    name, options = TEXT[kind]
    model_class = getattr(transformers, name)
    config = model_class.config_class(**TINY, **options, attn_implementation="eager")
    check(model_class(config), IDS, tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_an_encoder_of_images(tmp_path: Path) -> None:
    small = {k: v for k, v in TINY.items() if k not in ("vocab_size", "max_position_embeddings")}
    config = transformers.ViTConfig(
        **small, image_size=32, patch_size=8, attn_implementation="eager"
    )
    check(transformers.ViTModel(config), torch.rand(2, 3, 32, 32), tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_an_encoder_of_speech(tmp_path: Path) -> None:
    config = transformers.WhisperConfig(
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_layers=1,
        decoder_attention_heads=4,
        decoder_ffn_dim=48,
        max_source_positions=20,
        num_mel_bins=8,
        attn_implementation="eager",
    )
    model = transformers.WhisperModel(config).get_encoder()
    check(model, torch.rand(1, 8, 40), tmp_path)
