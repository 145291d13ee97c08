"""One page of all results: what is lost first, then area by area."""
