"""create_dataset(opt) -> something that can be iterated and knows its length"""
import torch.utils.data

from data.edges_dataset import EdgesDataset


def create_dataset(opt):
    return CustomLoader(opt)


class CustomLoader():
    def __init__(self, opt):
        self.opt = opt
        self.dataset = EdgesDataset(opt)
        print("dataset [%s] was created" % type(self.dataset).__name__)
        self.dataloader = torch.utils.data.DataLoader(
            self.dataset,
            batch_size=opt.batch_size,
            shuffle=not opt.serial_batches,
            num_workers=int(opt.num_threads))

    def __len__(self):
        return min(len(self.dataset), self.opt.max_dataset_size)

    def __iter__(self):
        for i, data in enumerate(self.dataloader):
            if i * self.opt.batch_size >= self.opt.max_dataset_size:
                break
            yield data
