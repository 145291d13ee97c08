"""Spectra of long signals, which are computed some frames at a time."""

from __future__ import annotations

import numpy as np
import pytest

from tenonnx_array import signal


@pytest.mark.parametrize("onesided", [0, 1])
def test_spectra(onesided: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    given = rng.standard_normal((2, 90, 1)).astype(np.float32), np.array(3)
    window = np.hanning(8).astype(np.float32)
    expected = signal.stft(np, *given, window, onesided=onesided)
    monkeypatch.setattr(signal, "MAX_TRANSFORMED_SAMPLES", 50)
    found = signal.stft(np, *given, window, onesided=onesided)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype
