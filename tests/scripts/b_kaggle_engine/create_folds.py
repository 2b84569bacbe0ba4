import os
import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn import model_selection

import config


def build():
    data = datasets.load_breast_cancer()
    df = pd.DataFrame(data.data, columns=[f"f_{i}" for i in range(data.data.shape[1])])
    df["target"] = data.target
    df["id"] = [f"row_{i:04d}" for i in range(len(df))]
    df["kfold"] = -1
    df = df.sample(frac=1, random_state=config.SEED).reset_index(drop=True)
    y = df.target.values
    kf = model_selection.StratifiedKFold(n_splits=config.N_FOLDS)
    for f, (t_, v_) in enumerate(kf.split(X=df, y=y)):
        df.loc[v_, "kfold"] = f
    os.makedirs(os.path.dirname(config.TRAINING_FILE), exist_ok=True)
    df.to_csv(config.TRAINING_FILE, index=False)


if __name__ == "__main__":
    build()
