from __future__ import annotations

from autodo.train.interval import Interval


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def written_at(epochs: int | None, *, epoch: float, writing: float, count: int) -> list[int]:
    """The epochs of a run at whose end a checkpoint is written."""
    clock = Clock()
    interval, found = Interval(epochs, clock), []
    for number in range(1, count + 1):
        clock.now += epoch
        if interval.is_over(number):
            with interval.writing():
                clock.now += writing
            found.append(number)
    return found


def test_what_is_written_in_no_time_is_written_every_epoch() -> None:
    assert written_at(None, epoch=0.1, writing=0.2, count=5) == [1, 2, 3, 4, 5]


def test_checkpoints_that_take_long_take_two_percent_of_the_time() -> None:
    # Two seconds of writing after every hundred of training.
    assert written_at(None, epoch=10, writing=2, count=32) == [1, 11, 21, 31]


def test_epochs_that_take_longer_than_that_are_all_written() -> None:
    assert written_at(None, epoch=200, writing=2, count=4) == [1, 2, 3, 4]


def test_a_given_number_of_epochs_holds_whatever_it_costs() -> None:
    assert written_at(2, epoch=1, writing=50, count=5) == [2, 4]
