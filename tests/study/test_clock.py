"""How long the rest of a study takes, and what is said of it."""

import pytest

from biasbound.study import view
from biasbound.study.clock import Clock, spoken
from biasbound.study.follow import Event

UNITS = ["01-data", "03-train/a/seed-0", "03-train/b/seed-0", "05-rollout/a/seed-0"]


class Time:
    """A clock that a test turns."""

    now = 0.0

    def __call__(self):
        return self.now


def told(clock, time, *events):
    for at, event in events:
        time.now = float(at)
        clock.hear(event)


def test_a_unit_at_an_even_pace_is_told_its_rest_wherever_it_began():
    for first in (0, 400):  # from the start, or from a checkpoint
        time = Time()
        clock = Clock(UNITS, now=time)
        train = UNITS[1]
        told(clock, time, (10, Event("start", train)), (20, Event("move", train, first, 1000)))
        assert clock.left(train) is None
        told(clock, time, (50, Event("move", train, first + 300, 1000)))
        assert clock.left(train) == pytest.approx((1000 - first - 300) / 10)


def test_the_rest_of_all_is_known_once_every_stage_ahead_is_and_falls_with_more_jobs():
    rest = {}
    for jobs in (1, 2):
        time = Time()
        clock = Clock(UNITS[:3], jobs, time)
        told(clock, time, (0, Event("start", "01-data")), (5, Event("done", "01-data")))
        assert clock.all_left() is None  # nothing is known of a training
        told(clock, time, (5, Event("start", UNITS[1])), (5, Event("move", UNITS[1], 0, 100)))
        told(clock, time, (15, Event("move", UNITS[1], 10, 100)))
        assert clock.left(UNITS[1]) == pytest.approx(90)
        rest[jobs] = clock.all_left()
    assert rest[1] == pytest.approx(90 + 100)
    assert rest[2] == pytest.approx(rest[1] / 2)


def test_a_stage_ends_with_one_line_that_counts_failures():
    time = Time()
    clock = Clock(UNITS, now=time)
    told(clock, time, (0, Event("start", UNITS[1])), (60, Event("done", UNITS[1])), (60, Event("start", UNITS[2])))
    assert clock.finished("03-train") is None
    told(clock, time, (70, Event("failed", UNITS[2])))
    assert clock.finished("03-train") == "03-train: 2 units, 1 failed, 60 s"
    assert clock.finished("07-report") is None
    assert clock.number() == 2


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (89.0, "89 s"), (120.0, "2 min"), (3600.0, "60 min"), (12000.0, "3 h 20 min")]
)
def test_times_are_told_as_people_say_them(seconds, said):
    assert spoken(seconds) == said


def test_lines_tell_places_and_stages_and_a_quiet_viewer_nothing(capsys):
    events = [Event("start", "01-data"), Event("done", "01-data", note="3 files")]
    for quiet in (True, False):
        with view.watching(quiet, UNITS[:1]) as tell:
            for event in events:
                tell(event)
    assert capsys.readouterr().err.splitlines() == [
        "01-data: begins, unit 1 of 1",
        "01-data: done, 3 files",
        "01-data: 1 unit, 0 s",
    ]
