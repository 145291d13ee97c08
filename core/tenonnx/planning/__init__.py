"""From a placed model to the function that runs it."""
