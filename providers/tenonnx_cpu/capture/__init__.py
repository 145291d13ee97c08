"""Steps that are captured once for each combination of shapes, and replayed in machine code."""
