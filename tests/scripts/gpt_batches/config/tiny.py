# runs on a laptop in seconds
out_dir = 'out-tiny'
eval_interval = 8
eval_iters = 4
log_interval = 2

gradient_accumulation_steps = 4
batch_size = 8
block_size = 24

n_layer = 2
n_head = 2
n_embd = 32
dropout = 0.0

learning_rate = 3e-3
warmup_iters = 4
lr_decay_iters = 24
