"""scipy's threads stay out of torch's way while it minimises, and are there again afterwards."""

import numpy as np
import pytest
import scipy.optimize  # noqa: F401  # its threads must be there to be told how many they are
from threadpoolctl import threadpool_info, threadpool_limits

from autodo.auditing.lbfgs import lbfgs


def threads() -> list[int]:
    found = [p for p in threadpool_info() if p.get("threading_layer") == "pthreads"]
    return [p["num_threads"] for p in found if "torch" not in p["filepath"]]


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        if set(threads()) != {2}:
            pytest.skip("no OpenBLAS with threads of its own here")
        yield


@pytest.mark.usefixtures("two_threads")
def test_one_thread_inside_and_all_afterwards():
    inside = []

    def objective(x):
        inside.extend(threads())
        return float((x**2).sum()), 2 * x

    assert np.allclose(lbfgs(objective, np.ones(3)), 0, atol=1e-5)
    assert set(inside) == {1}
    assert set(threads()) == {2}


@pytest.mark.usefixtures("two_threads")
def test_threads_are_back_after_an_error():
    def objective(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lbfgs(objective, np.ones(3))
    assert set(threads()) == {2}


def test_bounds_hold():
    found = lbfgs(
        lambda x: (float(((x - 3) ** 2).sum()), 2 * (x - 3)), np.zeros(2), bounds=[(0, 1), (0, 5)]
    )
    assert np.allclose(found, [1, 3])
