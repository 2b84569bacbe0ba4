from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn

from boxes import box_iou


class GridDetector(nn.Module):
    """One box for each cell of a 6x6 grid.

    In training mode: images and targets in, dict of losses out.  In evaluation: list of dicts of detections.
    """

    def __init__(self, num_classes, width=16):
        super().__init__()
        self.num_classes = num_classes
        self.backbone = nn.Sequential(OrderedDict([
            ("conv1", nn.Conv2d(3, width, 3, 2, 1)), ("bn1", nn.BatchNorm2d(width)), ("relu1", nn.ReLU()),
            ("conv2", nn.Conv2d(width, 2 * width, 3, 2, 1)), ("bn2", nn.BatchNorm2d(2 * width)), ("relu2", nn.ReLU()),
            ("conv3", nn.Conv2d(2 * width, 2 * width, 3, 2, 1)), ("relu3", nn.ReLU()),
        ]))
        self.cls_head = nn.Conv2d(2 * width, num_classes, 1)
        self.box_head = nn.Conv2d(2 * width, 4, 1)
        self.stride = 8

    def forward(self, images, targets=None):
        if self.training and targets is None:
            raise ValueError("In training mode, targets should be passed")
        x = torch.stack([(im - 0.45) / 0.25 for im in images])
        f = self.backbone(x)
        logits = self.cls_head(f).permute(0, 2, 3, 1)
        deltas = self.box_head(f).permute(0, 2, 3, 1)
        b, h, w, _ = logits.shape
        cy, cx = torch.meshgrid(torch.arange(h, device=f.device), torch.arange(w, device=f.device), indexing="ij")
        centers = (torch.stack([cx, cy], -1).float() + 0.5) * self.stride
        if self.training:
            return self.losses(logits, deltas, centers, targets)
        return self.postprocess(logits, deltas, centers)

    def losses(self, logits, deltas, centers, targets):
        cls_target = torch.zeros(logits.shape[:3], dtype=torch.long, device=logits.device)
        box_loss, n_pos = deltas.sum() * 0, 0
        for i, t in enumerate(targets):
            for box, label in zip(t["boxes"], t["labels"]):
                mid = (box[:2] + box[2:]) / 2
                c, r = (mid / self.stride).long().clamp(max=logits.shape[1] - 1).tolist()
                cls_target[i, r, c] = label
                want = torch.cat([(mid - centers[r, c]) / self.stride, ((box[2:] - box[:2]) / self.stride).log()])
                box_loss = box_loss + F.smooth_l1_loss(deltas[i, r, c], want, reduction="sum")
                n_pos += 1
        weight = torch.ones(self.num_classes, device=logits.device)
        weight[0] = 0.1
        cls_loss = F.cross_entropy(logits.flatten(0, 2), cls_target.flatten(), weight=weight)
        return {"loss_classifier": cls_loss, "loss_box_reg": box_loss / max(n_pos, 1)}

    def postprocess(self, logits, deltas, centers):
        out = []
        for prob, d in zip(logits.softmax(-1), deltas):
            scores, labels = prob[..., 1:].max(-1)
            mid = centers + d[..., :2] * self.stride
            size = d[..., 2:].clamp(max=3).exp() * self.stride
            boxes = torch.cat([mid - size / 2, mid + size / 2], -1).flatten(0, 1)
            scores, labels = scores.flatten(), labels.flatten() + 1
            keep = (scores > 0.2).nonzero().flatten()
            keep = keep[scores[keep].argsort(descending=True)][:20]
            picked = []
            for k in keep.tolist():
                if all(box_iou(boxes[k][None], boxes[j][None]) < 0.5 for j in picked):
                    picked.append(k)
            out.append({"boxes": boxes[picked], "labels": labels[picked], "scores": scores[picked]})
        return out
