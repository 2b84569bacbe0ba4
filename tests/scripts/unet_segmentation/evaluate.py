import numpy as np
import torch
import torch.nn.functional as F
from tqdm import tqdm

from utils.dice_score import multiclass_dice_coeff, dice_coeff


@torch.inference_mode()
def evaluate(net, dataloader, device, amp):
    net.eval()
    num_val_batches = len(dataloader)
    dice_score = 0
    hist = np.zeros((net.n_classes, net.n_classes))

    with torch.autocast(device.type if device.type != 'mps' else 'cpu', enabled=amp):
        for batch in tqdm(dataloader, total=num_val_batches, desc='Validation round', unit='batch', leave=False):
            image, mask_true = batch['image'], batch['mask']
            image = image.to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
            mask_true = mask_true.to(device=device, dtype=torch.long)

            mask_pred = net(image).argmax(dim=1)
            t, p = mask_true.cpu().numpy().ravel(), mask_pred.cpu().numpy().ravel()
            hist += np.bincount(net.n_classes * t + p, minlength=net.n_classes ** 2).reshape(net.n_classes, -1)

            true_1h = F.one_hot(mask_true, net.n_classes).permute(0, 3, 1, 2).float()
            pred_1h = F.one_hot(mask_pred, net.n_classes).permute(0, 3, 1, 2).float()
            # the background does not count
            dice_score += multiclass_dice_coeff(pred_1h[:, 1:], true_1h[:, 1:], reduce_batch_first=False)

    net.train()
    iou = np.diag(hist) / (hist.sum(1) + hist.sum(0) - np.diag(hist))
    return dice_score / max(num_val_batches, 1), iou
