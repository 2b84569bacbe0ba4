# -*- coding: utf-8 -*-
from src import trainer

# 直接运行: python main.py
if __name__ == '__main__':
    trainer.run()
