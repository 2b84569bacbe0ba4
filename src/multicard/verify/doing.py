"""What a process waits in, from the names of the functions between the user's line and the innermost frame."""

from collections.abc import Iterable

COLLECTIVES = (
    "all_reduce",
    "all_reduce_coalesced",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_coalesced",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "monitored_barrier",
    "all_gather_object",
    "gather_object",
    "broadcast_object_list",
    "scatter_object_list",
    "send",
    "recv",
)
OTHERS = ("init_process_group", "destroy_process_group", "new_group", "sleep")


def doing_in(names: Iterable[str]) -> str:
    """What the user called, of functions named from the innermost outwards; empty where it is none of these."""
    called = list(names)
    if "_sync_buffers" in called:
        return "_sync_buffers"
    if "normalise" in called:
        return "BatchNorm"
    for name in reversed(called):
        if name in COLLECTIVES or name in OTHERS or name == "backward":
            return name
    if "_pre_forward" in called or "_run_ddp_forward" in called:
        return "DDP forward"
    return ""
