"""The runtime in whole scripts: how they and their workers start, and how they end when a rank dies."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest
import torch

from multicard import runtime

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a migrated script lies, with the runtime beside it."""
    shutil.copy(runtime.__file__, tmp_path / "ddp_runtime.py")
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in {"RANK", "WORLD_SIZE"}}
    return inherited | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error::UserWarning"} | more


def python(folder: Path, script: str, *before: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(dedent(script), encoding="utf-8")
    command = [*before, sys.executable, "train.py"]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


def torchrun(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(dedent(script), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "train.py",
    ]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


def two_ranks(folder: Path, script: str) -> tuple[list[subprocess.Popen[str]], list[float]]:
    """Without a launcher, which would end the other rank: how each ended by itself, and when."""
    (folder / "train.py").write_text(dedent(script), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, "train.py"],
            cwd=folder,
            env=environment(
                RANK=rank, LOCAL_RANK=rank, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port
            ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in "01"
    ]
    ended = [0.0, 0.0]
    deadline = time.monotonic() + 100
    try:
        while not all(ended) and time.monotonic() < deadline:
            for rank, process in enumerate(ranks):
                if not ended[rank] and process.poll() is not None:
                    ended[rank] = time.monotonic()
            time.sleep(0.05)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert all(ended), "a rank had to be killed"
    return ranks, ended


TRAINING = """
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, TensorDataset
    from ddp_runtime import *

    local_rank, rank, world_size = setup_ddp()
    data = TensorDataset(torch.randn(44, 5), torch.randint(3, (44,)))
    train_set, val_set = torch.utils.data.random_split(data, [33, 11])
    train_sampler = DistributedSampler(train_set, shuffle=True)
    train_loader = DataLoader(train_set, 4, sampler=train_sampler, drop_last=True)
    val_loader = DataLoader(val_set, 2, sampler=EvalSampler(val_set, 2))
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    model = DDP(model, device_ids=device_ids(model))
    vary_seed()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(2):
        train_loader.sampler.set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()
        sync_buffers(model)
        seen, inputs = 0, []
        for x, y in val_loader:
            seen += len(y)
            inputs.extend(x.sum(1).tolist())
        seen = all_reduce_sum(seen)
        inputs = gather_in_order(inputs)
        in_order = inputs == [val_set[i][0].sum(0).item() for i in range(len(val_set))]
        print_log(f"epoch {epoch}: {seen} seen, in order: {in_order}, {global_batches(val_loader)} batches")
        save_checkpoint(unwrap(model).state_dict(), "last.pth")
        dist.barrier()
    nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).load_state_dict(torch.load("last.pth"))
"""
PRINTED = "".join(f"epoch {epoch}: 11 seen, in order: True, 6 batches\n" for epoch in range(2))


def test_one_script_for_many_processes_and_for_one(folder: Path) -> None:
    many = torchrun(folder, TRAINING)
    assert (many.returncode, many.stdout) == (0, PRINTED), many.stderr
    assert "destroy_process_group" not in many.stderr, "the group was left open"
    one = python(folder, TRAINING)
    assert (one.returncode, one.stdout, one.stderr) == (0, PRINTED, "")


WORKERS = """
    import os, sys
    import torch
    from torch.utils.data import DataLoader, Dataset
    from ddp_runtime import *

    local_rank, rank, world_size = setup_ddp()      # at module level: spawned workers come by here too

    class Asked(Dataset):
        def __len__(self):
            return 4
        def __getitem__(self, index):
            print_log("from a worker of rank 0")
            assert setup_ddp() == (local_rank, rank, world_size)
            assert is_main_process() == (rank == 0)
            assert all_reduce_sum(1) == 1           # nobody to talk to
            with main_process_first():
                return torch.tensor([local_rank, rank, world_size, torch.distributed.is_initialized()])

    if __name__ == "__main__":
        for method in ("fork", "spawn") if world_size > 1 else ("forkserver",):
            loader = DataLoader(Asked(), 2, num_workers=1, multiprocessing_context=method)
            places = {tuple(place.tolist()) for batch in loader for place in batch}
            expected = (local_rank, rank, world_size, int(method == "fork"))
            assert places == {expected}, (method, places)
        total = all_reduce_sum(1)
        os.write(1, f"{rank} {total}\\n".encode())  # in one piece: torchrun's python does not buffer, and both write
"""


def test_workers_start_nothing_however_they_are_started(folder: Path) -> None:
    many = torchrun(folder, WORKERS)
    assert many.returncode == 0, many.stderr
    assert sorted(many.stdout.split("\n"))[1:] == ["0 2", "1 2"] + ["from a worker of rank 0"] * 8
    one = python(folder, WORKERS)
    assert (one.returncode, one.stdout.split("\n")[-2]) == (0, "0 1"), one.stderr


def test_neither_network_nor_host_name_is_needed_alone(folder: Path) -> None:
    apart = [
        "unshare",
        "--net",
        "--uts",
        "--map-root-user",
        "sh",
        "-c",
        'ip link set lo up && hostname nowhere.invalid && "$@"',
        "-",
    ]
    if (
        not shutil.which("unshare")
        or subprocess.run([*apart, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("this system does not let a test have a network of its own")
    alone = python(folder, TRAINING, *apart)
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, PRINTED, "")


@pytest.mark.parametrize("end", ["os._exit(3)", "raise ValueError"])
def test_a_rank_that_dies_does_not_keep_the_other(end: str, folder: Path) -> None:
    ranks, ended = two_ranks(
        folder,
        f"""
        import os, sys
        from ddp_runtime import *

        if setup_ddp()[1] == 1:
            {end}
        all_reduce_sum(1)
        """,
    )
    assert all(process.returncode for process in ranks)
    assert ended[0] - ended[1] < 10


def test_a_group_that_does_not_close_is_left_behind(folder: Path) -> None:
    ranks, ended = two_ranks(
        folder,
        """
        import time, torch
        import torch.distributed as dist
        import ddp_runtime

        if ddp_runtime.setup_ddp()[1] == 1:
            time.sleep(30)
        else:
            ddp_runtime._PATIENCE = 1
            work = dist.all_reduce(torch.ones(3), async_op=True)    # which rank 1 never takes part in
        """,
    )
    assert ended[1] - ended[0] > 10
    assert ranks[0].returncode in {0, 1}  # 1 where closing the group would have kept it for ever


def test_a_run_killed_while_it_saves_leaves_the_old_checkpoint(folder: Path) -> None:
    run = python(
        folder,
        """
        import os, signal, torch
        from ddp_runtime import *

        class Killed:
            def __reduce__(self):
                os.kill(os.getpid(), signal.SIGKILL)

        setup_ddp()
        save_checkpoint({"epoch": 1}, "last.pth")
        save_checkpoint({"epoch": 2, "weights": torch.ones(10000), "end": Killed()}, "last.pth")
        """,
    )
    assert run.returncode == -signal.SIGKILL
    assert torch.load(folder / "last.pth") == {"epoch": 1}


def test_an_error_is_told_as_python_tells_it(folder: Path) -> None:
    run = python(folder, "from ddp_runtime import *\nsetup_ddp()\nraise ValueError('mine')\n")
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].endswith("ValueError: mine")
    assert "process group" not in run.stderr
