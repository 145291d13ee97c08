"""Programs of elementwise operations."""
