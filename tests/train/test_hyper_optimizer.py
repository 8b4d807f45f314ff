"""One hyper step against second-order autograd through the whole network, and what it leaves alone.

The oracle augments, encodes and weighs with a graph and differentiates twice; its training loss
is written out here, so that nothing of the closed form is shared with it.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autodo.errors import InputError, NumericalError
from autodo.hyper import DatasetModel
from autodo.implicit import (
    ConjugateGradient,
    HeadHypergradient,
    Neumann,
    autograd_hypergradient,
)
from autodo.kernels import has_triton
from autodo.train.hyper_optimizer import HyperOptimizer
from autodo.train.recorded import WARM_UP, Recorded

CLASSES, POINTS = 3, 12
INDEX = torch.tensor([7, 2, 11, 4, 5])
SOLVER = Neumann(steps=6, alpha=0.2)


class Net(nn.Module):
    """Convolution, batch norm, dropout, head: everything that eval mode changes is in it."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(0.5)
        self.fc = nn.Linear(4 * 4, CLASSES, bias=bias)

    def encode(self, images: Tensor) -> Tensor:
        hidden = torch.tanh(self.norm(self.conv(images)))
        return self.dropout(F.adaptive_avg_pool2d(hidden, 2).flatten(1))

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.encode(images))


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.Tanh(), nn.Linear(5, CLASSES))


def make_net(seed: int = 0, bias: bool = True) -> Net:
    torch.manual_seed(seed)
    net = Net(bias).double()
    with torch.no_grad():
        net.norm.running_mean.normal_(std=0.1)
        net.norm.running_var.uniform_(0.5, 1.5)
    return net.train()


def seeded(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def make_data(**options) -> DatasetModel:
    """A dataset model in float64 whose rows have left their start."""
    labels = torch.arange(POINTS) % CLASSES
    options = {"augment": "affine", **options}
    data = DatasetModel(labels, num_classes=CLASSES, dtype=torch.float64, **options)
    for seed, table in enumerate(data.tables.values(), start=20):
        table.rows += 0.5 * normal(seed, *table.rows.shape)
    return data


IMAGES, TRUSTED_IMAGES = normal(1, len(INDEX), 1, 6, 6), normal(2, 8, 1, 6, 6)
TRUSTED = (TRUSTED_IMAGES, torch.tensor([0, 1, 2, 2, 1, 0, 0, 2]))


def point_losses(data: DatasetModel, logits: Tensor, label_logits: Tensor | None) -> Tensor:
    if label_logits is None:
        return F.cross_entropy(logits, data.labels[INDEX], reduction="none")
    p, q = logits.softmax(-1), label_logits.softmax(-1)
    return {
        "symmetric_kl": 0.5 * ((p - q) * (p.log() - q.log())).sum(-1),
        "kl": (q * (q / p).log()).sum(-1),
        "cross_entropy": -(q * p.log()).sum(-1),
    }[data.training_loss.name]


def oracle(data: DatasetModel, model: nn.Module, head: nn.Linear, encode, solver) -> dict:
    """The hypergradient of each table's batch rows, (B, K), by second-order autograd."""
    flags = [m.training for m in model.modules()]
    model.eval()
    rows = {
        name: table.gather(INDEX).clone().requires_grad_() for name, table in data.tables.items()
    }
    theta = head.weight.detach().clone().requires_grad_()

    def logits(images: Tensor) -> Tensor:
        return F.linear(encode(images), theta, head.bias)

    images = IMAGES
    if "augment" in rows:
        assert data.augmentation is not None
        images = data.augmentation(images, rows["augment"], seeded())
    train_logits = logits(images)
    if data.logit_adjustment is not None:
        train_logits = train_logits + data.logit_adjustment
    weights = torch.ones(len(INDEX), dtype=torch.float64)
    if "weight" in rows:
        weights = torch.log1p(rows["weight"][:, 0].exp()) / math.log(2)
    train = (weights * point_losses(data, train_logits, rows.get("label"))).mean()
    trusted = F.cross_entropy(logits(TRUSTED[0]), TRUSTED[1])
    result = autograd_hypergradient(train, trusted, [theta], list(rows.values()), solver=solver)
    for module, flag in zip(model.modules(), flags, strict=True):
        module.training = flag
    return dict(zip(rows, result.gradients, strict=True))


def record_gradients(data: DatasetModel, monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """The raw gradients that the next step hands to each table."""
    seen: dict[str, Tensor] = {}
    for name, table in data.tables.items():

        def step(index, gradient, lr, name=name, inner=table.step):
            assert torch.equal(index, INDEX)
            seen[name] = gradient.clone()
            inner(index, gradient, lr)

        monkeypatch.setattr(table, "step", step)
    return seen


OPTIONS = {
    "paper": {},
    "kl": {"loss": "kl"},
    "cross_entropy": {"loss": "cross_entropy"},
    "hard labels": {"relabel": False},
    "labels only": {"reweight": False, "augment": None},
    "weights only": {"relabel": False, "augment": None},
    "augmentation only": {"relabel": False, "reweight": False},
    "adjusted": {"logit_adjustment": normal(3, CLASSES)},
    "shared": {"shared_augment": True},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_gradients_of_all_tables_equal_autograd(options, monkeypatch):
    data, net = make_data(**options), make_net()
    expected = oracle(data, net, net.fc, net.encode, SOLVER)
    seen = record_gradients(data, monkeypatch)
    HyperOptimizer(data, head=net.fc, solver=SOLVER).step(
        net, (IMAGES, INDEX), TRUSTED, generator=seeded()
    )
    assert set(seen) == set(expected) == set(data.tables)
    for name, gradient in expected.items():
        assert gradient.abs().max() > 1e-8
        torch.testing.assert_close(seen[name], gradient, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("solver", [Neumann(), ConjugateGradient(steps=5, damping=2.0)], ids=str)
def test_a_network_without_a_head_bias_and_an_mlp_equal_autograd(solver, monkeypatch):
    net, flat = make_net(bias=False), mlp().double()
    for model, head, encode in ((net, net.fc, net.encode), (flat, flat[3], flat[:3])):
        data = make_data()
        expected = oracle(data, model, head, encode, solver)
        seen = record_gradients(data, monkeypatch)
        hyper = HyperOptimizer(data, head=head, solver=solver)
        hyper.step(model, (IMAGES, INDEX), TRUSTED, generator=seeded())
        for name, gradient in expected.items():
            torch.testing.assert_close(seen[name], gradient, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["table", "rmsprop"])
def test_rows_descend_by_their_own_rate_and_others_stay(optimizer):
    data, net = make_data(optimizer=optimizer), make_net()
    gradients = oracle(data, net, net.fc, net.encode, SOLVER)
    before = {name: table.rows.clone() for name, table in data.tables.items()}
    rates = {"augment": 0.3, "weight": 0.1, "label": 0.02}
    HyperOptimizer(data, head=net.fc, solver=SOLVER, lr=rates).step(
        net, (IMAGES, INDEX), TRUSTED, generator=seeded(), scale=0.5
    )
    outside = torch.ones(POINTS, dtype=torch.bool)
    outside[INDEX] = False
    for name, g in gradients.items():
        rows = data.table(name).rows
        assert torch.equal(rows[outside], before[name][outside])
        # The first step of each optimizer, written out.
        scale = g.square().mean().sqrt() if optimizer == "table" else 0.1 * g.abs() + 1e-8
        expected = before[name][INDEX] - 0.5 * rates[name] * g / scale
        torch.testing.assert_close(rows[INDEX], expected, rtol=1e-6, atol=1e-8)


def test_a_step_lowers_the_trusted_loss_that_retraining_the_head_reaches():
    """What it is all for: move the labels, train the head again, look at the trusted loss."""
    net = make_net().eval()
    data = make_data(augment=None)
    features = net.encode(IMAGES).detach()

    def retrain() -> Tensor:
        weight = nn.Parameter(net.fc.weight.detach().clone())
        optimizer = torch.optim.SGD([weight], lr=0.5, weight_decay=0.01)
        for _ in range(500):
            optimizer.zero_grad()
            data.loss(F.linear(features, weight, net.fc.bias.detach()), INDEX).backward()
            optimizer.step()
        with torch.no_grad():
            net.fc.weight.copy_(weight)
            return F.cross_entropy(net(TRUSTED[0]), TRUSTED[1])

    before = retrain()
    hyper = HyperOptimizer(data, head=net.fc, solver=ConjugateGradient(), lr=0.1)
    hyper.step(net, (IMAGES, INDEX), TRUSTED)
    assert retrain() < before - 1e-3


def state_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_the_network_is_left_exactly_as_it_was():
    net, data = make_net(), make_data()
    net.norm.eval()  # frozen by its user, while the rest trains
    for p in net.parameters():
        p.grad = torch.full_like(p, 7.0)
    net.conv.weight.requires_grad_(False)
    net.fc.bias.grad = None
    before, flags = state_of(net), {n: m.training for n, m in net.named_modules()}
    HyperOptimizer(data, head=net.fc).step(net, (IMAGES, INDEX), TRUSTED)
    assert {n: m.training for n, m in net.named_modules()} == flags
    assert flags == {"": True, "conv": True, "norm": False, "dropout": True, "fc": True}
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert net.fc.bias.grad is None
    assert not net.conv.weight.requires_grad
    for name, p in net.named_parameters():
        assert name == "fc.bias" or torch.equal(p.grad, torch.full_like(p, 7.0))
    assert not net.fc._forward_pre_hooks


def test_flags_and_hooks_are_restored_after_an_error():
    net, data = make_net(), make_data()
    net.norm.eval()
    with pytest.raises(RuntimeError):
        HyperOptimizer(data, head=net.fc).step(net, (IMAGES.expand(-1, 2, -1, -1), INDEX), TRUSTED)
    assert net.training
    assert net.dropout.training
    assert not net.norm.training
    assert not net.fc._forward_pre_hooks


def test_batch_norm_and_dropout_are_in_eval_mode_during_the_step():
    """A network that trains and one that does not take the same step."""
    results = []
    for training in (True, False):
        net, data = make_net().train(training), make_data()
        HyperOptimizer(data, head=net.fc).step(net, (IMAGES, INDEX), TRUSTED, generator=seeded())
        results.append(state_of(data))
    assert all(torch.equal(results[0][name], value) for name, value in results[1].items())


def test_a_module_and_a_callable_encoder_agree():
    results = []
    for kind in ("module", "callable"):
        net, data = make_net().eval(), make_data()
        encoder = net if kind == "module" else net.encode
        HyperOptimizer(data, head=net.fc).step(
            encoder, (IMAGES, INDEX), TRUSTED, generator=seeded()
        )
        results.append(state_of(data))
    assert all(torch.equal(results[0][name], value) for name, value in results[1].items())


def test_the_generator_alone_decides_the_augmentation():
    def rows(seed: int) -> Tensor:
        net, data = make_net(), make_data()
        HyperOptimizer(data, head=net.fc).step(
            net, (IMAGES, INDEX), TRUSTED, generator=seeded(seed)
        )
        return data.table("augment").rows

    assert torch.equal(rows(1), rows(1))
    assert not torch.equal(rows(1), rows(2))


def test_the_result_reports_the_trusted_loss():
    net, data = make_net().eval(), make_data(augment=None)
    result = HyperOptimizer(data, head=net.fc).step(net, (IMAGES, INDEX), TRUSTED)
    expected = F.cross_entropy(net(TRUSTED[0]), TRUSTED[1]).detach()
    torch.testing.assert_close(result.trusted_loss, expected)
    assert bool(result.finite)
    assert not bool(result.diverged)
    assert 0 < result.residual.item() < 1


def test_tables_that_are_not_learned_keep_their_rows():
    net, data = make_net(), make_data()
    before = {name: table.rows.clone() for name, table in data.tables.items()}
    HyperOptimizer(data, head=net.fc, learn=("label",)).step(
        net, (IMAGES, INDEX), TRUSTED, generator=seeded()
    )
    assert torch.equal(data.table("augment").rows, before["augment"])
    assert torch.equal(data.table("weight").rows, before["weight"])
    assert not torch.equal(data.table("label").rows, before["label"])


def test_a_head_for_another_number_of_classes_is_an_input_error():
    with pytest.raises(InputError, match=r"head has 4 outputs .*3 classes") as error:
        HyperOptimizer(make_data(), head=nn.Linear(16, 4))
    assert "nn.Linear(16, 3)" in error.value.cure


def test_a_head_that_is_not_linear_is_an_input_error():
    with pytest.raises(InputError, match="head is a Conv2d"):
        HyperOptimizer(make_data(), head=nn.Conv2d(4, 3, 1))


def test_features_of_another_width_are_an_input_error():
    net = make_net()
    with pytest.raises(InputError, match=r"features have shape \(5, 36\).*\(batch, 16\)"):
        HyperOptimizer(make_data(augment=None), head=net.fc).step(
            lambda images: images.flatten(1), (IMAGES, INDEX), (IMAGES, INDEX % CLASSES)
        )


def test_a_diverging_solver_is_a_numerical_error_before_any_row_moves():
    net, data = make_net(), make_data()
    before = state_of(data)
    hyper = HyperOptimizer(data, head=net.fc, solver=Neumann(steps=50, alpha=100.0))
    with pytest.raises(NumericalError, match="diverged"):
        hyper.step(net, (IMAGES, INDEX), TRUSTED)
    assert all(torch.equal(before[name], value) for name, value in data.state_dict().items())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_features_that_are_not_finite_name_their_points_before_any_row_moves(value):
    net, data = make_net(), make_data(augment=None)
    before = state_of(data)
    images = IMAGES.clone()
    images[1] = value
    with pytest.raises(NumericalError, match="points 7, 2, 11, 4, 5"):
        HyperOptimizer(data, head=net.fc).step(net, (images, INDEX), TRUSTED)
    assert all(torch.equal(before[name], value) for name, value in data.state_dict().items())


def test_unchecked_steps_report_instead_of_raising():
    net, data = make_net(), make_data(augment=None)
    images = IMAGES.clone()
    images[1] = math.nan
    result = HyperOptimizer(data, head=net.fc).step(net, (images, INDEX), TRUSTED, check=False)
    assert not bool(result.finite)


@pytest.mark.parametrize("learn", [("weight", "label"), ("augment", "weight", "label")])
def test_what_nobody_asks_for_is_not_computed(learn, monkeypatch):
    """Features' gradient only where augmentation is learned, that of the head never."""
    net, data, made = make_net(), make_data(), []
    for name in ("features", "train_gradient"):
        inner = getattr(HeadHypergradient, name)
        monkeypatch.setattr(
            HeadHypergradient, name,
            property(lambda self, name=name, inner=inner: made.append(name) or inner.func(self)),
        )  # fmt: skip
    HyperOptimizer(data, head=net.fc, learn=learn).step(net, (IMAGES, INDEX), TRUSTED)
    assert made == (["features"] if "augment" in learn else [])


# On a GPU

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or not has_triton(),
    reason="the fused kernels need a CUDA device and Triton",
)


@needs_gpu
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("recorded", [False, True])
def test_gpu_steps_by_fused_kernels_are_those_in_float64(options, recorded, monkeypatch):
    """Every table after seven steps, the last of them replayed, against torch in float64."""
    from autodo.hyper import table_triton
    from autodo.implicit import head_triton

    calls = []
    for module, name in ((head_triton, "solve"), (table_triton, "step")):
        inner = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *a, n=name, f=inner, **k: (calls.append(n), f(*a, **k))[1]
        )
    solver = Neumann(steps=5, alpha="auto")
    ends = []
    for device, dtype in (("cuda", torch.float32), ("cpu", torch.float64)):
        data, net = make_data(**options).to(device, dtype), make_net().to(device, dtype)
        hyper = HyperOptimizer(data, head=net.fc, solver=solver, lr=0.05)
        given = (IMAGES, TRUSTED_IMAGES)

        def step(images, index, noise, trusted, labels, hyper=hyper, net=net):
            batch, trusted = (images, index), (trusted, labels)
            with torch.backends.cudnn.flags(allow_tf32=False):
                result = hyper.step(net, batch, trusted, noise=noise, check=False)
            return result.trusted_loss, result.residual, result.diverged, result.finite

        run = Recorded(step, torch.device(device), enabled=recorded)
        for k in range(WARM_UP + 4):
            noise = data.noise(len(INDEX), seeded(k))
            images, trusted = ((x + 0.1 * k).to(device, dtype) for x in given)
            noise = None if noise is None else noise.to(device, dtype)
            seen = run(images, INDEX.to(device), noise, trusted, TRUSTED[1].to(device))
        rows = {name: table.rows.cpu().double() for name, table in data.tables.items()}
        ends.append((rows, [float(x) for x in seen]))
    (ours, account), (exact, expected) = ends
    assert account == pytest.approx(expected, rel=1e-3)
    for name, rows in exact.items():
        torch.testing.assert_close(ours[name], rows, rtol=0, atol=1e-3, msg=name)
    times = WARM_UP + 1 if recorded else WARM_UP + 4
    tables = sum(not table.shared for table in data.tables.values())
    assert (calls.count("solve"), calls.count("step")) == (times, times * tables)


def test_images_are_turned_in_the_step_as_they_are_in_training():
    """Whether or not their augmentation is learned."""
    seen: dict[tuple[str, ...], Tensor] = {}
    for learn in (("augment", "label"), ("label",)):
        net, data = make_net(), make_data(symmetry="mirror")
        gates = slice(data.table("augment").rows.shape[1] // 2, None)
        data.table("augment").rows[:, gates] = -40.0  # no warp

        def encode(images: Tensor, net: Net = net, learn: tuple[str, ...] = learn) -> Tensor:
            seen[learn] = images.detach()
            return net.eval().encode(images)

        HyperOptimizer(data, head=net.fc, learn=learn).step(
            encode, (IMAGES, INDEX), TRUSTED, generator=seeded(3)
        )
    turned = make_data(symmetry="mirror").turned(IMAGES, seeded(3))
    assert not torch.equal(turned, IMAGES)
    for images in seen.values():
        torch.testing.assert_close(images, turned)
