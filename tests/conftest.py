"""What holds for all tests: kernels of the GPU run in Triton's interpreter."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported by anyone
