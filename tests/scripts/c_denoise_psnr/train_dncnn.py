import argparse
import math
import os

import torch
import torch.nn as nn
from sklearn.datasets import load_sample_images
from torch.utils.data import DataLoader, Dataset

os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
parser = argparse.ArgumentParser(description="DnCNN")
parser.add_argument("--batchSize", type=int, default=32, help="Training batch size")
parser.add_argument("--num_of_layers", type=int, default=4, help="Number of total layers")
parser.add_argument("--epochs", type=int, default=50)
parser.add_argument("--milestone", type=int, default=1, help="When to decay learning rate")
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--outf", type=str, default="logs", help="path of log files")
opt = parser.parse_args()


class Patches(Dataset):
    def __init__(self, train=True, size=20, stride=24):
        image = load_sample_images().images[0 if train else 1].mean(2) / 255.0
        image = torch.tensor(image, dtype=torch.float32)
        cut = image.unfold(0, size, stride).unfold(1, size, stride).reshape(-1, 1, size, size)
        self.data = cut[:380] if train else cut[::20]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]


class DnCNN(nn.Module):
    def __init__(self, channels, num_of_layers=17):
        super(DnCNN, self).__init__()
        features = 16
        layers = [nn.Conv2d(channels, features, 3, padding=1, bias=False), nn.ReLU(inplace=True)]
        for _ in range(num_of_layers - 2):
            layers += [nn.Conv2d(features, features, 3, padding=1, bias=False), nn.BatchNorm2d(features), nn.ReLU(inplace=True)]
        layers.append(nn.Conv2d(features, channels, 3, padding=1, bias=False))
        self.dncnn = nn.Sequential(*layers)

    def forward(self, x):
        return self.dncnn(x)


def weights_init_kaiming(m):
    classname = m.__class__.__name__
    if classname.find('Conv') != -1:
        nn.init.kaiming_normal_(m.weight.data, a=0, mode='fan_in')
    elif classname.find('BatchNorm') != -1:
        m.weight.data.normal_(mean=0, std=math.sqrt(2. / 9. / 64.)).clamp_(-0.025, 0.025)
        nn.init.constant_(m.bias.data, 0.0)


def psnr(a, b):
    return 10 * math.log10(1.0 / max(((a - b) ** 2).mean().item(), 1e-10))


def main():
    torch.manual_seed(4)
    if not os.path.isdir(opt.outf):
        os.makedirs(opt.outf)
    dataset_train, dataset_val = Patches(True), Patches(False)
    loader_train = DataLoader(dataset=dataset_train, num_workers=0, batch_size=opt.batchSize, shuffle=True)
    print("# of training samples: %d\n" % int(len(dataset_train)))
    net = DnCNN(channels=1, num_of_layers=opt.num_of_layers)
    net.apply(weights_init_kaiming)
    criterion = nn.MSELoss(reduction='sum')
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    model = net.to(device)
    criterion.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=opt.lr)
    for epoch in range(opt.epochs):
        current_lr = opt.lr if epoch < opt.milestone else opt.lr / 10.
        for param_group in optimizer.param_groups:
            param_group["lr"] = current_lr
        print('learning rate %f' % current_lr)
        for i, data in enumerate(loader_train, 0):
            model.train()
            model.zero_grad()
            optimizer.zero_grad()
            img_train = data.to(device)
            noise = torch.randn(img_train.size()).to(device) * (25 / 255.)
            imgn_train = img_train + noise
            out_train = model(imgn_train)
            loss = criterion(out_train, noise) / (imgn_train.size()[0] * 2)
            loss.backward()
            optimizer.step()
            if i % 5 == 0:
                model.eval()
                out = torch.clamp(imgn_train - model(imgn_train), 0., 1.)
                print("[epoch %d][%d/%d] loss: %.4f PSNR_train: %.4f" % (epoch + 1, i + 1, len(loader_train), loss.item(), psnr(out, img_train)))
        model.eval()
        psnr_val = 0
        with torch.no_grad():
            generator = torch.Generator().manual_seed(0)
            for k in range(len(dataset_val)):
                img_val = dataset_val[k].unsqueeze(0)
                imgn_val = (img_val + torch.randn(img_val.size(), generator=generator) * (25 / 255.)).to(device)
                out_val = torch.clamp(imgn_val - model(imgn_val), 0., 1.)
                psnr_val += psnr(out_val.cpu(), img_val)
        psnr_val /= len(dataset_val)
        print("\n[epoch %d] PSNR_val: %.4f" % (epoch + 1, psnr_val))
        torch.save(model.state_dict(), os.path.join(opt.outf, 'net.pth'))


if __name__ == "__main__":
    main()
