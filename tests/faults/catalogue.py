"""Every fault that is tried."""

from tests.faults import cells, disks, kills, networks, servers, surroundings
from tests.faults.table import KILL_TRIALS, OTHER_TRIALS, Fault

FAULTS = [
    Fault(
        name="training process killed",
        promise="continues from its last checkpoint; same weights; every epoch once in MLflow",
        session=kills.training_killed,
    ),
    Fault(
        name="generation process killed",
        promise="accepted blocks stay, the rest is made; same bytes; incomplete data does not open",
        session=kills.generation_killed,
    ),
    Fault(
        name="conversion process killed",
        promise="accepted blocks stay, the rest is converted; same bytes",
        session=kills.conversion_killed,
    ),
    Fault(
        name="Dask worker killed",
        promise="the other worker does its blocks; same bytes",
        session=kills.dask_worker_killed,
    ),
    Fault(
        name="MLflow server killed",
        promise="the run goes on; when the server is back it has every step once",
        session=servers.tracking_server_killed,
    ),
    Fault(
        name="PostgreSQL killed",
        promise="the run goes on; when the database is back it has every step once",
        session=servers.database_killed,
    ),
    Fault(
        name="cell's process killed",
        promise="comes back by itself and continues; every cell and epoch once",
        session=cells.cell_killed,
    ),
    Fault(
        name="cell worker killed",
        promise="its cells end or come back by themselves; every cell and epoch once",
        session=cells.cell_worker_killed,
    ),
    Fault(
        name="control worker killed",
        promise="comparisons end or come back by themselves; every cell and epoch once",
        session=cells.control_worker_killed,
    ),
    Fault(
        name="comparison's process killed",
        promise="comes back by itself and takes its cells up; every cell and epoch once",
        session=cells.parent_killed,
    ),
    Fault(
        name="Prefect server killed",
        promise="comparison and cells go on or come back; every cell and epoch once",
        session=cells.server_killed,
    ),
    Fault(
        name="Prefect's PostgreSQL killed",
        promise="comparison and cells go on or come back; every cell and epoch once",
        session=cells.database_killed,
    ),
    Fault(
        name="worker killed before its run starts",
        promise="the run comes back by itself; every cell and epoch once",
        session=cells.killed_before_start,
    ),
    Fault(
        name="worker cut off for two minutes",
        promise="another takes its cell up, or it goes on; every cell and epoch once",
        session=networks.cut_off,
    ),
    Fault(
        name="cell suspended and resumed",
        promise="is left alone for two minutes, then continues; every cell and epoch once",
        session=cells.suspended,
    ),
    Fault(
        name="disk full",
        promise="ends with a sentence; with room it continues; same bytes, every epoch once",
        session=disks.disk_full,
        trials=OTHER_TRIALS,
    ),
    Fault(
        name="store read-only",
        promise="ends with a sentence; writable again it continues; same bytes",
        session=disks.read_only,
        trials=OTHER_TRIALS,
    ),
    Fault(
        name="clock jumps a day",
        promise="same weights; every epoch once in MLflow",
        session=surroundings.clock_jumps,
        trials=OTHER_TRIALS,
    ),
    Fault(
        name="network to the store cut",
        promise="nothing half-written counts; continues when it is back; same bytes",
        session=surroundings.network_cut,
        trials=OTHER_TRIALS,
    ),
    Fault(
        name="network to the store slow",
        promise="takes longer and ends as always; same bytes",
        session=surroundings.network_slow,
        trials=OTHER_TRIALS,
    ),
    Fault(
        name="corrupt chunk",
        promise="never taken for data; made again; same bytes",
        session=disks.corrupt_chunk,
        trials=KILL_TRIALS,
    ),
    Fault(
        name="truncated checkpoint",
        promise="the one before is used; same weights; every epoch once in MLflow",
        session=disks.truncated_checkpoint,
        trials=OTHER_TRIALS,
    ),
    Fault(
        name="two processes on one store",
        promise="both end; same bytes or weights; every sample and epoch once",
        session=disks.two_processes,
        trials=KILL_TRIALS,
    ),
]
