import torch


def box_area(b):
    return (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])


def box_iou(a, b):
    lt = torch.max(a[:, None, :2], b[None, :, :2])
    rb = torch.min(a[:, None, 2:], b[None, :, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    return inter / (box_area(a)[:, None] + box_area(b)[None, :] - inter + 1e-6)


def average_precision(results, truth, label, thr=0.5):
    """results, truth: image id -> dict of boxes, labels (, scores); all-point AP of one class"""
    rows = []
    n_gt = 0
    for image_id in truth:
        gt = truth[image_id]["boxes"][truth[image_id]["labels"] == label]
        n_gt += len(gt)
        r = results[image_id]
        keep = r["labels"] == label
        boxes, scores = r["boxes"][keep], r["scores"][keep]
        used = set()
        for k in scores.argsort(descending=True).tolist():
            hit = 0
            if len(gt):
                iou, j = box_iou(boxes[k][None], gt)[0].max(0)
                if iou > thr and j.item() not in used:
                    used.add(j.item())
                    hit = 1
            rows.append((scores[k].item(), hit))
    if n_gt == 0 or not rows:
        return 0.0
    rows.sort(key=lambda r: -r[0])
    tp = torch.tensor([h for _, h in rows], dtype=torch.float64).cumsum(0)
    precision = tp / torch.arange(1, len(rows) + 1)
    recall = tp / n_gt
    precision = precision.flip(0).cummax(0)[0].flip(0)
    return float((precision * torch.diff(recall, prepend=torch.zeros(1, dtype=torch.float64))).sum())
