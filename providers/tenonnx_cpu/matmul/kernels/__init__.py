"""Products of packed panels, tile by tile, with epilogues."""
