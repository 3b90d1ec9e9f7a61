import pytest
import torch

from everstep.errors import EverstepError
from trainer import models


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("resnet18", 11_689_512), ("resnet50", 25_557_032), ("efficientnet_b0", 5_288_548)],
)
def test_models_have_as_many_parameters_as_published(name, parameters):
    with torch.device("meta"):
        model = models.build(name, classes=1000)

    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_a_model_has_an_output_for_each_class():
    assert models.build("resnet18", classes=10).fc.out_features == 10


def test_every_name_can_be_built():
    with torch.device("meta"):
        assert all(models.build(name, classes=2) for name in models.NAMES)


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(EverstepError, match="there is no model 'resnet-18'") as error:
        models.check_name("resnet-18")

    assert "resnet18" in error.value.remedy


def test_biases_and_normalisation_do_not_decay():
    model = models.build("resnet18", classes=10)

    decaying, others = models.parameter_groups(model, 1e-3)

    assert all(parameter.ndim > 1 for parameter in decaying["params"])
    assert others["weight_decay"] == 0
    assert len(decaying["params"]) + len(others["params"]) == len(list(model.parameters()))


def test_efficientnet_computes_in_float32_on_a_processor():
    assert not models.precision("efficientnet_b0", torch.device("cpu")).autocast
    assert models.precision("efficientnet_b0", torch.device("cuda")).autocast


@pytest.mark.parametrize("size", [28, 32, 64])
def test_a_snug_convolution_is_the_same_function(size):
    torch.manual_seed(1)
    snug = models.build("resnet18", classes=10)
    plain = models.build("resnet18", classes=10)
    for module in plain.modules():
        if isinstance(module, models.SnugConv2d):
            module.__class__ = torch.nn.Conv2d
    plain.load_state_dict(snug.state_dict())
    images = torch.randn(4, 3, size, size)

    for model in (snug, plain):
        model(images).square().mean().backward()

    for (name, mine), theirs in zip(snug.named_parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, rtol=1e-3, atol=1e-5), name
