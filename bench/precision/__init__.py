"""Errors of answers against the exact ones, beside onnxruntime's.

``case`` says what a case is; ``pointwise``, ``rows``, ``products``, ``windows`` and ``models`` have
them, ``measure`` runs them, ``table`` lists the results.
"""
