# -*- coding: utf-8 -*-
import random

NAMES = ["wang", "li", "zhang", "anna", "peter", "maria", "chen", "otto"]
CITIES = ["beijing", "paris", "oslo", "lima", "shanghai", "rome", "bern"]
WORDS = ["went", "to", "from", "with", "and", "saw", "in", "near", "lives", "works", "yesterday", "the", "old", "big"]


def build(n, seed):
    rnd = random.Random(seed)
    out = []
    for _ in range(n):
        words, tags = [], []
        for _ in range(rnd.randint(2, 7)):
            r = rnd.random()
            if r < .25:
                k = rnd.randint(1, 2)
                words += [rnd.choice(NAMES) for _ in range(k)]
                tags += ["B-PER"] + ["I-PER"] * (k - 1)
            elif r < .45:
                words.append(rnd.choice(CITIES))
                tags.append("B-LOC")
            else:
                k = rnd.randint(1, 3)
                words += [rnd.choice(WORDS) for _ in range(k)]
                tags += ["O"] * k
        # 一词多义: a name can also be an ordinary word
        if rnd.random() < .2:
            words += ["old", rnd.choice(NAMES[:3]), "street"]
            tags += ["O", "O", "O"]
        out.append((words, tags))
    return out


class Dictionary(object):
    def __init__(self):
        self.word2id = {"<pad>": 0, "<unk>": 1}
        self.tag2id = {"<pad>": 0}

    def fit(self, corpus):
        for words, tags in corpus:
            for w in words:
                self.word2id.setdefault(w, len(self.word2id))
            for t in tags:
                self.tag2id.setdefault(t, len(self.tag2id))
        self.id2tag = {v: k for k, v in self.tag2id.items()}
