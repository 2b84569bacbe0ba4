"""把 scikit-learn 自带的手写数字（1797 张 8x8 灰度图）存成按类别分文件夹的 PNG 图片，不需要联网。

用法：
    python make_data.py              # 写到 ./data/digits
    python make_data.py 其他目录

结果：
    data/digits/train/0/0000.png ... # 1438 张
    data/digits/val/0/0010.png ...   # 359 张，每 5 张取 1 张
"""

import os
import shutil
import sys

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits


def main():
    out_dir = sys.argv[1] if len(sys.argv) > 1 else os.path.join("data", "digits")
    if os.path.isdir(out_dir):
        print(f"数据已存在：{out_dir}")
        return

    # 先写到临时目录，全部写完再改名，中途断掉不会留下半份数据
    tmp_dir = out_dir + ".tmp"
    shutil.rmtree(tmp_dir, ignore_errors=True)

    digits = load_digits()
    counts = {"train": 0, "val": 0}
    for i, (image, label) in enumerate(zip(digits.images, digits.target)):
        split = "val" if i % 5 == 4 else "train"
        class_dir = os.path.join(tmp_dir, split, str(label))
        os.makedirs(class_dir, exist_ok=True)
        pixels = np.round(image / 16 * 255).astype(np.uint8)  # 原图像素是 0~16
        Image.fromarray(pixels).save(os.path.join(class_dir, f"{i:04d}.png"))
        counts[split] += 1

    os.replace(tmp_dir, out_dir)
    print(f"已写入 {out_dir}：训练集 {counts['train']} 张，验证集 {counts['val']} 张")


if __name__ == "__main__":
    main()
