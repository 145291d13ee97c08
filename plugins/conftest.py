"""Tests of distributions in this folder have what the runtime's tests have."""

pytest_plugins = ["suite_wide"]
