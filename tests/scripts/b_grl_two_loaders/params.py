batch_size = 64
epochs = 6
lr = 0.05
out = 'ckpt'
