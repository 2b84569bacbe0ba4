import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TRAIN_BATCH_SIZE = 32
VALID_BATCH_SIZE = 48
EPOCHS = 6
LR = 3e-3
TRAINING_FILE = "input/train_folds.csv"
MODEL_PATH = "model"
N_FOLDS = 5
SEED = 2020
