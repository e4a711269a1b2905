"""What a training does to its machine: processor, memory, disk and network, every few seconds.

Names are those of MLflow's own monitor, which fill its tab of system metrics. That monitor sends by
itself and would lose what a killed process had; ours goes through the run's journal.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import torch

from storage.run_log import RunLog

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_SAMPLES = 5.0
MEGABYTE = 1e6


@contextmanager
def recorded_load(run: RunLog | None) -> Iterator[None]:
    """Record the load of this machine while the block runs; nothing without a run.

    The last sample is taken at the end, so that the shortest run has one.
    """
    if run is None:
        yield
        return
    sampler = _Sampler(run)
    sampler.start()
    try:
        yield
    finally:
        sampler.stop()


class _Sampler(threading.Thread):
    def __init__(self, run: RunLog) -> None:
        super().__init__(name="machine load", daemon=True)
        self._run = run
        self._is_over = threading.Event()
        self._process = psutil.Process()
        self._sent, self._received = _network_bytes()
        # The first answers are void: use is counted from one call to the next.
        psutil.cpu_percent()
        self._process.cpu_percent()

    def run(self) -> None:
        """Take samples until the training is over; a machine that does not tell costs a line."""
        try:
            while not self._is_over.wait(SECONDS_BETWEEN_SAMPLES):
                self._sample()
            self._sample()
        except Exception as error:
            logger.warning("the load of this machine is not recorded: %s", error)

    def stop(self) -> None:
        """Take the last sample and end."""
        self._is_over.set()
        self.join(timeout=2.0)

    def _sample(self) -> None:
        # Seconds of the clock grow on, too, when another machine resumes the run.
        self._run.log(int(time.time()), {f"system/{k}": v for k, v in self._load().items()})

    def _load(self) -> dict[str, float]:
        memory, disk = psutil.virtual_memory(), psutil.disk_usage(os.sep)
        sent, received = _network_bytes()
        return {
            "cpu_utilization_percentage": psutil.cpu_percent(),
            "process_cpu_utilization_percentage": self._process.cpu_percent(),
            "system_memory_usage_megabytes": memory.used / MEGABYTE,
            "system_memory_usage_percentage": memory.percent,
            "process_memory_usage_megabytes": self._process.memory_info().rss / MEGABYTE,
            "disk_usage_percentage": disk.percent,
            "disk_available_megabytes": disk.free / MEGABYTE,
            "network_transmit_megabytes": (sent - self._sent) / MEGABYTE,
            "network_receive_megabytes": (received - self._received) / MEGABYTE,
            **_gpu_load(),
        }


def _network_bytes() -> tuple[int, int]:
    """Return what this machine has sent and received; nothing where it does not tell."""
    counted = psutil.net_io_counters()
    return (counted.bytes_sent, counted.bytes_recv) if counted else (0, 0)


def _gpu_load() -> dict[str, float]:
    """Return memory and use of every GPU. No machine with one was at hand: this is not tested."""
    load: dict[str, float] = {}
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, total = torch.cuda.mem_get_info(number)
        load[f"gpu_{number}_memory_usage_megabytes"] = (total - free) / MEGABYTE
        load[f"gpu_{number}_memory_usage_percentage"] = 100 * (1 - free / total)
        with suppress(Exception):  # needs NVIDIA's management library
            load[f"gpu_{number}_utilization_percentage"] = torch.cuda.utilization(number)
    return load
