"""What holds for all tests: kernels of the GPU run in Triton's interpreter; where tests run side by
side, each process keeps to a core of its own, and the longest tests begin; numpy multiplies alike
on all processors that can: what plain arithmetic loses is a yardstick, and wider registers would
make its sums shorter.
"""

import os

import llvmlite.binding as llvm
import pytest
from hypothesis import HealthCheck, settings

# how long it takes to make an example says something about the machine, not about the code
settings.register_profile(
    "here", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("here")

os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported by anyone
if llvm.get_host_cpu_features().get("avx2"):
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")  # before numpy is

_worker = os.environ.get("PYTEST_XDIST_WORKER", "")
if _worker and hasattr(os, "sched_setaffinity"):
    # threads that wait for each other would otherwise share cores with another process's
    _cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {_cores[int(_worker.removeprefix("gw")) % len(_cores)]})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who has done its own tests takes of another's last ones: they should be short."""
    items.sort(key=lambda item: item.path.name != "test_ahead.py")
