"""A job whose ranks iterate no loader: they wait, or rank 1 fails if that is asked for."""

import signal
import sys

import torch.distributed as dist

dist.init_process_group("gloo")
if "fail" in sys.argv and dist.get_rank() == 1:
    sys.exit("rank 1 found no data")
signal.pause()
