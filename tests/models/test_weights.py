import pytest
import torch
from safetensors.torch import save_file

from biasbound.models.weights import DamagedCheckpoint, load_newest, load_tensors, save_numbered, save_tensors

TENSORS = {"a": torch.randn(3), "b": torch.tensor(2), "c": torch.randn(2, 2, dtype=torch.float64).T}


def test_a_round_trip_changes_no_bit(tmp_path):
    save_tensors(tmp_path / "x.safetensors", TENSORS, {"note": [1, 0.1]})
    back, meta = load_tensors(tmp_path / "x.safetensors")
    assert back.keys() == TENSORS.keys()
    assert all(torch.equal(back[k], v) and back[k].dtype == v.dtype for k, v in TENSORS.items())
    assert meta == {"note": [1, 0.1]}


def test_what_is_not_ours_or_not_whole_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    with pytest.raises(ValueError, match="does not exist"):
        load_tensors(path)
    save_file({"a": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match="not one of biasbound's"):
        load_tensors(path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        load_tensors(path)


def test_the_newest_whole_checkpoint_is_taken(tmp_path):
    assert load_newest(tmp_path) is None
    for number in (5, 50, 500):
        save_numbered(tmp_path, number, TENSORS, {"number": number})
    files = sorted(tmp_path.iterdir())
    assert [f.name for f in files] == ["checkpoint-000000050.safetensors", "checkpoint-000000500.safetensors"]
    assert load_newest(tmp_path)[1] == {"number": 500}
    files[1].write_bytes(files[1].read_bytes()[:100])
    with pytest.warns(DamagedCheckpoint, match="000000500"):
        assert load_newest(tmp_path)[1] == {"number": 50}
    files[0].write_bytes(b"")
    with pytest.warns(DamagedCheckpoint), pytest.raises(ValueError, match="none of the 2 checkpoints"):
        load_newest(tmp_path)
