import time

from data import create_dataset
from models import create_model
from options.train_options import TrainOptions
from visualizer import Visualizer

if __name__ == '__main__':
    opt = TrainOptions().parse()
    dataset = create_dataset(opt)
    print('#training images = %d' % len(dataset))

    model = create_model(opt)
    model.setup(opt)
    vis = Visualizer(opt)
    total_iters = 0

    for epoch in range(opt.epoch_count, opt.n_epochs + opt.n_epochs_decay + 1):
        epoch_start = time.time()
        epoch_iter = 0
        for i, data in enumerate(dataset):
            iter_start = time.time()
            total_iters += opt.batch_size
            epoch_iter += opt.batch_size
            model.set_input(data)
            model.optimize_parameters()

            if total_iters % opt.print_freq == 0:
                losses = model.current_losses()
                t = (time.time() - iter_start) / opt.batch_size
                vis.print_losses(epoch, epoch_iter, losses, t)
            if total_iters % opt.display_freq == 0:
                vis.save_visuals(model.current_visuals(), epoch)
            if total_iters % opt.save_latest_freq == 0:
                print('saving the latest model (epoch %d, total_iters %d)' % (epoch, total_iters))
                model.save_networks('latest')

        if epoch % opt.save_epoch_freq == 0:
            model.save_networks('latest')
            model.save_networks(epoch)
        model.update_learning_rate()
        print('End of epoch %d / %d \t %.2f sec' % (epoch, opt.n_epochs + opt.n_epochs_decay, time.time() - epoch_start))
