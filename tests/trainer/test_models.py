"""The models of the trainer."""

import pytest
import torch

from everstep.catalog.trainer_options import MODELS
from everstep.errors import EverstepError
from trainer import models


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("resnet18", 11_689_512), ("resnet50", 25_557_032), ("efficientnet_b0", 5_288_548)],
)
def test_models_have_as_many_parameters_as_published(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = models.build(name, classes=1000)

    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_an_output_for_each_class(name: str) -> None:
    with torch.device("meta"):
        model = models.build(name, classes=7).eval()

        assert model(torch.empty(2, 3, 64, 64)).shape == (2, 7)


def test_an_unknown_model_is_reported_with_the_nearest_name() -> None:
    with pytest.raises(EverstepError, match="there is no model named 'resnet-18'") as error:
        models.check_name("resnet-18")

    assert "resnet18" in error.value.fix


def test_biases_and_normalization_do_not_decay() -> None:
    model = models.build("resnet18", classes=10)

    decaying_group, other_group = models.parameter_groups(model, 1e-3)

    assert all(parameter.ndim > 1 for parameter in decaying_group["params"])
    assert decaying_group["weight_decay"] == 1e-3
    assert other_group["weight_decay"] == 0
    assert len(decaying_group["params"]) + len(other_group["params"]) == len(
        list(model.parameters())
    )


@pytest.mark.parametrize(
    ("name", "native_support", "dtype"),
    [
        ("resnet18", True, torch.bfloat16),
        ("resnet18", False, None),
        ("efficientnet_b0", True, None),
    ],
)
def test_a_cpu_computes_in_bfloat16_only_if_it_is_faster(
    name: str, native_support: bool, dtype: torch.dtype | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "_has_native_bfloat16", lambda: native_support)

    assert models.precision(name, torch.device("cpu")).dtype is dtype


@pytest.mark.parametrize(
    ("native_support", "exact", "dtype"),
    [
        (True, False, torch.bfloat16),
        (True, True, torch.bfloat16),
        (False, False, torch.float16),
        (False, True, None),
    ],
)
def test_a_gpu_computes_in_bfloat16_only_if_it_supports_it(
    native_support: bool, exact: bool, dtype: torch.dtype | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return native_support or including_emulation  # torch emulates it on older GPUs, slowly

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_bf16_supported)

    precision = models.precision("efficientnet_b0", torch.device("cuda"), exact=exact)

    assert precision.dtype is dtype
    assert precision.needs_scaler == (dtype is torch.float16)


@pytest.mark.parametrize("size", [28, 32, 64])
def test_a_cropped_convolution_computes_the_same_function(size: int) -> None:
    torch.manual_seed(1)
    cropped_model = models.build("resnet18", classes=10)
    plain_model = models.build("resnet18", classes=10)
    for module in plain_model.modules():
        if isinstance(module, models.CroppedKernelConv2d):
            object.__setattr__(module, "__class__", torch.nn.Conv2d)
    plain_model.load_state_dict(cropped_model.state_dict())
    images = torch.randn(4, 3, size, size)

    for model in (cropped_model, plain_model):
        model(images).square().mean().backward()

    for (name, actual), expected in zip(
        cropped_model.named_parameters(), plain_model.parameters(), strict=True
    ):
        assert actual.grad is not None
        assert expected.grad is not None
        assert torch.allclose(actual.grad, expected.grad, rtol=1e-3, atol=1e-5), name
