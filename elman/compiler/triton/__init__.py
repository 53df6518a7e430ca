"""Triton kernels for GPUs: emitters, synchronization between thread blocks, the cost model, and launching."""
