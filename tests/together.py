"""Processes that train together, as torchrun would start them."""

import multiprocessing
import os
import socket

import torch

from biasbound.train.ranks import leave


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _one(rank, world, port, function, arguments):
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    function(*arguments)
    leave()


def together(function, *arguments, world=2):
    """The function in `world` processes at once; all must end well."""
    fork, port = multiprocessing.get_context("fork"), free_port()
    every = [fork.Process(target=_one, args=(rank, world, port, function, arguments)) for rank in range(world)]
    for process in every:
        process.start()
    for process in every:
        process.join(600)
        assert process.exitcode == 0
