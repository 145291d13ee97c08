"""Steps that are recorded once for each combination of shapes, and replayed in machine code."""
