"""Sums grow with the number of ranks; means over a local count become means over the count of all ranks."""

import pytest
from harness import LOOP, NET, added, migrate

from multicard.rules import whole_loss as rule


def loop(*lines: str, backward: str = "loss.backward()") -> str:
    body = "".join(
        f"        {line}\n" for line in (*lines, "optimizer.zero_grad()", backward, "optimizer.step()")
    )
    return f"for epoch in range(3):\n    for x, y in loader:\n{body}"


SUMMED = "        (loss * dist.get_world_size()).backward()"
SUMS = {
    "a criterion that sums": "criterion = nn.MSELoss(reduction='sum')\n"
    + loop("loss = criterion(model(x), y)"),
    "the old way to ask for a sum": "criterion = nn.MSELoss(size_average=False)\n"
    + loop("loss = criterion(model(x), y)"),
    "a function that sums": loop("loss = nn.functional.mse_loss(model(x), y, reduction='sum')"),
    "a sum over all elements": loop("loss = (model(x) - y).pow(2).sum()"),
    "torch's sum": loop("loss = torch.sum((model(x) - y) ** 2)"),
    "a sum of a VAE": loop(
        "out = model(x)",
        "loss = nn.functional.mse_loss(out, x, reduction='sum') - 0.5 * torch.sum(1 + out - out.exp())",
    ),
    "losses of samples, summed": "criterion = nn.CrossEntropyLoss(reduction='none')\n"
    + loop("loss = criterion(model(x), y).sum()"),
    "in a function": "def loss_of(out, y):\n    return (out - y).abs().sum()\n"
    + loop("loss = loss_of(model(x), y)"),
    "weighted": loop("loss = 0.1 * (model(x) - y).abs().sum()"),
}
CRITERION = "criterion = nn.CrossEntropyLoss(reduction='sum')\n"
MADE_MEANS = {
    "over the batch": "criterion(model(x), y) / len(x)",
    "times one over the batch": "(1.0 / x.size(0)) * criterion(model(x), y)",
    "times the share of one sample": "criterion(model(x), y) * (2.0 / len(x)) * 0.5",
    "a method": "criterion(model(x), y).div(len(x))",
    "a method in place": "criterion(model(x), y).div_(x.shape[0])",
    "a method that multiplies": "criterion(model(x), y).mul(1 / len(x))",
    "a function": "torch.div(criterion(model(x), y), x.shape[0])",
    "a function that multiplies": "torch.mul(criterion(model(x), y), 1 / len(x))",
    "a power": "criterion(model(x), y) * len(x) ** -1",
    "a mean times the number of classes": "nn.functional.cross_entropy(model(x), y) * y.size(1)",
    "a mean times the length": "nn.functional.cross_entropy(model(x), y) * x.shape[-1]",
    "the number that the loader was given": "criterion(model(x), y) / 8",
    "the loader's own number": "criterion(model(x), y) / loader.batch_size",
    "a number that is called so": "criterion(model(x), y) / cfg['train'].batch_size",
}
STILL_SUMS = {
    "over all samples of the loader": "criterion(model(x), y) / len(loader.dataset)",
    "over the batches": "criterion(model(x), y) / len(loader)",
    "over a number": "criterion(model(x), y) / 1000",
    "over a number, by a method": "criterion(model(x), y).div(1000)",
    "a mean times the size": "nn.functional.cross_entropy(model(x), y).mul(len(x))",
}
MEANS = {
    "over what a tensor made a mask selects": (
        loop("mask = torch.ones(8).bool()", "loss = nn.functional.mse_loss(model(x)[mask], y[mask])"),
        "        loss = mean_by_count(nn.functional.mse_loss(model(x)[mask], y[mask]), y[mask].numel())",
    ),
    "divided by the number of those that are selected": (
        loop("kept = model(x)[y > 0]", "each = (kept - 1).abs()", "loss = each.sum() / each.size(0)"),
        "        loss = mean_by_count(each.sum() / each.size(0), each.size(0))",
    ),
    "divided in place": (
        loop("n = (y > 0).sum()", "loss = ((model(x) - y) ** 2).sum()", "loss /= n"),
        "        loss = mean_by_count(loss, n)",
    ),
    "divided by a mask": (
        loop("each = (model(x) - y) ** 2", "mask = y != 0", "loss = (each * mask).sum() / mask.sum()"),
        "        loss = mean_by_count((each * mask).sum() / mask.sum(), mask.sum())",
    ),
    "divided by a count with a floor": (
        loop("each = (model(x) - y) ** 2", "n = (y > 0).sum()", "loss = each.sum() / n.clamp(min=1)"),
        "        loss = mean_by_count(each.sum() / n.clamp(min=1), n.clamp(min=1), n)",
    ),
    "divided by a count and a little": (
        loop(
            "each = (model(x) - y) ** 2", "mask = y != 0", "loss = (each * mask).sum() / (mask.sum() + 1e-8)"
        ),
        "        loss = mean_by_count((each * mask).sum() / (mask.sum() + 1e-8), mask.sum() + 1e-8, mask.sum())",
    ),
    "what is ignored does not count": (
        "criterion = nn.CrossEntropyLoss(ignore_index=0)\n" + loop("loss = criterion(model(x), y)"),
        "        loss = mean_by_count(criterion(model(x), y), (y != criterion.ignore_index).sum())",
    ),
    "classes weigh differently": (
        "criterion = nn.CrossEntropyLoss(torch.tensor([1.0, 4.0]))\n" + loop("loss = criterion(model(x), y)"),
        (
            "        loss = mean_by_count(criterion(model(x), y)"
            ", criterion.weight[y[y != criterion.ignore_index]].sum())"
        ),
    ),
    "classes weigh differently and one is ignored": (
        "criterion = nn.NLLLoss(weight=torch.tensor([1.0, 4.0]), ignore_index=0)\n"
        + loop("loss = criterion(model(x), y)"),
        (
            "        loss = mean_by_count(criterion(model(x), y)"
            ", criterion.weight[y[y != criterion.ignore_index]].sum())"
        ),
    ),
    "a function in which classes weigh differently": (
        "w = torch.tensor([1.0, 4.0])\n" + loop("loss = nn.functional.cross_entropy(model(x), y, w)"),
        "        loss = mean_by_count(nn.functional.cross_entropy(model(x), y, w), w[y[y != -100]].sum())",
    ),
    "what a function ignores does not count": (
        loop("loss = nn.functional.cross_entropy(model(x), y, ignore_index=PAD)"),
        (
            "        loss = mean_by_count(nn.functional.cross_entropy(model(x), y, ignore_index=PAD)"
            ", (y != PAD).sum())"
        ),
    ),
}
MEANS |= {
    "over what a mask selects": (
        loop("keep = y > 0", "loss = nn.functional.mse_loss(model(x)[keep], y[keep])"),
        ("        loss = mean_by_count(nn.functional.mse_loss(model(x)[keep], y[keep]), y[keep].numel())"),
    ),
    "over what is selected by a method": (
        loop("out = model(x)", "loss = criterion(out.masked_select(y > 0), y.masked_select(y > 0))"),
        (
            "        loss = mean_by_count(criterion(out.masked_select(y > 0), y.masked_select(y > 0))"
            ", y.masked_select(y > 0).numel())"
        ),
    ),
    "the mean of what a mask selects": (
        loop("each = (model(x) - y) ** 2", "loss = each[y > 0].mean()"),
        "        loss = mean_by_count(each[y > 0].mean(), each[y > 0].numel())",
    ),
    "a mask that is divided by its own mean": (
        loop(
            "mask = (y != 0).float()",
            "mask /= torch.mean(mask)",
            "loss = torch.mean((model(x) - y).abs() * mask)",
        ),
        "        mask /= mean_over_ranks(torch.mean(mask))",
    ),
    "a mask over its own mean": (
        loop(
            "mask = (y > 0).float()",
            "mask = mask / mask.mean()",
            "loss = ((model(x) - y) ** 2 * mask).mean()",
        ),
        "        mask = mask / mean_over_ranks(mask.mean())",
    ),
    "batches cut by hand": (
        (
            "for epoch in range(3):\n    for i in range(0, len(rows), 8):\n"
            "        x, y = rows[i : i + 8], labels[i : i + 8]\n        mask = y != 0\n"
            "        loss = ((model(x) - y) ** 2 * mask).sum() / mask.sum()\n"
            "        loss.backward()\n        optimizer.step()\n"
        ),
        "        loss = mean_by_count(((model(x) - y) ** 2 * mask).sum() / mask.sum(), mask.sum())",
    ),
}
SELECTED = {
    "by a mask": (
        ("mask = y != 0", "loss = criterion(model(x)[mask], y[mask])"),
        "        loss = mean_by_count(criterion(model(x)[mask], y[mask]), y[mask].numel())",
    ),
    "by numbers of a mask": (
        (
            "keep = torch.nonzero(y > 0).view(-1)",
            "out, y = model(x)[keep], y[keep]",
            "loss = criterion(out, y)",
        ),
        "        loss = mean_by_count(criterion(out, y), y.numel())",
    ),
    "by a function": (
        (
            "targets = torch.masked_select(y, y > 0)",
            "loss = criterion(model(x).masked_select(y > 0), targets)",
        ),
        ("        loss = mean_by_count(criterion(model(x).masked_select(y > 0), targets), targets.numel())"),
    ),
    "packed": (
        (
            "pack = nn.utils.rnn.pack_padded_sequence",
            "targets = pack(y, y.sum(1))[0]",
            "loss = criterion(pack(model(x), y.sum(1))[0], targets)",
        ),
        "        loss = mean_by_count(criterion(pack(model(x), y.sum(1))[0], targets), targets.numel())",
    ),
    "tokens that the batch counts": (
        ("loss = (model(x) - y['y']).abs().sum() / y['ntokens']",),
        "        loss = mean_by_count((model(x) - y['y']).abs().sum() / y['ntokens'], y['ntokens'])",
    ),
    "words counted by hand": (
        ("n = sum(len(t) for t in y)", "loss = (model(x) - y).abs().sum() / n"),
        "        loss = mean_by_count((model(x) - y).abs().sum() / n, n)",
    ),
}
BY_HAND = {
    "a criterion that a setting chooses": (
        "criterion = nn.CrossEntropyLoss(ignore_index=0) if args.a else nn.BCEWithLogitsLoss()",
        "loss = criterion(model(x), y)",
    ),
    "times one over a count": ("loss = ((model(x) - y) ** 2).sum() * (1.0 / (y > 0).sum())",),
    "a mask that is filled": (
        "mask = torch.zeros(8)",
        "mask[y.nonzero()] = 1",
        "loss = ((model(x) - y)[mask] ** 2).mean()",
    ),
    "a target that is computed": ("loss = criterion(model(x)[y > 0], (y / 2)[y > 0] + 1)",),
}
WHOLE = (
    "for epoch in range(3):\n    optimizer.zero_grad()\n    {}\n    loss.backward()\n    optimizer.step()\n"
)
LEFT_ALONE = {
    "a mean that weighs by the samples seen so far, taken one by one": (
        "seen = 0\nbatches = iter(loader)\nfor step in range(100):\n    x, y = next(batches)\n"
        "    seen += x.size(0)\n    optimizer.zero_grad()\n"
        "    (nn.functional.cross_entropy(model(x), y) * min(1.0, seen / 10000)).backward()\n"
        "    optimizer.step()\n"
    ),
    "a mean that weighs by the samples seen so far": "seen = 0\n"
    + loop("seen += x.size(0)", "loss = nn.functional.cross_entropy(model(x), y) * min(1.0, seen / 10000)"),
    "a sequence packed for a recurrent layer": "from torch.nn.utils.rnn import pack_padded_sequence as pack\n"
    "rnn = nn.LSTM(4, 8)\n" + loop("h = rnn(pack(x, y))[1][0]", "loss = criterion(model(h), y)"),
    "a sum over one-hot targets filled by class": loop(
        "hot = torch.zeros(8, 2)", "hot[torch.arange(8), y] = 1", "loss = criterion(model(x), hot)"
    ),
    "a sum of data that every rank has": WHOLE.format("loss = (model(rows) - labels).pow(2).sum()"),
    "a sum of random data that every rank has": "rows = torch.randn(9, 4)\n"
    + WHOLE.format("loss = (model(rows) - labels).pow(2).sum()"),
    "a local mean of data that every rank has": WHOLE.format(
        "loss = nn.functional.mse_loss(model(rows)[labels > 0], labels[labels > 0])"
    ),
    "a mean": LOOP,
    "a criterion that averages": loop("loss = criterion(model(x), y)"),
    "no weights": "criterion = nn.CrossEntropyLoss(weight=None)\n" + loop("loss = criterion(model(x), y)"),
    "weights of elements": "criterion = nn.BCEWithLogitsLoss(weight=torch.ones(2))\n"
    + loop("loss = criterion(model(x), y)"),
    "a mean over all elements": loop("loss = (model(x) - y).pow(2).mean()"),
    "a sum over features, a mean over samples": loop("loss = (model(x) - y).pow(2).sum(1).mean()"),
    "a sum divided by the batch": loop("loss = (model(x) - y).pow(2).sum() / len(x)"),
    "a sum divided by the size of the batch": loop("loss = (model(x) - y).pow(2).sum() / x.size(0)"),
    "a sum divided by the shape": loop("loss = (model(x) - y).pow(2).sum() / x.shape[0]"),
    "means added up": loop("loss = criterion(model(x), y) + 0.1 * model(x).abs().mean()"),
    "sums that are only shown": loop(
        "out = model(x)", "hits = (out.argmax(1) == y).sum()", "loss = criterion(out, y)"
    ),
    "sums in evaluation": LOOP + "with torch.no_grad():\n    for x, y in val_loader:\n"
    "        print((model(x) - y).pow(2).sum() / (y > 0).sum())\n",
    "means weighted by the share of one size in another": loop(
        "share = 1.0 - x.size(1) * x.size(2) / float(x.size(3))",
        "loss = share * criterion(model(x), y) + (1 - share) * criterion(model(-x), y)",
    ),
    "a mean of means over two heads": loop("loss = (criterion(model(x), y) + criterion(model(-x), y)) / 2"),
}


@pytest.mark.parametrize("part", SUMS.values(), ids=SUMS)
def test_a_sum_is_that_of_all_ranks(part: str) -> None:
    script = NET + part
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (SUMMED, [])


@pytest.mark.parametrize("loss", MADE_MEANS.values(), ids=MADE_MEANS)
def test_a_sum_over_the_size_of_the_batch_is_a_mean(loss: str) -> None:
    script = NET + CRITERION + loop(f"loss = {loss}")
    assert migrate(rule, script) == (script, [])


@pytest.mark.parametrize("loss", STILL_SUMS.values(), ids=STILL_SUMS)
def test_a_sum_over_what_all_ranks_share_is_a_sum(loss: str) -> None:
    script = NET + CRITERION + loop(f"loss = {loss}")
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (SUMMED, [])


@pytest.mark.parametrize(("part", "after"), MEANS.values(), ids=MEANS)
def test_a_mean_is_over_the_count_of_all_ranks(part: str, after: str) -> None:
    script = NET + part
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize(("lines", "after"), SELECTED.values(), ids=SELECTED)
def test_a_mean_over_what_was_selected_is_over_that_of_all_ranks(lines: tuple[str, ...], after: str) -> None:
    script = NET + loop(*lines)
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize("lines", BY_HAND.values(), ids=BY_HAND)
def test_says_that_a_mean_is_over_a_selection(lines: tuple[str, ...]) -> None:
    script = NET + loop(*lines)
    text, [why] = migrate(rule, script)
    assert text == script
    assert "divided by a number that differs from rank to rank" in why


@pytest.mark.parametrize("part", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_leaves_alone(part: str) -> None:
    script = NET + part
    assert migrate(rule, script) == (script, [])


COUPLED = {
    "each with each": "loss = criterion(model(x) @ model(y).T, torch.arange(len(x)))",
    "the largest losses": (
        "loss = nn.functional.cross_entropy(model(x), y, reduction='none').topk(4).values.mean()"
    ),
    "deviations over the batch": (
        "z = model(x)",
        "loss = criterion(z, y) + torch.relu(1 - z.std(dim=0)).mean()",
    ),
    "labels of this rank": ("z = model(x)", "loss = criterion(z @ z.T, torch.arange(len(x)))"),
    "squared distances, in place": (
        "z = model(x)",
        "d = z.pow(2).sum(dim=1, keepdim=True).expand(len(z), len(z))",
        "d = d + d.t()",
        "d.addmm_(z, z.t(), beta=1, alpha=-2)",
        "loss = criterion(d.clamp(min=1e-12).sqrt(), torch.arange(len(x)))",
    ),
    "squared distances": (
        "z = model(x)",
        "d = torch.addmm(z.pow(2).sum(1, keepdim=True), z, z.t(), alpha=-2)",
        "loss = criterion(d, torch.arange(len(x)))",
    ),
    "labels of a batch of one size": (
        "z = model(x)",
        "labels = torch.arange(8)",
        "loss = criterion(z @ z.T, labels)",
    ),
    "halves that may not be halves": ("z = model(x)", "loss = criterion(z @ z.T, torch.arange(len(z)) // 2)"),
    "sums that are added up": ("z = model(x)", "loss = (z @ z.T).sum()", "seen += loss.item()"),
    "pairs that are counted": (
        "z = model(x)",
        "d = torch.cdist(z, z)",
        "seen += (d < 1).sum()",
        "loss = d.mean()",
    ),
}
IN_PLACE = {
    "by a function": ("z = model(x)", "loss = torch.mm(z, z.t()).logsumexp(1).mean()"),
    "by distance": ("z = model(x)", "loss = torch.cdist(z, z).mean()"),
    "by angle": (
        "z = model(x)",
        "loss = nn.functional.cosine_similarity(z[:, None], z[None], dim=2).mean()",
    ),
    "similarities of all pairs": ("z = model(x)", "loss = criterion(z @ z.t() / 0.5, torch.arange(len(z)))"),
    "cosines of all pairs": (
        "z = model(x)",
        "loss = nn.functional.cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=2).exp().mean()",
    ),
    "a module for cosines": ("z = model(x)", "loss = nn.CosineSimilarity(dim=2)(z[:, None], z[None]).mean()"),
    "distances": ("z = model(x)", "loss = torch.cdist(z, z).min(1)[0].mean()"),
    "distances by hand": (
        "z = model(x)",
        "loss = (z.unsqueeze(1) - z.unsqueeze(0)).pow(2).sum(2).max(1)[0].mean()",
    ),
    "an einsum over pairs": ("z = model(x)", "loss = torch.einsum('ic,jc->ij', z, z).exp().mean()"),
    "sums of all pairs": ("z = model(x)", "loss = (z @ z.T).sum()"),
    "their number": ("z = model(x)", "n = len(z)", "loss = criterion(z @ z.T, torch.arange(n))"),
    "with labels": (
        "z = model(x)",
        "s = z @ z.T",
        "labels = torch.arange(z.size(0))",
        "loss = criterion(s, labels)",
    ),
}
IN_PLACE_PAIRS = {
    "similarities of two views": (
        "a, b = model(x), model(y)",
        "loss = criterion(torch.matmul(a, b.T), torch.arange(len(a)))",
    ),
    "correlations": (
        "a, b = model(x), model(y)",
        "loss = (torch.mm(a.transpose(0, 1), b) / len(a) - 1).pow(2).mean()",
    ),
}
NOT_COUPLED = {
    "a product with weights": ("z = model(x)", "loss = criterion(z @ model.classifier.weight.t().T, y)"),
    "distances from weights": (
        "z, w = model(x), model.classifier.weight",
        "d = z.pow(2).sum(1, keepdim=True).expand(8, 2) + w.pow(2).sum(1, keepdim=True).expand(2, 8).t()",
        "d.addmm_(z, w.t(), beta=1, alpha=-2)",
        "loss = criterion(d, y)",
    ),
    "cosines with a partner": ("loss = 1 - nn.functional.cosine_similarity(model(x), model(y)).mean()",),
    "samples' own deviations": ("loss = model(x).std(dim=1).mean()",),
    "only shown": ("z = model(x)", "print((z @ z.t()).mean())", "loss = criterion(z, y)"),
    "a matrix for each sample": ("z = model(x)", "loss = torch.bmm(z.transpose(1, 2), z).mean()"),
    "an einsum for each sample": ("z = model(x)", "loss = torch.einsum('ic,ic->i', z, z).mean()"),
    "attention": "q = model(x)\n        loss = (q @ q.transpose(-2, -1)).mean()",
    "weights": "loss = criterion(model(x) @ model.classifier.weight.T, y)",
    "pairs": "loss = nn.functional.cosine_similarity(model(x), model(y)).mean()",
    "the five best classes": "out = model(x)\n        print(out.topk(5, 1))\n        loss = criterion(out, y)",
}


@pytest.mark.parametrize("line", COUPLED.values(), ids=COUPLED)
def test_says_that_samples_are_compared_with_those_of_the_rank_only(line: str | tuple[str, ...]) -> None:
    script = NET + "seen = 0\n" + (loop(line) if isinstance(line, str) else loop(*line))
    text, reasons = migrate(rule, script)
    assert "all_gather" not in text
    assert any("compared with each other" in why for why in reasons)


@pytest.mark.parametrize("lines", IN_PLACE.values(), ids=IN_PLACE)
def test_gathers_where_samples_are_compared(lines: tuple[str, ...]) -> None:
    script = NET + loop(*lines)
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("        z = all_gather_with_grad(z)", [])


def test_gathers_views_that_are_joined_where_they_are_compared() -> None:
    lines = (
        "z = torch.cat([model(x), model(y)])",
        "n = z.size(0)",
        "loss = criterion(z @ z.T - 9 * torch.eye(n), (torch.arange(n) + n // 2) % n)",
    )
    script = NET + loop(*lines)
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("        z = all_gather_with_grad(z, views=2)", [])


@pytest.mark.parametrize("lines", IN_PLACE_PAIRS.values(), ids=IN_PLACE_PAIRS)
def test_gathers_both_views_where_they_are_compared(lines: tuple[str, ...]) -> None:
    script = NET + loop(*lines)
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (
        "        a, b = all_gather_with_grad(a), all_gather_with_grad(b)",
        [],
    )


@pytest.mark.parametrize("line", NOT_COUPLED.values(), ids=NOT_COUPLED)
def test_samples_that_are_not_compared_with_each_other(line: str | tuple[str, ...]) -> None:
    script = NET + (loop(line) if isinstance(line, str) else loop(*line))
    assert migrate(rule, script) == (script, [])


BENT = {
    "a root": (
        ("loss = torch.sqrt(criterion(model(x), y))",),
        "        loss = torch.sqrt(mean_over_ranks(criterion(model(x), y)))",
    ),
    "a power": (
        ("m = model(x).mean()", "loss = (m - 1) ** 2"),
        "        m = mean_over_ranks(model(x).mean())",
    ),
    "flooding": (
        ("loss = nn.functional.mse_loss(model(x), y)", "loss = (loss - 0.1).abs() + 0.1"),
        "        loss = mean_over_ranks(nn.functional.mse_loss(model(x), y))",
    ),
    "another loss": (
        ("out = model(x)", "loss = criterion(out - torch.mean(model(y)), y)"),
        "        loss = criterion(out - mean_over_ranks(torch.mean(model(y))), y)",
    ),
    "means of what a network gave before": (
        ("out, old = model(x), model(x).detach()", "loss = criterion(out - old.mean(), y)"),
        "        loss = criterion(out - mean_over_ranks(old.mean()), y)",
    ),
    "of the outputs and of the targets": (
        ("out = model(x)", "loss = criterion(out, y) + (out.mean() - y.mean()).pow(2)"),
        "        loss = criterion(out, y) + (mean_over_ranks(out.mean()) - mean_over_ranks(y.mean())).pow(2)",
    ),
    "a product of means": (
        ("out = model(x)", "loss = criterion(out, y) * out.exp().mean()"),
        "        loss = mean_over_ranks(criterion(out, y)) * mean_over_ranks(out.exp().mean())",
    ),
}
BENT |= {
    "of what a mask selects": (
        ("mask = y != 0", "loss = torch.sqrt(criterion(model(x)[mask], y[mask]))"),
        "        loss = torch.sqrt(mean_by_count(criterion(model(x)[mask], y[mask]), y[mask].numel()))",
    ),
    "of what is counted, with another": (
        (
            "out = model(x)",
            "part = nn.functional.cross_entropy(out, y, ignore_index=0)",
            "loss = (part + out.mean()) ** 2",
        ),
        (
            "        part = mean_by_count(nn.functional.cross_entropy(out, y, ignore_index=0), (y != 0).sum())\n"
            "        loss = (part + mean_over_ranks(out.mean())) ** 2"
        ),
    ),
}
NOT_BENT = {
    "means that are added up": "loss = 0.5 * criterion(model(x), y) + model(x).abs().mean() / 2",
    "a mean of roots": "loss = model(x).abs().sqrt().mean()",
    "a root that is shown": "loss = criterion(model(x), y)\n        print(loss.sqrt())",
    "a mean of each sample": "loss = (model(x).mean(1) - y).pow(2).mean()",
    "a mean of one sample": (
        "out = model(x)\n        loss = sum((out[i].mean() - y[i]) ** 2 for i in range(len(x))) / len(x)"
    ),
    "a mean that goes into the model": "loss = criterion(model(x - x.mean()), y)",
    "the root of a sum of each sample": "loss = (model(x) - y).pow(2).sum(1).sqrt().mean()",
    "the root of a sum of the parameters": (
        "loss = criterion(model(x), y) + sum(p.pow(2).sum() for p in model.parameters()).sqrt()"
    ),
}


@pytest.mark.parametrize(("lines", "after"), BENT.values(), ids=BENT)
def test_a_mean_that_is_put_through_more_than_sums(lines: tuple[str, ...], after: str) -> None:
    script = NET + loop(*lines)
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize("line", NOT_BENT.values(), ids=NOT_BENT)
def test_a_mean_that_is_one_over_samples(line: str) -> None:
    script = NET + loop(line)
    assert migrate(rule, script) == (script, [])


def test_says_that_a_mean_over_a_count_that_is_not_seen_is_put_through_more() -> None:
    chosen = "criterion = nn.CrossEntropyLoss(ignore_index=0) if args.a else nn.BCEWithLogitsLoss()\n"
    text, whys = migrate(rule, NET + chosen + loop("loss = criterion(model(x), y).sqrt()"))
    assert "mean_over_ranks" not in text
    assert "put through more than sums" in whys[-1]
    assert len(whys) == 2


EVALUATED = """
def fit(output, target):
    return nn.CrossEntropyLoss(ignore_index=9)(output, target)


for epoch in range(3):
    for x, y in loader:
        fit(model(x), y).backward()
        optimizer.step()
    for x, y in val_loader:
        with torch.no_grad():
            out = model(x)
        print(fit(out, y))
"""


def test_a_mean_that_serves_evaluation_too_is_told_by_what_it_is_given() -> None:
    script = NET + EVALUATED.replace("nn.CrossEntropyLoss(ignore_index=9)", "criterion")
    script = script.replace("nn.CrossEntropyLoss()", "nn.CrossEntropyLoss(ignore_index=9)")
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (
        (
            "    return mean_by_count(criterion(output, target)"
            ", (target != criterion.ignore_index).sum(), given=output)"
        ),
        [],
    )
    recorded = script.replace("with torch.no_grad():", "if True:")
    text, [why] = migrate(rule, recorded)
    assert text == recorded
    assert "divided by a number that differs from rank to rank" in why


def test_whether_targets_are_given_is_alike_on_all_ranks() -> None:
    net = """
def judged(out, target=None):
    if target is None:
        return out
    chosen = target > 0
    return criterion(out[chosen], target[chosen])


"""
    script = NET + net + loop("loss = judged(model(x), y)") + "print(judged(model(x)))\n"
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (
        "    return mean_by_count(criterion(out[chosen], target[chosen]), target[chosen].numel())",
        [],
    )


def test_what_a_batch_brings_is_counted_one_by_one() -> None:
    script = NET + loop(
        "out = model(x)",
        "total = n = 0",
        "for i, boxes in enumerate(y):",
        "    for box in boxes:",
        "        total = total + (out[i] - box).pow(2).sum()",
        "        n += 1",
        "loss = total / max(n, 1)",
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (
        "        loss = mean_by_count(total / max(n, 1), max(n, 1), n)",
        [],
    )


def test_says_that_classes_weigh_differently_where_they_may() -> None:
    option = "import argparse\nargs = argparse.ArgumentParser().parse_args()\n"
    weights = "criterion = nn.CrossEntropyLoss(torch.ones(2) if args.weigh else None)\n"
    script = NET + option + weights + loop("loss = criterion(model(x), y)")
    text, [why] = migrate(rule, script)
    assert text == script
    assert "divided by a number that differs from rank to rank" in why


RATIOS = {
    "dice": (
        "p = model(x)\n        loss = 1 - 2 * (p * y).sum() / (p.sum() + y.sum())",
        (
            "        loss = 1 - 2 * sum_over_ranks((p * y).sum())"
            " / (sum_over_ranks(p.sum()) + sum_over_ranks(y.sum()))"
        ),
    ),
    "over the batch and the pixels": (
        "p = model(x)\n        loss = (torch.sum(p * y, dim=(0, 2)) / p.sum((0, 2))).mean()",
        "        loss = (sum_over_ranks(torch.sum(p * y, dim=(0, 2))) / sum_over_ranks(p.sum((0, 2)))).mean()",
    ),
    "the logarithm of a sum": (
        "loss = torch.log(model(x).exp().sum())",
        "        loss = torch.log(sum_over_ranks(model(x).exp().sum()))",
    ),
    "the root of a sum, beside a mean": (
        "out = model(x)\n        total = ((out - y) ** 2).sum()\n        loss = out.mean() + total ** 0.5",
        "        total = sum_over_ranks(((out - y) ** 2).sum())",
    ),
    "over axes that are only known when it runs": (
        "p = model(x)\n        loss = ((p * y).sum(axes) / p.sum(axes)).mean()",
        (
            "        loss = (sum_over_ranks((p * y).sum(axes), whole=True)"
            " / sum_over_ranks(p.sum(axes), whole=True)).mean()"
        ),
    ),
}


@pytest.mark.parametrize(("lines", "after"), RATIOS.values(), ids=RATIOS)
def test_a_ratio_of_sums_is_that_of_the_whole_batch(lines: str, after: str) -> None:
    script = NET + loop(lines)
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


def test_a_loss_module_that_divides_sums() -> None:
    loss = (
        "class Dice(nn.Module):\n    def forward(self, p, t):\n        both = (p * t).sum()\n"
        "        return 1 - both / (p.sum() + t.sum())\n\n\ndice = Dice()\n"
    )
    script = NET + loss + loop("loss = dice(model(x), y)")
    text, reasons = migrate(rule, script)
    assert reasons == []
    assert "        both = sum_over_ranks((p * t).sum())\n" in text
    assert "        return 1 - both / (sum_over_ranks(p.sum()) + sum_over_ranks(t.sum()))\n" in text


NO_RATIOS = {
    "of each sample": "p = model(x)\n        loss = ((p * y).sum(1) / p.sum(1)).mean()",
    "of the last axis": "p = model(x)\n        loss = ((p * y).sum(dim=-1) / p.sum(dim=-1)).mean()",
    "without gradients": "p = model(x)\n        print((p * y).sum() / p.sum())\n        loss = criterion(p, y)",
}


@pytest.mark.parametrize("lines", NO_RATIOS.values(), ids=NO_RATIOS)
def test_other_ratios_are_left_alone(lines: str) -> None:
    script = NET + loop(lines)
    assert migrate(rule, script) == (script, [])


def test_a_ratio_inside_the_model_is_left_alone() -> None:
    inner = NET.replace(
        "return self.classifier(self.features(x))",
        "w = self.features(x)\n        return self.classifier((w * w).sum(0) / w.sum(0) + w)",
    )
    script = inner + loop("loss = criterion(model(x), y)")
    assert migrate(rule, script) == (script, [])


def test_a_sum_over_points_that_each_rank_draws_is_that_of_all_ranks() -> None:
    script = NET + WHOLE.format("x = torch.rand(64, 4); loss = model(x).pow(2).sum()")
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == ("    (loss * dist.get_world_size()).backward()", [])


@pytest.mark.parametrize(
    "guard",
    [
        "    if count == 0:\n        return total\n    ",
        "    if count > 0:\n        return total / count\n    ",
    ],
    ids=["behind a return", "in a branch"],
)
def test_says_that_a_rank_with_nothing_would_not_count(guard: str) -> None:
    function = (
        "def masked(out, y):\n    mask = y > 0\n    total, count = ((out - y) * mask).sum(), mask.sum()\n"
        f"{guard}return total / count\n\n\n"
    )
    script = NET + function + loop("loss = masked(model(x), y)")
    text, [why, *_] = migrate(rule, script)
    assert text == script
    assert "a rank whose own data have none does not come here" in why


def test_a_penalty_that_a_method_of_the_model_adds_up_is_no_sum_over_the_batch() -> None:
    penalty = (
        "    def penalty(self):\n        parts = []\n        for layer in [self.features, self.classifier]:\n"
        "            parts += [layer.weight, layer.bias]\n        return sum([p.pow(2).sum() for p in parts])\n\n"
    )
    head = NET.replace("    def forward", penalty + "    def forward")
    script = head + loop("loss = criterion(model(x), y)\n        loss += 0.1 * model.penalty()")
    assert migrate(rule, script) == (script, [])


def test_a_sum_that_a_model_makes_of_its_own_parameters_grows() -> None:
    head = NET.replace(
        "self.features = nn.Linear(4, 8)", "self.table = nn.Parameter(torch.zeros(9, 4))"
    ).replace("return self.classifier(self.features(x))", "return self.table[x, :].norm(dim=1).sum()")
    text, reasons = migrate(rule, head + loop("loss = model(x)"))
    assert reasons == []
    assert SUMMED in text


def test_a_penalty_of_the_weights_is_no_sum_over_the_batch() -> None:
    script = NET + loop(
        "loss = criterion(model(x), y) + 1e-4 * sum(p.pow(2).sum() for p in model.parameters())"
    )
    assert migrate(rule, script) == (script, [])


def test_a_mean_times_the_size_that_is_counted_anew_is_a_sum() -> None:
    script = NET + loop(
        "n = 0", "n += x.size(0)", "loss = nn.functional.cross_entropy(model(x), y)", "loss = loss * n"
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (SUMMED, [])


def test_each_backward_pass_of_a_sum_grows() -> None:
    script = NET + loop("loss = model(x).sum()") + loop("(model(x) - y).abs().sum().backward()", backward="")
    text, _ = migrate(rule, script)
    assert SUMMED in text
    assert "        ((model(x) - y).abs().sum() * dist.get_world_size()).backward()\n" in text


def test_with_a_gradient_scaler() -> None:
    script = NET + loop("loss = model(x).sum()", backward="scaler.scale(loss).backward()").replace(
        "for epoch", "scaler = torch.amp.GradScaler()\nfor epoch"
    )
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (
        "        (scaler.scale(loss) * dist.get_world_size()).backward()",
        [],
    )


MIXED = {
    "a penalty of the weights": (
        ("loss = (model(x) - y).pow(2).sum() + 1e-4 * sum(p.pow(2).sum() for p in model.parameters())",),
        (
            "        loss = (model(x) - y).pow(2).sum() * scale_by_ranks()"
            " + 1e-4 * sum(p.pow(2).sum() for p in model.parameters())"
        ),
    ),
    "a penalty first": (
        ("penalty = model.classifier.weight.norm()", "loss = penalty - -(model(x) - y).abs().sum()"),
        "        loss = penalty - (-(model(x) - y).abs().sum()) * scale_by_ranks()",
    ),
    "a mean": (
        ("loss = criterion(model(x), y) + (model(x) - y).pow(2).sum()",),
        "        loss = criterion(model(x), y) + (model(x) - y).pow(2).sum() * scale_by_ranks()",
    ),
    "a sum is added to a penalty": (
        ("loss = 0.1 * model.classifier.weight.norm()", "loss += (model(x) - y).pow(2).sum()"),
        "        loss += (model(x) - y).pow(2).sum() * scale_by_ranks()",
    ),
    "a penalty is added to a sum": (
        (
            "loss = (model(x) - y).pow(2).sum()",
            "for p in model.parameters():",
            "    loss += 1e-4 * p.pow(2).sum()",
        ),
        "        loss = loss * scale_by_ranks()",
    ),
    "a penalty is added to the name of the sum": (
        ("loss = (model(x) - y).pow(2).sum()", "loss = loss + 1e-4 * model.classifier.weight.pow(2).sum()"),
        "        loss = loss * scale_by_ranks()",
    ),
    "a penalty is added once": (
        ("loss = (model(x) - y).pow(2).sum()", "loss += 1e-4 * model.classifier.weight.pow(2).sum()"),
        "        loss = loss * scale_by_ranks()",
    ),
    "two sums and a mean": (
        ("out = model(x)", "loss = out.sum() + (out - y).abs().sum() + criterion(out, y)"),
        "        loss = (out.sum() + (out - y).abs().sum()) * scale_by_ranks() + criterion(out, y)",
    ),
}


@pytest.mark.parametrize(("lines", "after"), MIXED.values(), ids=MIXED)
def test_of_a_total_only_the_sum_grows(lines: tuple[str, ...], after: str) -> None:
    script = NET + loop(*lines)
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


def test_a_sum_grows_once_before_the_loop_that_adds_penalties() -> None:
    script = NET + loop(*MIXED["a penalty is added to a sum"][0])
    text, _ = migrate(rule, script)
    assert "        loss = loss * scale_by_ranks()\n        for p in model.parameters():\n" in text


def test_attention_inside_a_model_is_no_comparison() -> None:
    net = NET.replace(
        "return self.classifier(self.features(x))",
        "h = self.features(x)\n        a = (h.unsqueeze(1) * h.unsqueeze(0)).softmax(-1) @ h.transpose(0, 1)\n"
        "        return self.classifier(a / h.std(0))",
    )
    assert migrate(rule, net + LOOP) == (net + LOOP, [])


CONTRAST = """
class Contrast(nn.Module):
    def __init__(self, t):
        super().__init__()
        self.t = t
        self.ce = nn.CrossEntropyLoss().to("cpu")

    def forward(self, a, b):
        sims = torch.mm(nn.functional.normalize(a), nn.functional.normalize(b).t()) / self.t
        return self.ce(sims, torch.arange(len(a)))


contrast = Contrast(0.5)


def triplet(z, labels):
    d = torch.cdist(z, z)
    same = labels[:, None] == labels[None]
    return (d.masked_fill(~same, 0).max(1)[0] - d.masked_fill(same, 9).min(1)[0] + 1).clamp(min=0).mean()


def hard(z, labels):
    return (torch.cdist(z, z).min(1)[0] > labels).float().mean().item()


def halves(z):
    n = len(z)
    return nn.functional.cross_entropy(z @ z.T, (torch.arange(n) + n // 2) % n)


def similar(z):
    return z @ z.T, torch.arange(len(z))


def summed(z, labels):
    return torch.cdist(z, z).sum()


def together(z, y):
    return criterion(z, y) + triplet(z, y)


class Kept:
    def __init__(self):
        self.last = None

    def __call__(self, z, labels):
        self.last = z
        return torch.cdist(z, z).mean()


kept = Kept()


class Sized:
    def __init__(self, batch_size):
        self.batch_size = batch_size

    def __call__(self, z, labels):
        return (torch.cdist(z, z) * torch.eye(self.batch_size)).mean()


"""
GATHERED = {
    "two views, by a module": (
        ("loss = contrast(model(x), model(y))",),
        "        loss = contrast(all_gather_with_grad(model(x)), all_gather_with_grad(model(y)))",
    ),
    "samples and their labels": (
        ("z = model(x)", "loss = triplet(z, labels=y)"),
        "        loss = triplet(all_gather_with_grad(z), labels=all_gather_with_grad(y))",
    ),
    "with another loss": (
        ("z = model(x)", "loss = criterion(z, y) + 0.5 * triplet(z, y)", "total += loss.item() * len(x)"),
        "        loss = criterion(z, y) + 0.5 * triplet(all_gather_with_grad(z), all_gather_with_grad(y))",
    ),
    "all losses in one function": (
        ("loss = together(model(x), y)",),
        "        loss = together(all_gather_with_grad(model(x)), all_gather_with_grad(y))",
    ),
    "a sum is that of all ranks already": (
        ("loss = summed(model(x), y)",),
        "        loss = summed(all_gather_with_grad(model(x)), all_gather_with_grad(y))",
    ),
    "a sum and a mean": (
        ("z = model(x)", "loss = criterion(z, y) + summed(z, y)"),
        "        loss = criterion(z, y) + summed(all_gather_with_grad(z), all_gather_with_grad(y))",
    ),
    "views joined before the model": (
        ("z = model(torch.cat([x, y]))", "loss = halves(z)"),
        "        loss = halves(all_gather_with_grad(z, views=2))",
    ),
    "as many views as there are": (
        ("both = torch.cat(x, dim=0)", "loss = halves(model(both))"),
        "        loss = halves(all_gather_with_grad(model(both), views=len(x)))",
    ),
    "views taken apart again": (
        ("a, b = model(torch.cat([x, x])).chunk(2)", "loss = contrast(a, b)"),
        "        loss = contrast(all_gather_with_grad(a), all_gather_with_grad(b))",
    ),
    "similarities that a criterion judges": (
        ("sims, target = similar(model(x))", "loss = criterion(sims, target)"),
        "        sims, target = similar(all_gather_with_grad(model(x)))",
    ),
    "what else is computed of the same samples": (
        ("z = model(x)", "loss = triplet(z, y)", "shown.append(hard(z.detach(), y))"),
        (
            "        loss = triplet(all_gather_with_grad(z), all_gather_with_grad(y))\n"
            "        shown.append(hard(all_gather_with_grad(z.detach()), all_gather_with_grad(y)))"
        ),
    ),
}
NOT_GATHERED = {
    "an order within one tensor that is not known": ("loss = halves(model(x))",),
    "views in an unknown number": ("x = torch.cat(list(x))", "loss = halves(model(x))"),
    "views under another axis": ("z = model(torch.cat([x, y])).view(2, 4, 2)", "loss = triplet(z, y)"),
    "a sum over a size of this rank": ("loss = summed(model(x), y) / len(x)",),
    "a sum beside one of this rank": ("z = model(x)", "loss = summed(z, y) + (z - y).pow(2).sum()"),
    "a sum that is added up": ("loss = summed(model(x), y)", "right += loss.item()"),
    "samples are kept for later": ("loss = Kept()(model(x), y)",),
    "it knows the size of a batch": ("loss = Sized(8)(model(x), y)",),
    "labels are made for one batch": ("labels = torch.arange(8)", "loss = triplet(model(x), labels)"),
    "its size is an argument": ("loss = triplet(model(x), len(x))",),
    "the result meets labels of this rank": ("sims, target = similar(model(x))", "loss = criterion(sims, y)"),
    "what it finds is counted": (
        "sims, target = similar(model(x))",
        "right += (sims.argmax(1) == target).sum().item()",
        "loss = criterion(sims, target)",
    ),
    "arguments out of sight": ("pair = model(x), y", "loss = triplet(*pair)"),
    "samples of earlier batches": ("z = model(x)", "loss = triplet(z + before, y)", "before = z.detach()"),
    "samples that are kept elsewhere": (
        "z = model(x)",
        "loss = triplet(z, kept.last)",
        "kept.last = y",
    ),
    "some ranks pass it by": (
        "z = model(x)",
        "loss = criterion(z, y)",
        "if y.sum() > 1: loss = triplet(z, y)",
    ),
}


@pytest.mark.parametrize(("lines", "after"), GATHERED.values(), ids=GATHERED)
def test_compares_the_samples_of_all_ranks(lines: tuple[str, ...], after: str) -> None:
    script = NET + CONTRAST + "total, shown = 0, []\n" + loop(*lines)
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize("lines", NOT_GATHERED.values(), ids=NOT_GATHERED)
def test_says_that_the_samples_of_all_ranks_are_not_compared(lines: tuple[str, ...]) -> None:
    script = NET + CONTRAST + "right, before = 0, torch.zeros(8, 2)\n" + loop(*lines)
    text, reasons = migrate(rule, script)
    assert "all_gather" not in text
    assert any("compared with each other" in why for why in reasons), reasons


def test_compares_the_samples_of_all_ranks_only_in_training() -> None:
    run = """
def run(loader, train):
    total = n = 0
    with torch.set_grad_enabled(train):
        for x, y in loader:
            loss = triplet(model(x), y)
            if train:
                loss.backward()
                optimizer.step()
            total += loss.item() * len(y)
            n += len(y)
    return total / n


for epoch in range(3):
    print(run(loader, True), run(val_loader, False))
"""
    script = NET + CONTRAST + run
    text, reasons = migrate(rule, script)
    assert reasons == []
    assert "loss = triplet(all_gather_with_grad(model(x)), all_gather_with_grad(y))" in text
    recorded = script.replace("    with torch.set_grad_enabled(train):", "    if True:")
    text, [why] = migrate(rule, recorded)
    assert text == recorded
    assert "compared with each other" in why


def test_a_criterion_on_a_device_is_that_criterion() -> None:
    script = NET.replace(
        "criterion = nn.CrossEntropyLoss()", "criterion = nn.MSELoss(reduction='sum').to('cuda')"
    )
    script += loop("loss = criterion(model(x), y)")
    assert added(script, migrate(rule, script)[0]) == SUMMED


BUCKETS = """
class Buckets:
    def __init__(self, data):
        self.batches = [[0, 1], [2, 3, 4, 5]]

    def __iter__(self):
        return iter(self.batches)


"""


@pytest.mark.parametrize(
    ("sampler", "after"),
    [
        ("Buckets(data)", "        loss = mean_by_count(criterion(model(x), y), y.numel())"),
        ("torch.utils.data.BatchSampler(range(9), 3, False)", ""),
    ],
)
def test_batches_of_different_sizes_weigh_by_their_samples(sampler: str, after: str) -> None:
    script = BUCKETS + NET.replace("8, shuffle=True", f"batch_sampler={sampler}")
    script += loop("loss = criterion(model(x), y)")
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


ONE_BY_ONE = {
    "by the shape": ("x.shape[0]", ""),
    "by the size": ("x.size(0)", ""),
    "by a name": ("n", ""),
}


@pytest.mark.parametrize(("count", "after"), ONE_BY_ONE.values(), ids=ONE_BY_ONE)
def test_a_mean_over_what_one_sample_has_is_left_alone(count: str, after: str) -> None:
    lines = (
        "n = x.shape[0]\n        parts, out = [], model(x)",
        (
            f"for j in range({count}):\n            good = y[j] > 0\n"
            "            parts.append(out[j][good].sum() / good.sum())"
        ),
        "loss = torch.stack(parts).mean()",
    )
    script = NET + loop(*lines)
    text, reasons = migrate(rule, script)
    assert (added(script, text), reasons) == (after, [])


@pytest.mark.parametrize(
    "skips", ["if good.sum() == 0:\n                continue\n            ", "if good.any(): "]
)
def test_says_that_not_every_sample_has_a_mean(skips: str) -> None:
    lines = (
        "parts, out = [], model(x)",
        (
            "for j in range(x.shape[0]):\n            good = y[j] > 0\n"
            f"            {skips}parts.append(out[j][good].sum() / good.sum())"
        ),
        "loss = torch.stack(parts).mean()",
    )
    script = NET + loop(*lines)
    text, [why] = migrate(rule, script)
    assert text == script
    assert "differs from rank to rank" in why
