"""Opening sessions with the server's settings and a model's configuration."""

from __future__ import annotations

from typing import Final

from tenonnx import GraphOptimizationLevel, InferenceSession, SessionOptions, default_plugins
from tenonnx_serve.config import LEVELS_OF_TRITON, ModelConfig, threads_of
from tenonnx_serve.settings import Settings

OPTIMIZATION_LEVELS: Final = {
    "none": GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "layout": GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    "all": GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def open_session(path: str, settings: Settings, config: ModelConfig) -> InferenceSession:
    """Return a session of a model's file; the model's configuration overrides the settings."""
    level = LEVELS_OF_TRITON.get(config.optimization.graph.level, settings.level)
    options = SessionOptions(
        graph_optimization_level=OPTIMIZATION_LEVELS[level],
        disabled_transforms=settings.without,
        intra_op_num_threads=threads_of(config) or settings.intra_op_threads,
    )
    providers = [(name, dict(how)) for name, how in settings.providers]
    return InferenceSession(path, options, providers or None)


def add_plugins(settings: Settings) -> None:
    """Add the settings' plug-ins to those of the process."""
    for file in settings.plugins:
        default_plugins().register_file(file)
