import numpy as np


def MAE(pred, true):
    return np.mean(np.abs(pred - true))


def MSE(pred, true):
    return np.mean((pred - true) ** 2)


def RSE(pred, true):
    return np.sqrt(np.sum((true - pred) ** 2)) / np.sqrt(np.sum((true - true.mean()) ** 2))


def metric(pred, true):
    mse = MSE(pred, true)
    return MAE(pred, true), mse, np.sqrt(mse), RSE(pred, true)
