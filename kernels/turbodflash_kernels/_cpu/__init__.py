"""The CPU device: kernels in Python, compiled once by Numba, played by a team of threads."""
