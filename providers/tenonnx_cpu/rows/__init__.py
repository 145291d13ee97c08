"""What goes over rows: softmax, norms, reductions, the greatest elements."""
