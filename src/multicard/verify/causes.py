"""The likely cause of each failed check: the code of the rule that it breaks, and the line that breaks it.

Numbers alone do not tell a missing wrapper from a learning rate that drifts apart; what the script did
does: whether it wrapped, what was frozen when it did, which way the forward went. The checks say that
something is wrong, this says why.
"""

from collections.abc import Callable
from dataclasses import replace

from multicard.messages import Text
from multicard.verify import printed
from multicard.verify.checks import outputs, ranks, samples, steps, streams
from multicard.verify.evidence import Event, Key, Pair, key_of
from multicard.verify.verdict import Cause, Check


def explained(pair: Pair, checks: list[Check]) -> list[Check]:
    """The same checks; the failed ones with their cause."""
    return [
        replace(check, cause=REASONS[check.name](pair))
        if check.state == "failed" and check.name in REASONS
        else check
        for check in checks
    ]


def cause(pair: Pair, code: str, site: str | None, en: str, zh: str) -> Cause:
    return Cause(code, Text(en, zh), pair.shown(site) if site else None)


def wraps(pair: Pair) -> list[Event]:
    return pair.ranks[0].of("wrap")


def grouped(pair: Pair) -> bool:
    return bool(pair.ranks[0].of("joined"))


def not_started(pair: Pair) -> Cause | None:
    if grouped(pair) or pair.world == 1:
        return None
    first = pair.ranks[0].first("optimizer") or pair.ranks[0].first("step")
    return cause(
        pair,
        "MC101",
        first["site"] if first else None,
        "no process group is made: the ranks know nothing of each other",
        "没有初始化进程组：各进程互不相干",
    )


def not_wrapped(pair: Pair, site: str | None) -> Cause:
    return cause(
        pair,
        "MC301",
        site,
        "the model is not wrapped in DistributedDataParallel: each rank trains by itself",
        "模型没有用 DistributedDataParallel 包装：各进程各自训练",
    )


def backward_site(event: Event) -> str | None:
    sites = event.get("backward") or [event.get("site")]
    return str(sites[-1]) if sites and sites[-1] else None


def of_ranks(pair: Pair) -> Cause | None:
    """Ranks that are not alike."""
    drift = ranks.first_drift(pair)
    if drift is None and ranks.untied(pair):
        first = pair.ranks[0].of("step")[0]
        optimizer = pair.ranks[0].first("optimizer") or first
        return not_started(pair) or _not_reduced(pair, first, (), optimizer)
    if drift is None:
        return None
    event = drift.event
    optimizer = next((e for e in pair.ranks[0].of("optimizer") if e["number"] == drift.optimizer), event)
    found = not_started(pair) or uneven(pair)
    if found is not None:
        return found
    if drift.what == "start":
        if _unheld(event, drift.parameters):
            return not_wrapped(pair, optimizer["site"])
        return _changed(pair, event) or not_wrapped(pair, optimizer["site"])
    if drift.what == "between":
        return _changed(pair, event) or cause(
            pair,
            "MC502",
            event.get("site"),
            "the weights changed on some ranks only",
            "权重只在部分进程上被修改",
        )
    if drift.what == "model":
        return _changed(pair, event) or cause(
            pair,
            "MC502",
            event.get("site"),
            "weights were changed on some ranks only",
            "权重只在部分进程上被修改",
        )
    if drift.what == "gradient":
        return _not_reduced(pair, event, drift.parameters, optimizer)
    odd = steps.first_odd_metric(pair)
    if odd is not None:
        return of_rate(pair)
    return _other_rates(pair, drift) or cause(
        pair,
        "MC308",
        event.get("site"),
        "the optimizers of the ranks do different things with the same gradients",
        "梯度相同，但各进程的优化器更新不同",
    )


def _unheld(event: Event, parameters: tuple[int, ...]) -> bool:
    unheld = set(event.get("unheld", ()))
    return bool(unheld) if not parameters else set(parameters) <= unheld


def _changed(pair: Pair, event: Event) -> Cause | None:
    """Weights read from a file by some ranks only."""
    loads = [[e for e in trace.of("load") if e["t"] <= event["t"] + 60] for trace in pair.ranks]
    if any(loads) and not all(len(one) == len(loads[0]) for one in loads):
        site = next(e["site"] for one in loads for e in one)
        return cause(
            pair, "MC502", site, "the checkpoint is loaded on some ranks only", "检查点只在部分进程上加载"
        )
    return None


def _not_reduced(pair: Pair, event: Event, parameters: tuple[int, ...], optimizer: Event) -> Cause:
    counts = event.get("counts", {})
    if not wraps(pair):
        return not_wrapped(pair, optimizer["site"])
    if counts.get("past") and not counts.get("through"):
        sites = event.get("past") or []
        return cause(
            pair,
            "MC305",
            sites[0] if sites else backward_site(event),
            "the forward goes past the wrapper: gradients are not reduced",
            "前向绕过了 DDP 包装：梯度没有同步",
        )
    if _unheld(event, parameters):
        return not_wrapped(pair, optimizer["site"])
    if parameters and set(parameters) <= set(event.get("unreduced", ())):
        return cause(
            pair,
            "MC304",
            wraps(pair)[-1]["site"],
            "parameters frozen when the model was wrapped and thawed later are never reduced",
            "包装时被冻结、之后解冻的参数不会被同步",
        )
    if counts.get("unsynchronised") and not counts.get("reduces"):
        return cause(
            pair,
            "MC307",
            backward_site(event),
            "the last micro-batch runs under no_sync too: gradients are never reduced",
            "最后一个小批次也在 no_sync 之内：梯度从未同步",
        )
    if not counts.get("backward"):
        return cause(
            pair,
            "MC307",
            event.get("site"),
            "no backward is called: torch.autograd.grad goes past DDP, which reduces nothing",
            "没有调用 backward：torch.autograd.grad 绕过 DDP，梯度不会同步",
        )
    if parameters and set(parameters) <= set(event.get("again", ())):
        return cause(
            pair,
            "MC307",
            backward_site(event),
            "a second backward on one forward is not reduced",
            "同一次前向的第二次 backward 不会被同步",
        )
    if not counts.get("through"):
        return cause(
            pair,
            "MC305",
            backward_site(event),
            "the forward does not go through the wrapper: gradients are not reduced",
            "前向没有经过 DDP 包装：梯度没有同步",
        )
    return cause(
        pair,
        "MC301",
        backward_site(event),
        "gradients are not averaged over the ranks",
        "梯度没有在各进程间平均",
    )


def uneven(pair: Pair) -> Cause | None:
    """Ranks that used up another number of batches for their steps, or made another number of steps."""
    per_step = [_batches_per_step(pair, rank) for rank in range(pair.world)]
    shortest = min(len(one) for one in per_step)
    for step in range(shortest):
        if len({one[step][0] for one in per_step}) > 1:
            site = next((one[step][1] for one in per_step if one[step][1]), None)
            return cause(
                pair,
                "MC307",
                site,
                "a batch is skipped on one rank only: gradients of different steps are averaged",
                "某个进程跳过了一个批次，其他进程没有：不同步的梯度被平均",
            )
    return None


def _batches_per_step(pair: Pair, rank: int) -> list[tuple[int, str | None]]:
    found, count = [], 0
    for event in pair.ranks[rank].events:
        if event["kind"] == "batch" and key_of(event) in pair.training:
            count += 1
        elif event["kind"] == "step":
            found.append((count, backward_site(event)))
            count = 0
    return found


def _other_rates(pair: Pair, drift: ranks.Drift) -> Cause | None:
    key = (drift.optimizer, drift.step)
    rates = [pair.steps(rank)[key]["lr"] for rank in range(pair.world) if key in pair.steps(rank)]
    if all(rate == rates[0] for rate in rates):
        return None
    return cause(
        pair,
        "MC308",
        pair.steps(0)[key].get("site"),
        "the learning rates of the ranks differ: the scheduler follows a value of each rank's own",
        "各进程学习率不同：调度器依据的是各进程自己的指标",
    )


def of_rank_buffers(pair: Pair) -> Cause | None:
    stale = ranks.first_stale(pair)
    return stale and cause(
        pair,
        "MC303",
        stale[0]["site"],
        "running statistics are each rank's own when it evaluates: synchronise the buffers first",
        "评估时各进程的 BatchNorm 统计量不同：应先同步缓冲区",
    )


def loader_site(pair: Pair, key: Key | None) -> str | None:
    return None if key is None or key not in pair.loaders else str(pair.loaders[key]["site"])


def of_dealing(pair: Pair) -> Cause | None:
    bad = samples.first_bad_dealing(pair)
    if bad is None:
        drawn = ranks.drawn_alike(pair)
        en, zh = (
            "the seeds of the ranks are alike, and so are the batches",
            "各进程的随机种子相同，批次也就相同",
        )
        return None if drawn is None else cause(pair, "MC104", drawn, en, zh)
    site = loader_site(pair, bad.passage.key)
    own = pair.counterparts.get(bad.passage.key, {})
    theirs = pair.loaders[bad.passage.key]
    sampled = own.get("sampler") not in samples.PLAIN or own.get("batch_sampler") not in samples.PLAIN
    if sampled and theirs.get("sampler") in {own.get("sampler"), "DistributedSampler"}:
        return cause(
            pair, "MC204", site, "the sampler is not dealt out over the ranks", "采样器没有在各进程间分配"
        )
    split = _other_split(pair)
    if split is not None and bad.kind != "same":
        return split
    if streams.is_stream(pair, bad.passage.key) and bad.kind in {"same", "doubled"}:
        en, zh = (
            "the whole stream comes to every rank: no rank takes a share of it",
            "每个进程都读取完整的数据流，没有分片",
        )
        return cause(pair, "MC201", site, en, zh)
    match bad.kind:
        case "same":
            return cause(
                pair,
                "MC201",
                site,
                "all ranks see the same data: no distributed sampler",
                "所有进程看到相同的数据：没有分布式采样器",
            )
        case "doubled":
            return cause(
                pair, "MC201", site, "every rank goes through the whole data set", "每个进程都遍历整个数据集"
            )
        case "drawn":
            return cause(
                pair,
                "MC201",
                site,
                "each rank shuffles the stream by itself and takes a share of that: shuffle alike, or share out first",
                "各进程各自打乱数据流再取一份：应使用相同的种子打乱，或先分片再打乱",
            )
        case "foreign":
            return cause(
                pair,
                "MC207",
                site,
                "other samples than the original's are trained on",
                "训练用到了原脚本之外的样本",
            )
        case _:
            return cause(
                pair, "MC201", site, "part of the data set is never dealt", "数据集有一部分从未被分发"
            )


def _other_split(pair: Pair) -> Cause | None:
    """An order or a split that was drawn before training, differently on each rank."""
    owns = [rank.of("shuffled") for rank in pair.ranks]
    for events in zip(*owns, strict=False):
        if len({e["site"] for e in events}) == 1 and len({e["result"] for e in events}) > 1:
            return cause(
                pair,
                "MC207",
                events[0]["site"],
                f"{events[0]['what']} draws another order on each rank: it is not seeded alike",
                f"{events[0]['what']} 在各进程上结果不同：没有使用相同的种子",
            )
    held: dict[Key, dict[int, Event]] = {}
    for rank, trace in enumerate(pair.ranks):
        for event in trace.of("loader"):
            held.setdefault(key_of(event), {})[rank] = event
    for key, by_rank in held.items():
        subsets = [e["own_first"] for e in by_rank.values() if e.get("own_first") is not None]
        if key in pair.training and len(subsets) == pair.world:
            sets = [set(s) for s in subsets]
            if len({len(s) for s in sets}) == 1 and any(s != sets[0] for s in sets) and sets[0] & sets[-1]:
                return cause(
                    pair,
                    "MC207",
                    loader_site(pair, key),
                    "the ranks hold different splits of the data",
                    "各进程的数据划分不同",
                )
    return None


def of_order(pair: Pair) -> Cause | None:
    order = samples.judged_order(pair)
    match order.kind:
        case "repeated":
            assert order.passage is not None
            return cause(
                pair,
                "MC203",
                order.passage.site,
                "the sampler is not told the epoch: call set_epoch before each",
                "没有告诉采样器当前轮次：每轮之前应调用 set_epoch",
            )
        case "draws":
            return cause(
                pair,
                "MC204",
                loader_site(pair, order.key),
                "each rank makes a draw of its own and takes a share of it: seed the sampler alike",
                "各进程各自采样再取一份：采样器应使用相同的种子",
            )
        case "sampler":
            return cause(
                pair,
                "MC204",
                loader_site(pair, order.key),
                "the original's sampler was dropped",
                "原脚本的采样器被丢掉了",
            )
        case "unshuffled" | "shuffled":
            assert order.passage is not None
            return cause(
                pair,
                "MC201",
                loader_site(pair, order.passage.key),
                "shuffle is not what it was",
                "shuffle 与原来不同",
            )
        case _:
            return None


def of_content(pair: Pair) -> Cause | None:
    content = samples.judged_content(pair)
    split = _other_split(pair)
    if split is not None or len(content.ranks) == pair.world:
        return split
    return cause(
        pair,
        "MC207",
        loader_site(pair, content.key),
        "the ranks hold other data under the same index: split, shuffled or listed differently",
        "相同下标在各进程上是不同的数据：划分、打乱或文件列表顺序不同",
    )


def of_noise(pair: Pair) -> Cause | None:
    copies = ranks.copied_noise(pair)
    if not copies:
        return None
    worst = min(copies, key=lambda noise: list(ranks.WHAT).index(noise.what))
    return cause(
        pair,
        "MC104",
        worst.site,
        f"all ranks have the same seed while training: {worst.what} is a copy",
        f"训练时所有进程的种子相同：{ranks.WHAT[worst.what].zh}完全重复",
    )


def of_models(pair: Pair) -> Cause | None:
    odd = steps.first_odd_model(pair)
    if odd is None:
        return None
    for question, reason in ((steps.check_gradients, of_gradients), (ranks.check_ranks, of_ranks)):
        if question(pair).state == "failed":
            return reason(pair)
    own, other, _ = odd
    if own["trained"]:
        return cause(
            pair,
            "MC502",
            other.get("site"),
            "weights are loaded or frozen otherwise",
            "权重的加载或冻结方式不同",
        )
    return cause(
        pair,
        "MC302",
        other.get("site"),
        "a copy of the model is not kept up to date: the wrapped model's names carry a prefix",
        "模型副本没有随之更新：包装后模型的参数名带有前缀",
    )


def of_steps(pair: Pair) -> Cause | None:
    if not steps.compared_steps(pair):
        texts = [e["against"] for e in pair.original.of("step") if isinstance(e.get("against"), str)]
        return _other_parameters(pair) if texts else None
    idle = _idle_optimizer(pair) or uneven(pair)
    if idle is not None:
        return idle
    counts = [len(pair.steps(rank)) for rank in range(pair.world)]
    last = pair.ranks[0].of("step")[-1]
    if len(set(counts)) > 1:
        return cause(
            pair, "MC307", last.get("site"), "the ranks do not step together", "各进程没有同步执行优化步"
        )
    own, other = len(pair.own_steps), len(pair.steps(0))
    if other and own != other and pair.training and not pair.original.of("beyond"):
        return cause(
            pair,
            "MC307",
            last.get("site"),
            "the optimizer steps at other batches",
            "优化器在不同的批次上更新",
        )
    return cause(pair, "MC403", last.get("site"), "training stops at another epoch", "训练在不同的轮次停止")


def _other_parameters(pair: Pair) -> Cause:
    own = {e["number"]: e for e in pair.original.of("optimizer")}
    for event in pair.ranks[0].of("optimizer"):
        if event["number"] in own and own[event["number"]]["shapes"] != event["shapes"]:
            return cause(
                pair, "MC308", event["site"], "the optimizer holds other parameters", "优化器里的参数不同"
            )
    first = pair.ranks[0].first("optimizer")
    return cause(pair, "MC308", first["site"] if first else None, "the optimizers differ", "优化器不同")


def of_gradients(pair: Pair) -> Cause | None:
    found = steps.first_gradient_difference(pair)
    if found is None:
        return None
    idle = _idle_optimizer(pair)
    if idle is not None:
        return idle
    event = found.event
    theirs = pair.steps(0).get((event["number"], event["step"]), event)
    site = backward_site(theirs)
    apart = _apart(pair, event["step"])
    if apart is not None:
        return apart
    content = samples.judged_content(pair)
    if content.differing:
        return of_content(pair)
    factor = common_factor(event)
    if factor is not None:
        return _factor(pair, factor, site)
    if steps.check_loss(pair).state == "failed":
        return cause(
            pair,
            "MC306",
            site,
            "the loss is normalised over each rank's share: a mean of means is not the mean over all",
            "损失按各进程自己的数量归一化：平均的平均不是总平均",
        )
    if theirs.get("counts", {}).get("past"):
        sites = theirs.get("past") or []
        return cause(
            pair,
            "MC305",
            sites[0] if sites else site,
            "part of the forward goes past the wrapper",
            "部分前向绕过了包装",
        )
    if theirs.get("counts", {}).get("backward", 0) > theirs.get("counts", {}).get("through", 0):
        return cause(
            pair,
            "MC307",
            site,
            "a second backward on one forward is not reduced",
            "同一次前向的第二次 backward 不会被同步",
        )
    if event.get("clips") and theirs.get("clips") and not _close(event["clips"], theirs["clips"]):
        return cause(
            pair,
            "MC307",
            site,
            "gradients are clipped before they are those of all ranks",
            "梯度在同步之前被裁剪",
        )
    return cause(
        pair,
        "MC306",
        site,
        "the gradient is not the whole batch's: the loss couples samples, or is normalised by a rank's share",
        "梯度不等于整个批次的梯度：损失涉及样本之间的关系，或按局部数量归一化",
    )


def _close(a: list[float], b: list[float]) -> bool:
    return len(a) == len(b) and all(
        abs(x - y) <= 1e-3 * max(abs(x), abs(y)) for x, y in zip(a, b, strict=True)
    )


def common_factor(event: Event) -> float | None:
    """The number by which all gradients of a step are off, if it is one number."""
    rows = [row for _, _, row in steps.gradient_rows(event)]
    largest = max((row[1] for row in rows), default=0.0)
    clear = [row for row in rows if row[1] > 0.05 * largest]
    factors = [row[3] for row in clear]
    if not factors or largest == 0:
        return None
    mean = sum(factors) / len(factors)
    same = all(abs(f - mean) < 0.02 * abs(mean) for f in factors)
    scaled = all(abs(row[2] - abs(mean) * row[1]) < 0.05 * row[1] for row in clear)
    return mean if same and scaled and abs(mean - 1) > 0.01 else None


def _factor(pair: Pair, factor: float, site: str | None) -> Cause:
    world = pair.world
    if abs(factor * world - 1) < 0.02:
        return cause(
            pair,
            "MC306",
            site,
            f"gradients are 1/{world} of what they should be: the loss is a sum, and DDP averages over ranks",
            f"梯度只有应有的 1/{world}：损失是求和，而 DDP 在进程间取平均",
        )
    return cause(
        pair,
        "MC306",
        site,
        f"gradients are {factor:.3g} times what they should be: the loss is scaled otherwise",
        f"梯度是应有的 {factor:.3g} 倍：损失的缩放不同",
    )


def _apart(pair: Pair, step: int) -> Cause | None:
    """Why the ranks were not alike by this step, if they were not: then nothing else need be wrong."""
    skipped = uneven(pair)
    if skipped is not None:
        return skipped
    drift = ranks.first_drift(pair)
    if drift is not None and drift.step <= step:
        return of_ranks(pair)
    if len({len(pair.steps(rank)) for rank in range(pair.world)}) > 1:
        return of_steps(pair)
    return None


def of_loss(pair: Pair) -> Cause | None:
    for key in sorted(pair.own_steps, key=lambda k: (k[1], k[0])):
        found = steps.losses(pair, key)
        if found is not None and abs(found[0] - found[1]) > steps.LOSS * max(
            abs(found[0]), abs(found[1]), 1e-6
        ):
            break
    else:
        return None
    if steps.check_gradients(pair).state == "failed":
        return of_gradients(pair)
    apart = _apart(pair, key[1])
    if apart is not None:
        return apart
    site = backward_site(pair.steps(0)[key])
    return cause(pair, "MC306", site, "the loss is scaled otherwise", "损失的缩放不同")


def of_rate(pair: Pair) -> Cause | None:
    found = steps.first_rate_difference(pair)
    odd = steps.first_odd_metric(pair)
    if odd is not None:
        return cause(
            pair,
            "MC308",
            odd[0],
            "the scheduler follows a metric of each rank's own: learning rates will part",
            "调度器依据各进程自己的指标：学习率会变得不同",
        )
    if found is None:
        return None
    key, own, other = found
    site = pair.steps(0)[key].get("site")
    optimizer = next((e for e in pair.ranks[0].of("optimizer") if e["number"] == key[0]), None)
    if key[1] == 0:
        ratio = other[0] / own[0] if own and other and own[0] else 0.0
        return cause(
            pair,
            "MC206",
            optimizer["site"] if optimizer else site,
            f"the learning rate is {ratio:.3g} times the original's",
            f"学习率是原来的 {ratio:.3g} 倍",
        )
    return cause(
        pair,
        "MC308",
        _scheduler_site(pair) or site,
        "the learning rate changes at another pace: the schedule is stepped otherwise, or counts other steps",
        "学习率变化的节奏不同：调度器调用次数不同，或按不同的步数计算",
    )


def _scheduler_site(pair: Pair) -> str | None:
    sites = [e["site"] for e in pair.ranks[0].of("schedule") if e.get("site")]
    return str(sites[-1]) if sites else None


def of_trained(pair: Pair) -> Cause | None:
    own = {e["number"]: e["shapes"] for e in pair.original.of("optimizer")}
    for event in pair.ranks[0].of("optimizer"):
        if event["number"] in own and own[event["number"]] != event["shapes"]:
            return _other_parameters(pair)
    idle = _idle_optimizer(pair)
    if idle is not None:
        return idle
    if steps.check_gradients(pair).state == "failed":
        frozen = [name for event in wraps(pair) for name in event["frozen"]]
        if frozen:
            en, zh = "parameters were frozen when the model was wrapped", "包装时有参数被冻结"
            return cause(pair, "MC304", wraps(pair)[-1]["site"], en, zh)
    optimizer = pair.ranks[0].first("optimizer")
    site = optimizer["site"] if optimizer else None
    return cause(
        pair, "MC304", site, "other parameters are frozen than in the original", "冻结的参数与原脚本不同"
    )


def _idle_optimizer(pair: Pair) -> Cause | None:
    """An optimizer whose parameters are in no wrapped model and never get a gradient."""
    if not wraps(pair):
        return None
    seen: dict[int, bool] = {}
    for event in pair.ranks[0].of("step"):
        count = len(event["gradients"]) if "gradients" in event else 0
        idle = count > 0 and not event["trained"] and len(event["unheld"]) == count
        seen[event["number"]] = seen.get(event["number"], True) and idle
    for event in pair.ranks[0].of("optimizer"):
        if seen.get(event["number"], False):
            en, zh = "the optimizer holds parameters of another model", "优化器里是另一个模型的参数"
            return cause(pair, "MC308", event["site"], en, zh)
    return None


def of_updates(pair: Pair) -> Cause | None:
    if steps.check_rate(pair).state == "failed":
        return of_rate(pair)
    if steps.check_gradients(pair).state == "failed":
        return of_gradients(pair)
    event = pair.ranks[0].first("optimizer")
    return cause(
        pair,
        "MC308",
        event["site"] if event else None,
        "the optimizer has other settings",
        "优化器的设置不同",
    )


def of_buffers(pair: Pair) -> Cause | None:
    if steps.check_gradients(pair).state == "failed":
        return of_gradients(pair)
    first = next(iter(wraps(pair)), None)
    return cause(
        pair,
        "MC303",
        first["site"] if first else None,
        "buffers are updated from one rank's share only",
        "缓冲区只按单个进程的数据更新",
    )


def of_evaluation(pair: Pair) -> Cause | None:
    bad = next(
        (e for e in samples.judged_evaluation(pair) if e.kind in {"padded", "doubled", "missing"}), None
    )
    if bad is None:
        return None
    site = loader_site(pair, bad.key)
    split = _other_split(pair)
    if split is not None and bad.kind != "padded":
        return split
    match bad.kind:
        case "padded":
            return cause(
                pair,
                "MC202",
                site,
                "the sampler repeats samples to give all ranks as many",
                "采样器重复样本以补齐各进程的数量",
            )
        case "missing":
            return cause(pair, "MC202", site, "samples are dropped from the evaluation", "评估丢掉了部分样本")
        case _:
            return cause(pair, "MC202", site, "ranks evaluate overlapping shares", "各进程评估的样本有重叠")


def print_site(pair: Pair, shape: str, rank: int = 0) -> str | None:
    for event in pair.ranks[rank].of("print"):
        if printed.read(event["text"]).shape == shape and event.get("site"):
            return str(event["site"])
    return None


def of_printed(pair: Pair) -> Cause | None:
    differences = outputs.compared_lines(pair).differences
    if not differences:
        return None
    for question, reason in (
        (steps.check_gradients, of_gradients),
        (ranks.check_ranks, of_ranks),
        (ranks.check_rank_buffers, of_rank_buffers),
        (samples.check_evaluated, of_evaluation),
        (steps.check_rate, of_rate),
        (steps.check_updates, of_updates),
        (steps.check_models, of_models),
        (samples.check_content, of_content),
    ):
        if question(pair).state == "failed":
            return reason(pair)
    site = print_site(pair, differences[0].shape)
    return cause(
        pair,
        "MC401",
        site,
        "the metric is not the whole set's: sums and counts are not totalled, or averages are averaged",
        "指标不是整个数据集的：各进程的和与计数没有汇总，或对平均值再取平均",
    )


def of_once(pair: Pair) -> Cause | None:
    shapes = outputs.repeated_lines(pair)
    if shapes:
        site = print_site(pair, shapes[0], 1)
        return cause(pair, "MC503", site, "printed on every rank", "每个进程都会打印")
    return cause(pair, "MC504", None, "a progress bar on every rank", "每个进程都显示进度条")


def _saved_by_others(pair: Pair) -> str | None:
    """Where a rank other than 0 saves what rank 0 does not."""
    own = {e["path"] for e in pair.ranks[0].of("save")}
    saves = [e for trace in pair.ranks[1:] for e in trace.of("save") if e["path"] not in own]
    return saves[0]["site"] if saves else None


def of_files(pair: Pair) -> Cause | None:
    bad = outputs.bad_files(pair)
    if not bad:
        return None
    event = bad[0]
    writes = {e["path"]: e for e in [*pair.ranks[0].of("write"), *pair.ranks[0].of("save")]}
    site = writes.get(event.get("path"), {}).get("site")
    if event["how"] == "missing":
        by_rank = _saved_by_others(pair)
        if by_rank is not None:
            return cause(
                pair, "MC501", by_rank, "each rank saves a checkpoint of its own", "每个进程各自保存检查点"
            )
        return cause(pair, "MC505", None, "the file is not written any more", "不再写出这个文件")
    text = " ".join(event["differences"])
    if "prefix" in text:
        return cause(
            pair,
            "MC501",
            site,
            "the wrapper's state is saved: its keys carry a prefix",
            "保存的是包装后的模型：键名带有前缀",
        )
    for question, reason in (
        (steps.check_gradients, of_gradients),
        (ranks.check_ranks, of_ranks),
        (ranks.check_rank_buffers, of_rank_buffers),
        (samples.check_evaluated, of_evaluation),
        (steps.check_models, of_models),
        (outputs.check_printed, of_printed),
        (steps.check_rate, of_rate),
        (outputs.check_writers, of_writers),
    ):
        if question(pair).state == "failed":
            return reason(pair)
    if event["how"] == "tensors":
        return cause(pair, "MC501", site, "the checkpoint holds something else", "检查点内容不同")
    return cause(
        pair,
        "MC402",
        site,
        "the rows are not those of the whole set, or in another order",
        "各行不是整个数据集的结果，或顺序不同",
    )


def of_writers(pair: Pair) -> Cause | None:
    shared = outputs.shared_writes(pair)
    if shared:
        path, _, event = shared[0]
        saved = any(e["path"] == path for trace in pair.ranks for e in trace.of("save"))
        code = "MC501" if saved else "MC505"
        return cause(pair, code, event.get("site"), "every rank writes it", "每个进程都会写这个文件")
    return cause(pair, "MC507", _stamp_site(pair), "each rank makes up its own name", "各进程各自生成名字")


def _stamp_site(pair: Pair) -> str | None:
    twins = outputs.other_folders(pair)
    if twins is None:
        return None
    return next((e.get("site") for e in pair.ranks[0].of("write") if e["path"] == twins[0]), None)


REASONS: dict[str, Callable[[Pair], Cause | None]] = {
    "steps": of_steps,
    "loss": of_loss,
    "gradients": of_gradients,
    "rate": of_rate,
    "trained": of_trained,
    "updates": of_updates,
    "buffers": of_buffers,
    "models": of_models,
    "ranks": of_ranks,
    "rank-buffers": of_rank_buffers,
    "dealt": of_dealing,
    "order": of_order,
    "content": of_content,
    "noise": of_noise,
    "evaluated": of_evaluation,
    "printed": of_printed,
    "once": of_once,
    "files": of_files,
    "writers": of_writers,
}
