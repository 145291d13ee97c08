"""What a user meets who has just installed: the first runs of a fresh process."""
