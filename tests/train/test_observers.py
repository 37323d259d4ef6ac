import json
import math

from small_fit import trainer

from biasbound._io import read_lines
from biasbound.train.observers import JsonlLog, TensorBoard


def test_a_log_and_a_board_hold_every_report(tmp_path):
    log, board = JsonlLog(tmp_path / "log.jsonl"), TensorBoard(tmp_path / "board")
    trainer(observers=[log, board], evaluate=lambda model, update: {"error": 0.5}, evaluate_every=20).run()
    rows = read_lines(tmp_path / "log.jsonl")
    assert [row["update"] for row in rows] == list(range(5, 65, 5))
    assert [row["update"] for row in rows if "error" in row] == [20, 40, 60]
    assert all(math.isfinite(row["loss"]) for row in rows)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told = EventAccumulator(str(tmp_path / "board")).Reload()
    assert [e.step for e in told.Scalars("loss")] == [row["update"] for row in rows]
    assert [e.step for e in told.Scalars("error")] == [20, 40, 60]


def test_a_log_forgets_what_lies_beyond_its_checkpoint(tmp_path):
    """An unfinished last line too, which a kill leaves behind."""
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"update": 5}) + "\n" + json.dumps({"update": 10}) + '\n{"upda')
    JsonlLog(path).start(5, 60)
    assert read_lines(path) == [{"update": 5}]
