"""The sentinel that marks memory not yet written, for kernels whose thread blocks poll each other's results."""

ABSENT = -1  # all bits set: a NaN that arithmetic does not produce, whose NaNs have no sign bit
