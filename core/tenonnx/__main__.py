"""``python -m tenonnx`` is the ``tenonnx`` command."""

from tenonnx.cli import main

if __name__ == "__main__":
    main()
