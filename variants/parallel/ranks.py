"""This process's place among tp x cp ranks, and the two things that ranks tell each other."""

import datetime
import os
from dataclasses import dataclass, field
from typing import Self

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

LIBRARIES = {"cpu": "gloo", "cuda": "nccl"}


@dataclass(frozen=True)
class Ranks:
    """Neighbours share heads (tp), then rows of tp ranks share the sequence (cp); what is left are independent copies.

    ``tp_group`` and ``cp_group`` are None where there is one rank: nothing is said then.
    """

    tp: int = 1
    cp: int = 1
    tp_rank: int = 0
    cp_rank: int = 0
    tp_group: dist.ProcessGroup | None = field(default=None, repr=False)
    cp_group: dist.ProcessGroup | None = field(default=None, repr=False)

    @classmethod
    def join(cls, tp: int, cp: int, device: str = "cpu") -> Self:
        """The place of this process; every process must call it. ValueError unless tp x cp divides their number."""
        world = dist.get_world_size()
        if tp < 1 or cp < 1 or world % (tp * cp):
            raise ValueError(f"tp x cp must divide the number of processes; got tp={tp}, cp={cp}, {world} processes")
        names = ("copy", "cp", "tp")
        mesh = init_device_mesh(device, (world // (tp * cp), cp, tp), mesh_dim_names=names)
        groups = [mesh.get_group(name) if size > 1 else None for name, size in (("tp", tp), ("cp", cp))]
        return cls(tp, cp, mesh.get_local_rank("tp"), mesh.get_local_rank("cp"), *groups)

    def total(self, y: Tensor) -> Tensor:
        """The sum over tp ranks, in place."""
        if self.tp_group is not None:
            dist.all_reduce(y, group=self.tp_group)
        return y

    def gathered(self, part: Tensor) -> Tensor:
        """The parts of all cp ranks, in their order, along a new first axis."""
        if self.cp_group is None:
            return part[None]
        parts = part.new_empty(self.cp, *part.shape)
        dist.all_gather(list(parts), part.contiguous(), group=self.cp_group)
        return parts


def start(device: str, timeout_s: float) -> int:
    """Join the processes that torchrun started and return this one's number; ValueError where it did not start it.

    A collective that is not answered within ``timeout_s`` raises, so that a rank whose partner died does not wait.
    """
    if not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} <= set(os.environ):
        raise ValueError("RANK, WORLD_SIZE and LOCAL_RANK must be set, as torchrun --nproc-per-node=N does; got none")
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(LIBRARIES[device], timeout=datetime.timedelta(seconds=timeout_s))
    return dist.get_rank()
