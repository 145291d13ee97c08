"""How many replicas a cluster holds, when they are ready, and what requests wait for.

``python -m bench capacity`` prints the tables of docs/capacity.md; with ``--ray`` it compares the
simulation with two local nodes of Ray.
"""
