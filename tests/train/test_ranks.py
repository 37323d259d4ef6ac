"""Several processes train as one, agree on what they go on from, and share work and memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from dying import dying
from small_fit import same, trainer, weights
from together import free_port, together

from biasbound._io import read_lines
from biasbound.models.weights import load_newest, load_tensors, save_tensors
from biasbound.train import ranks
from biasbound.train.observers import JsonlLog

pytestmark = pytest.mark.long

HERE = Path(__file__).parents[1]
SHARED = ("v", "proxy")
SOAP = {"optimiser": "soap", "updates": 30}
DIVIDED = {"updates": 30, "shard": True}
NO_AVERAGE = {"updates": 30, "shard": True, "ema": None}


def fit(folder, changes, model="v", until=None, **more):
    """A training in a folder, with its log beside it."""
    log = JsonlLog(folder.with_suffix(".jsonl"))
    return trainer(changes, model, folder=folder, observers=[log], **more).run(until)


def stacks():
    """Symmetric matrices of three sizes, some alone in theirs."""
    made = [torch.randn(n, m, m, generator=torch.Generator().manual_seed(m)) for n, m in ((3, 4), (1, 9), (5, 6))]
    return [a + a.mT for a in made]


def bases(a):
    return torch.linalg.qr(a).Q


def all_of_it(folder):
    """What a pair of processes does for the tests below."""
    for name in SHARED:
        fit(folder / name, {"updates": 30}, name)
    fit(folder / "soap", SOAP)
    rank = ranks.distributed().rank
    found = ranks.shared(bases, stacks())
    save_tensors(folder / f"bases-{rank}.safetensors", {str(i): q for i, q in enumerate(found)}, {})
    assert ranks.agreed(f"said by {rank}") == "said by 0"
    divided(folder)
    disagreeing(folder / f"apart-{rank}", rank)


def divided(folder):
    run = fit(folder / "shards", DIVIDED, "proxy")
    part, of = (sum(p.numel() for p in many) for many in ([p.to_local() for p in run.parameters], run.parameters))
    assert 0.4 < part / of < 0.6
    assert torch.equal(run.averaged.net.mix, run.kept.net.mix)
    fit(folder / "parts", DIVIDED, "proxy", until=17)
    fit(folder / "parts", DIVIDED, "proxy")
    fit(folder / "not averaged", NO_AVERAGE, until=17)
    fit(folder / "not averaged", NO_AVERAGE)
    fit(folder / "later alone", DIVIDED, until=17)
    with pytest.raises(ValueError, match=r"soap needs whole matrices: use adam"):
        trainer({**SOAP, "shard": True})


def disagreeing(folder, rank):
    """Folders that only one process each sees, as on machines without a common file system."""
    if rank == 0:
        folder.mkdir()
        save_tensors(folder / "checkpoint-000000007.safetensors", {}, {"progress": {"update": 7}})
    ranks.SEEN = 0.1
    if rank == 0:
        assert ranks.newest(folder)[1]["progress"]["update"] == 7
    else:
        with pytest.raises(ValueError, match=r"goes on from update 7.*all machines see"):
            ranks.newest(folder)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    together(all_of_it, folder)
    return folder


def losses(folder):
    return [(row["update"], pytest.approx(row["loss"], rel=1e-4)) for row in read_lines(folder.with_suffix(".jsonl"))]


@pytest.mark.parametrize("name", SHARED)
def test_two_processes_train_as_one(pair, tmp_path, name):
    """The same global batch gives the same losses."""
    fit(tmp_path / "one", {"updates": 30}, name)
    assert losses(pair / name) == losses(tmp_path / "one")


def test_bases_that_processes_share_are_those_of_one(pair):
    alone = {str(i): bases(a) for i, a in enumerate(stacks())}
    for rank in (0, 1):
        assert same(load_tensors(pair / f"bases-{rank}.safetensors")[0], alone)


def test_soap_of_two_processes_is_that_of_one(pair, tmp_path):
    fit(tmp_path / "one", SOAP)
    assert losses(pair / "soap") == losses(tmp_path / "one")


def test_matrices_are_shared_by_their_work():
    owners = ranks._owners([torch.empty(1, 10, 10), torch.empty(9, 5, 5)], 2)
    assert owners[0] == [0]
    assert owners[1].count(1) == 8  # eight of them are as much work as the large one


def test_a_divided_training_is_that_of_one_process(pair, tmp_path):
    fit(tmp_path / "one", {"updates": 30}, "proxy")
    assert losses(pair / "shards") == losses(tmp_path / "one")


def test_a_divided_training_goes_on_with_the_same_bits(pair):
    whole, parts = (load_newest(pair / name) for name in ("shards", "parts"))
    assert whole[1]["progress"]["update"] == parts[1]["progress"]["update"] == 30
    assert same(whole[0], parts[0])


def test_the_checkpoint_of_a_divided_training_serves_one_process(pair):
    saved = load_newest(pair / "later alone")[0]
    alone = trainer({"updates": 30}, folder=pair / "later alone")
    assert alone.progress.update == 17
    assert same(weights(alone.model), {k.removeprefix("model."): v for k, v in saved.items() if k[:6] == "model."})
    fit(pair / "later alone", {"updates": 30})
    assert losses(pair / "later alone")[-1] == losses(pair / "v")[-1]
    assert any(name.startswith("ema.") for name in saved)
    assert not any(name.startswith("ema.") for name in load_newest(pair / "not averaged")[0])


def agent(address, port, folder):
    """torchrun on one of two machines, which only differ by their address here."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=1", "--max_restarts=1"]
    launch += [f"--local_addr={address}", "--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{port}"]
    seen = os.pathsep.join([str(HERE), str(HERE.parent)])
    # Machines count restarts apart, so that in a common store one would find the addresses of another attempt.
    told = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    told |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": seen}
    words = [*launch, str(HERE / "dying.py"), str(folder / "killed")]
    return subprocess.Popen(words, env=os.environ | told, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def test_a_killed_process_of_two_machines_is_started_again_and_changes_nothing(tmp_path):
    """torchrun restarts both after one was killed, and they end with the bits of a training that nobody disturbed."""
    (tmp_path / "left" / "died").mkdir(parents=True)
    together(dying, tmp_path / "left" / "alone")
    port = free_port()
    both = [agent(address, port, tmp_path) for address in ("127.0.0.1", "127.0.0.2")]
    for one in both:
        said = one.communicate(timeout=300)[1].decode()
        assert one.returncode == 0, said
    assert (tmp_path / "died").exists()
    assert same(*(load_newest(tmp_path / name)[0] for name in ("left/alone", "killed")))
