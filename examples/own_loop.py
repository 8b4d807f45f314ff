"""Your own training loop, with AutoDO in four places (marked). Finds wrong labels of digits."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import autodo


def main(epochs: int = 20) -> None:
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None]
    truth = torch.tensor(digits.target)
    train, trusted, test = torch.randperm(len(truth)).split([1000, 200, 597])

    # A messy training set: 30% of its labels are drawn at random.
    labels, noisy = truth[train], torch.rand(len(train)) < 0.3
    labels[noisy] = torch.randint(10, (int(noisy.sum()),))

    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(),
        nn.Linear(64 * 16, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    # 1. The loader gives the index of every example.
    index = torch.arange(len(train))
    loader = DataLoader(TensorDataset(images[train], index), batch_size=100, shuffle=True)
    # 2. What is learned of the dataset, and what moves it: the trusted loss at the last layer.
    data = autodo.DatasetModel(labels, num_classes=10, reweight=True, relabel=True, loss="kl")
    hyper = autodo.HyperOptimizer(data, head=model[-1], lr={"weight": 0.1, "label": 0.3})

    for epoch in range(epochs):
        model.train()
        for x, i in loader:
            loss = data.loss(model(data.augment(x, i)), i)  # 3. weighed, with learned labels
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        if epoch >= 3:
            for batch in loader:  # 4. one step of weights and labels per batch
                hyper.step(model, batch, (images[trusted], truth[trusted]))

    with torch.no_grad():
        wrong = model.eval()(images[test]).argmax(1) != truth[test]
    print(f"test error {wrong.float().mean():.1%}\nthe surest wrong labels:")
    learned = data.soft_labels(index)
    score = learned[index, labels]  # the learned probability of the given label
    for i in score.argsort()[:10].tolist():
        given, suggested, true = int(labels[i]), int(learned[i].argmax()), int(truth[train[i]])
        print(f"  image {train[i]}: given {given}, suggested {suggested}, in truth {true}")


if __name__ == "__main__":
    main()
