import argparse
import os
import sys
import time

import numpy as np
import torch
from torch.optim import Adam
from torch.utils.data import DataLoader

import utils
from transformer_net import TransformerNet
from feature_net import FeatureNet
from pictures import PatchFolder


def check_paths(args):
    for d in [args.save_model_dir, args.checkpoint_model_dir]:
        if d is None or os.path.exists(d):
            continue
        try:
            os.makedirs(d)
        except OSError as err:
            print("cannot make", d, err)
            sys.exit(1)


def train(args):
    device = torch.device("cuda" if args.cuda else "cpu")
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    train_dataset = PatchFolder(args.dataset, size=args.image_size)
    train_loader = DataLoader(train_dataset, batch_size=args.batch_size, shuffle=True)

    transformer = TransformerNet().to(device)
    optimizer = Adam(transformer.parameters(), args.lr)
    mse_loss = torch.nn.MSELoss()

    # features: trained for some minutes on digits, never changed here
    extractor = FeatureNet(requires_grad=False).to(device)
    style = utils.load_style(args.image_size)
    style = style.repeat(args.batch_size, 1, 1, 1).to(device)
    gram_style = [utils.gram_matrix(y) for y in extractor(style)]

    sums = {"content": 0., "style": 0.}
    for e in range(1, args.epochs + 1):
        transformer.train()
        for k in sums:
            sums[k] = 0.
        seen = 0
        for i, x in enumerate(train_loader, 1):
            seen += len(x)
            x = x.to(device)
            y = utils.normalize_batch(transformer(x))
            fy = extractor(y)
            fx = extractor(utils.normalize_batch(x))

            content = args.content_weight * mse_loss(fy.relu2, fx.relu2)
            style_loss = args.style_weight * sum(
                mse_loss(utils.gram_matrix(f), g[:len(x)]) for f, g in zip(fy, gram_style))

            optimizer.zero_grad()
            (content + style_loss).backward()
            optimizer.step()
            sums["content"] += content.item()
            sums["style"] += style_loss.item()

            if i % args.log_interval == 0:
                c, s = sums["content"] / i, sums["style"] / i
                print(f"{time.ctime()}  epoch {e}  {seen}/{len(train_dataset)}  content {c:.4f}  style {s:.4f}  sum {c + s:.4f}")
            if args.checkpoint_model_dir is not None and i % args.checkpoint_interval == 0:
                # on the cpu, so that it loads on a laptop
                transformer.eval().cpu()
                torch.save(transformer.state_dict(), os.path.join(args.checkpoint_model_dir, f"e{e}_b{i}.pth"))
                transformer.to(device).train()

    transformer.eval().cpu()
    stamp = time.strftime("%Y%m%d_%H%M%S")
    path = os.path.join(args.save_model_dir, f"style_{stamp}_c{args.content_weight:g}_s{args.style_weight:g}.model")
    torch.save(transformer.state_dict(), path)
    print("saved", path)


def stylize(args):
    device = torch.device("cuda" if args.cuda else "cpu")
    with torch.no_grad():
        net = TransformerNet()
        net.load_state_dict(torch.load(args.model))
        net.to(device)
        x = PatchFolder(args.dataset, size=args.image_size)[0][None].to(device)
        utils.save_image(args.output_image, net(x)[0].cpu())


def main():
    parser = argparse.ArgumentParser(description="fast style transfer")
    sub = parser.add_subparsers(title="subcommands", dest="subcommand")
    t = sub.add_parser("train")
    t.add_argument("--epochs", type=int, default=2)
    t.add_argument("--batch-size", type=int, default=8)
    t.add_argument("--dataset", type=str, default="sample")
    t.add_argument("--save-model-dir", type=str, required=True)
    t.add_argument("--checkpoint-model-dir", type=str, default=None)
    t.add_argument("--image-size", type=int, default=24)
    t.add_argument("--cuda", type=int, required=True, help="1 for GPU, 0 for CPU")
    t.add_argument("--seed", type=int, default=42)
    t.add_argument("--content-weight", type=float, default=1)
    t.add_argument("--style-weight", type=float, default=50)
    t.add_argument("--lr", type=float, default=1e-2)
    t.add_argument("--log-interval", type=int, default=5)
    t.add_argument("--checkpoint-interval", type=int, default=10)
    s = sub.add_parser("eval")
    s.add_argument("--dataset", type=str, default="sample")
    s.add_argument("--image-size", type=int, default=48)
    s.add_argument("--output-image", type=str, required=True)
    s.add_argument("--model", type=str, required=True)
    s.add_argument("--cuda", type=int, required=True)
    args = parser.parse_args()

    if args.subcommand is None:
        print("ERROR: specify either train or eval")
        sys.exit(1)
    if args.cuda and not torch.cuda.is_available():
        print("ERROR: cuda is not available, try running on CPU")
        sys.exit(1)
    if args.subcommand == "train":
        check_paths(args)
        train(args)
    else:
        stylize(args)


if __name__ == "__main__":
    main()
