"""The GPU device: Triton kernels on torch tensors."""
