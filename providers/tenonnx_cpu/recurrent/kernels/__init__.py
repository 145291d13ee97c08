"""Kernels of recurrent layers.

What they and their callers agree on is here, which is imported without numba.
"""

from __future__ import annotations

RNN, LSTM, GRU, GRU_RESET_AFTER = range(4)

# Places in `Layout.numbers`.
#
# `REVERSE` is 1 if the first direction runs backwards; `PACKS`, whether weights are packed first. A
# direction's units are cut into `PARTS` of `UNITS` each, or the batch into `GROUPS` of `ITEMS`, for
# `TEAM` threads. From a time, an item of the batch or a direction to the next it is `X_TIME` or
# `X_ROW` rows of the inputs, `Y_TIME`, `Y_WAY` or `Y_ROW` floats of the outputs, `STATE_WAY` or
# `STATE_ROW` of states.
#
# The rest is in floats: `PITCH` from item to item of a state in memory, `SHARE` of a worker,
# `PANELS` of packed weights of a part, and where things begin.
(
    KIND, STEPS, BATCH, INPUTS, N, WAYS, REVERSE, PACKS, UNITS, PARTS, ITEMS, GROUPS, TEAM,
    X_TIME, X_ROW, Y_TIME, Y_WAY, Y_ROW, STATE_WAY, STATE_ROW, PITCH, SHARE,
    PANELS, GATES_AT, BIAS_AT, STATES_AT, CELLS_AT, RESET_AT, PACKED_AT, WORK_AT,
) = range(30)  # fmt: skip
