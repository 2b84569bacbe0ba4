'''Odds and ends: a text progress bar, time formatting, weight initialisation.'''
import sys
import time

import torch.nn as nn
import torch.nn.init as init

WIDTH = 36
_started = time.time()
_last = _started


def format_time(seconds):
    if seconds < 1:
        return '%dms' % (1000 * seconds)
    if seconds < 60:
        return '%.1fs' % seconds
    return '%dm%02ds' % divmod(int(seconds), 60)


def progress_bar(current, total, msg=None):
    global _started, _last
    now = time.time()
    if current == 0:
        _started = now
    done = WIDTH * (current + 1) // total
    line = '\r [' + '=' * done + '.' * (WIDTH - done) + '] '
    line += '%d/%d step %s tot %s' % (current + 1, total, format_time(now - _last), format_time(now - _started))
    if msg:
        line += ' | ' + msg
    _last = now
    sys.stdout.write(line)
    if current == total - 1:
        sys.stdout.write('\n')
    sys.stdout.flush()


def init_params(net):
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            init.kaiming_normal_(m.weight, mode='fan_out')
            if m.bias is not None:
                init.constant_(m.bias, 0)
        elif isinstance(m, nn.BatchNorm2d):
            init.constant_(m.weight, 1)
            init.constant_(m.bias, 0)
