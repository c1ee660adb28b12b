"""What tests of drafts share: the model they draft for, on every device."""

from __future__ import annotations

import pytest

from tests.engine.tiny_models import tiny
from turbodflash_engine.models._base import Model
from turbodflash_kernels.device import Device, open_device


@pytest.fixture(scope="module", params=["reference", "cpu"])
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


@pytest.fixture(scope="module")
def model(device: Device) -> Model:
    return tiny("qwen3", device)


@pytest.fixture
def target(model: Model) -> Model:
    model.cache.truncate(0)
    return model
