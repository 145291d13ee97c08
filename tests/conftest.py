pytest_plugins = ["suite_wide"]
