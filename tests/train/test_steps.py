"""The fast steps against slow ones: exact in float32, right in direction in bfloat16."""

from __future__ import annotations

import copy
import dataclasses
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autodo.config import Config
from autodo.hyper.dataset_model import DatasetModel
from autodo.implicit.head import head_hypergradient
from autodo.models import WideResNet
from autodo.train.ahead import ahead
from autodo.train.devices import fast_convolutions
from autodo.train.hyper_optimizer import frozen
from autodo.train.layout import give_layout
from autodo.train.recorded import WARM_UP, Recorded
from autodo.train.steps import Steps

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu, id="gpu")]
POINTS, CLASSES = 24, 4
CONFIG = Config.paper(
    epochs=2, lr=0.05, augment="affine", solver_alpha="auto", label_lr=0.1, weight_lr=0.1,
    augment_lr=0.1, precision="float32",
)  # fmt: skip


def setup(device: str, config: Config = CONFIG) -> tuple[Steps, DatasetModel, nn.Module]:
    torch.manual_seed(0)
    model = WideResNet(10, 1, channels=3, num_classes=CLASSES).to(device)
    data = DatasetModel(
        torch.arange(POINTS) % CLASSES,
        num_classes=CLASSES,
        augment="affine",
        loss=config.loss,
        optimizer=config.lambda_optimizer,
    ).to(device)
    layout = give_layout(model, batch(device)[0])
    return Steps(model, model.fc, data, config, torch.device(device), layout), data, model


def batch(device: str, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(8, 3, 16, 16, generator=generator)
    index = torch.randperm(POINTS, generator=generator)[:8]
    noise = torch.stack(
        [torch.rand(8, 7, generator=generator), torch.randn(8, 7, generator=generator)]
    )
    return images.to(device), index.to(device), noise.to(device)


@pytest.mark.parametrize("device", DEVICES)
def test_a_training_step_is_sgd_on_the_weighted_loss(device: str) -> None:
    """Against the formula, in float64: one step from the same start."""
    steps, data, model = setup(device)
    images, index, noise = batch(device)
    oracle = copy.deepcopy(model).double()
    augmented = data.augment(images, index, noise=noise)
    loss = steps.theta(images, index, noise, lr=0.05)

    oracle.train()
    log_p = oracle(augmented.double()).log_softmax(-1)
    log_q = data.label_logits(index).double().log_softmax(-1)
    losses = 0.5 * ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)
    expected = (data.weights(index).double() * losses).mean()
    expected.backward()
    torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-5, atol=0)
    for parameter, start in zip(model.parameters(), oracle.parameters(), strict=True):
        assert start.grad is not None
        slow = start.detach()
        gradient = start.grad + CONFIG.weight_decay * slow
        after = slow - 0.05 * (1 + CONFIG.momentum) * gradient  # Nesterov's first step
        scale = float((after - slow).abs().max())
        difference = float((parameter.detach().double() - after).abs().max())
        assert difference <= 1e-5 * max(scale, float(slow.abs().max()))


def hypergradient(model: nn.Module, data: DatasetModel, features: Tensor, index: Tensor,
                  trusted: Tensor, labels: Tensor, dtype: torch.dtype) -> Tensor:  # fmt: skip
    """dL_v/dS of a batch, at the head, in ``dtype``."""
    head = model.fc
    assert isinstance(head, nn.Linear)
    return head_hypergradient(
        features.to(dtype), head.weight.detach().to(dtype), head.bias.detach().to(dtype),
        data.weight_logits(index).to(dtype), data.label_logits(index).to(dtype),
        trusted.to(dtype), labels, solver=CONFIG.make_solver(),
    ).label_logits  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
def test_in_bfloat16_the_hypergradient_points_where_it_does_in_float64(device: str) -> None:
    steps, data, model = setup(device, dataclasses.replace(CONFIG, precision="bfloat16"))
    model.eval()
    images, index, _ = batch(device)
    trusted, _, _ = batch(device, 1)
    labels = torch.arange(8, device=device) % CLASSES
    slow = copy.deepcopy(model).double()
    exact_features: list[Tensor] = []
    slow.fc.register_forward_pre_hook(lambda _, inputs: exact_features.append(inputs[0]))
    with torch.no_grad():
        fast = [steps.encode(x) for x in (images, trusted)]
        for x in (images, trusted):
            slow(x.double())
    ours = hypergradient(model, data, fast[0], index, fast[1], labels, torch.float32)
    exact = hypergradient(model, data, *exact_features[:1], index, exact_features[1], labels,
                          torch.float64)  # fmt: skip
    cosine = F.cosine_similarity(ours.double().flatten(), exact.flatten(), dim=0)
    assert cosine >= 0.99


@pytest.mark.parametrize("device", DEVICES)
def test_trusted_features_given_are_trusted_images_encoded(device: str) -> None:
    """A hyper step on features equals the one on images."""
    results = []
    for encoded in (True, False):
        steps, data, model = setup(device)
        model.eval()
        images, index, noise = batch(device)
        trusted, _, _ = batch(device, 1)
        labels = torch.arange(8, device=device) % CLASSES
        if encoded:
            with torch.no_grad():
                features = steps.encode(trusted)
            steps.hyper_step(images, index, noise, (features, labels), 1.0)
        else:
            # As the other step has it: all passes in float32, and fused normalisations on a GPU.
            with fast_convolutions("float32"), frozen(model):
                steps.hyper.step(steps.encode, (images, index), (trusted, labels), noise=noise)
        results.append({name: data.table(name).rows.clone() for name in data.tables})
    for name, rows in results[0].items():
        torch.testing.assert_close(rows, results[1][name])


@needs_gpu
def test_recorded_steps_on_the_gpu_are_the_steps_themselves() -> None:
    """Ten steps of each kind, recorded from the fourth on, against ten that are not."""
    ends = []
    for graphs in (True, False):
        steps, data, model = setup("cuda", dataclasses.replace(CONFIG, cuda_graphs=graphs))
        data.transition.mul_(0.7).add_(0.3 / CLASSES)  # noise, so that labels follow the network
        for k in range(10):
            images, index, noise = batch("cuda", k)
            model.train()
            steps.theta(images, index, noise, lr=0.05 / (k + 1))
            model.eval()
            with torch.no_grad():
                features = steps.encode(batch("cuda", 100 + k)[0])
            labels = torch.arange(8, device="cuda") % CLASSES
            steps.hyper_step(images, index, noise, (features, labels), 1 / (k + 1), 0.1 * k)
        assert (steps._theta._graph is not None) == graphs
        tables = {name: data.table(name).rows.clone() for name in data.tables}
        ends.append(tables | {k: v.clone() for k, v in model.state_dict().items()})
    for name, expected in ends[1].items():
        scale = float(expected.float().abs().max()) or 1.0
        torch.testing.assert_close(
            ends[0][name].float(), expected.float(), rtol=0, atol=2e-3 * scale, msg=name
        )


@needs_gpu
def test_a_step_that_cannot_be_recorded_on_the_gpu_still_runs() -> None:
    def waits(x: Tensor) -> tuple[Tensor]:
        return (x + float(x.sum()),)  # reading a number waits for the device

    step = Recorded(waits, torch.device("cuda"))
    x = torch.ones(2, device="cuda")
    for _ in range(WARM_UP):
        step(x)
    with pytest.warns(UserWarning, match="cannot be recorded"):
        step(x)
    assert torch.equal(step(x)[0], torch.full((2,), 3.0, device="cuda"))
    torch.rand(2, device="cuda")  # random numbers do not wait for a recording that has failed


@needs_gpu
def test_the_kind_of_the_first_call_is_recorded_on_the_gpu_and_others_are_stepped_with() -> None:
    """A last short batch may come when the recording is due, and its kernels are not chosen yet."""
    network = torch.nn.Conv2d(3, 8, 3, device="cuda")
    step = Recorded(lambda x: (network(x).sum((1, 2, 3)),), torch.device("cuda"))
    with torch.no_grad(), warnings.catch_warnings(), fast_convolutions("auto"):
        warnings.simplefilter("error")
        for size in (4, 4, 4, 2, 4, 2, 4, 4):
            x = torch.rand(size, 3, 9, 9, device="cuda")
            assert torch.allclose(step(x)[0], network(x).sum((1, 2, 3)), rtol=1e-3)
    assert step._graph is not None


@needs_gpu
def test_steps_of_an_earlier_run_leave_the_memory_of_the_gpu() -> None:
    held = []
    for _ in range(3):
        steps, _, model = setup("cuda", CONFIG)
        model.train()
        for k in range(6):
            steps.theta(*batch("cuda", k), 0.1)
        del steps, model
        held.append(torch.cuda.memory_allocated())
    assert held[2] <= 1.05 * held[1]


def test_off_cuda_a_recorded_step_is_the_step() -> None:
    calls = []

    def count(x: Tensor) -> tuple[Tensor]:
        calls.append(x)
        return (x,)

    step = Recorded(count, torch.device("cpu"))
    for k in range(6):
        step(torch.tensor(k))
    assert [int(x) for x in calls] == list(range(6))


@pytest.mark.parametrize("device", DEVICES)
def test_batches_prepared_ahead_are_the_batches(device: str) -> None:
    def batches():  # type: ignore[no-untyped-def]
        for k in range(5):
            yield torch.full((3,), k, device=device) * 2, k, None

    found = [(x.clone(), k, nothing) for x, k, nothing in ahead(batches(), torch.device(device))]
    assert [k for _, k, _ in found] == list(range(5))
    assert all(torch.equal(x.cpu(), torch.full((3,), 2 * k)) for x, k, _ in found)
