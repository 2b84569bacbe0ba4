import torch
from sklearn.linear_model import LogisticRegression

from data_aug.two_views import ContrastiveDigits
from models.encoder import Encoder


def linear_probe(path, args):
    ckpt = torch.load(path, map_location=args.device)
    model = Encoder(args.out_dim)
    model.load_state_dict(ckpt['state_dict'], strict=True)
    model.eval()
    tr, te = ContrastiveDigits(True), ContrastiveDigits(False)
    with torch.no_grad():
        ftr, fte = model.backbone(tr.x), model.backbone(te.x)
    clf = LogisticRegression(max_iter=200).fit(ftr.numpy(), tr.y.numpy())
    print('linear probe accuracy: %.4f' % clf.score(fte.numpy(), te.y.numpy()))
