"""Models, files and inputs that no exporter writes, in processes that may die of them.

``python -m fuzz --minutes 60`` draws cases by number: a seed of :mod:`fuzz.corpus`, changed by
:mod:`fuzz.drawing`, and always the same one for the same number, corpus and ``VERSION``.
:mod:`fuzz.examining` says what a runtime may not do with one, :mod:`fuzz.runner` runs them under
limits, and :mod:`fuzz.minimize` leaves of a model only what it takes.
"""

VERSION = 1
"""Of the mutations: a number stands for the same case as long as this does."""
