import logging
import os

import torch

from ..utils.meters import Accuracy, Loss, Recall
from .inference import inference


def do_train(cfg, model, train_loader, val_loader, optimizer, scheduler, loss_fn, device):
    log_period = cfg.SOLVER.LOG_PERIOD
    logger = logging.getLogger("lumen.train")
    logger.info("Start training")
    metrics = {'accuracy': Accuracy(), 'loss': Loss(loss_fn), 'balanced': Recall()}
    best = -1
    running = None
    for epoch in range(1, cfg.SOLVER.MAX_EPOCHS + 1):
        model.train()
        for iteration, (data, target) in enumerate(train_loader, 1):
            optimizer.zero_grad()
            loss = loss_fn(model(data.to(device)), target.to(device))
            loss.backward()
            optimizer.step()
            scheduler.step()
            # exponential average for the log
            running = loss.item() if running is None else 0.98 * running + 0.02 * loss.item()
            if iteration % log_period == 0:
                logger.info("Epoch[{}] Iteration[{}/{}] Loss: {:.3f}, Base Lr: {:.2e}".format(
                    epoch, iteration, len(train_loader), running, scheduler.get_last_lr()[0]))
        result = inference(model, val_loader, metrics, device)
        logger.info("Validation Results - Epoch: {}  ".format(epoch) +
                    "  ".join("{}: {:.4f}".format(*kv) for kv in result.items()))
        if epoch % cfg.SOLVER.CHECKPOINT_PERIOD == 0:
            torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(),
                        'scheduler': scheduler.state_dict(), 'epoch': epoch},
                       os.path.join(cfg.OUTPUT_DIR, "{}_checkpoint_{}.pt".format(cfg.MODEL.NAME, epoch)))
        if result['balanced'] > best:
            best = result['balanced']
            torch.save(model.state_dict(), os.path.join(cfg.OUTPUT_DIR, "model_best.pth"))
    logger.info("best balanced accuracy {:.4f}".format(best))
