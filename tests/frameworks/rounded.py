"""The case whose expected answer is rounded more often than any library rounds."""

from __future__ import annotations

ROUNDED = {
    "test_attention_4d_causal_fp16_expanded": "its Softmax is rounded to float16 after every step",
}
