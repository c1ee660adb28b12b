"""The CPU device: kernels written in Python, compiled once by Numba, run by a spinning thread team."""
