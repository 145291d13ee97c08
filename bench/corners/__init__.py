"""Models that few have, each a table of rows: what is slow where nobody looks."""
