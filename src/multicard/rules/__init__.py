"""The rules, in the order in which their findings are settled."""

from typing import cast

from multicard.plan import Rule
from multicard.rules import (
    agree_to_stop,
    batch_size,
    count_batches,
    evaluate_inside,
    finish_processes,
    load_everywhere,
    main_process_work,
    prepare_once,
    print_once,
    reach_inside,
    save_once,
    shard_evaluation_data,
    shard_training_data,
    share_batches,
    show_progress_once,
    start_processes,
    tell_epoch,
    total_metrics,
    use_own_device,
    vary_randomness,
    whole_loss,
    wrap_model,
    write_files_once,
)

RULES: tuple[Rule, ...] = cast(
    "tuple[Rule, ...]",
    (
        start_processes,
        use_own_device,
        wrap_model,
        vary_randomness,
        shard_training_data,
        shard_evaluation_data,
        share_batches,
        batch_size,
        tell_epoch,
        reach_inside,
        evaluate_inside,
        whole_loss,
        total_metrics,
        count_batches,
        agree_to_stop,
        print_once,
        show_progress_once,
        main_process_work,
        prepare_once,
        save_once,
        load_everywhere,
        write_files_once,
        finish_processes,
    ),
)
