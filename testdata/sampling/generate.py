"""Writes rows.json: options, a row of logits, and the exact final distribution.

The distribution is computed here in double precision, by the definitions and nothing else: no
shortcuts, full sorts. Published values stand in published.json and are written by hand.

    python3 generate.py
"""

import json
import math
import random
import struct


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def normalised(ps):
    total = math.fsum(ps.values())
    return {i: p / total for i, p in ps.items() if p > 0}


def ordered(ps):
    return sorted(ps, key=lambda i: (-ps[i], i))


def keep(ps, ids):
    return normalised({i: ps[i] for i in ids})


def entropy(ps):
    return -math.fsum(p * math.log(p) for p in ps.values())


def prefix(ps, order, mass):
    total, kept = 0.0, []
    for i in order:
        kept.append(i)
        total += ps[i]
        if total >= mass:
            break
    return kept


def reaching(ps, threshold, min_keep):
    order = ordered(ps)
    n = max(sum(p >= threshold for p in ps.values()), min_keep, 1)
    return keep(ps, order[:n])


def power(ps, t):
    if t < 0.01:
        return {ordered(ps)[0]: 1.0}
    top = max(ps.values())
    return normalised({i: (p / top) ** (1 / t) for i, p in ps.items()})


def softmax(logits, o, late):
    top = max(logits.values())
    t = 1.0 if late else o.get("temperature", 1.0)
    s = o.get("smoothing_factor", 0.0)
    curve = o.get("smoothing_curve", 1.0)
    if t < 0.01:
        return {min(i for i in logits if logits[i] == top): 1.0}
    def weight(d):
        if s > 0:
            return math.exp(s / t * (-(3 - curve) / 2 * d * d + (curve - 1) / 2 * d**3))
        return math.exp(d / t)
    return normalised({i: weight(l - top) for i, l in logits.items()})


def tail_free(ps, z, min_keep):
    order = [i for i in ordered(ps) if ps[i] >= 1e-8]
    bends = [abs(ps[a] - 2 * ps[b] + ps[c]) for a, b, c in zip(order, order[1:], order[2:])]
    if len(order) < 3 or sum(bends) == 0:
        return ps
    total, n = 0.0, 0
    for bend in bends:
        total += bend / sum(bends)
        if total > z:
            break
        n += 1
    return keep(ps, ordered(ps)[: max(n + 1, min_keep)])


def exclude_top(ps, q, threshold, ignored):
    likely = [i for i in ordered(ps) if ps[i] >= threshold and i not in ignored][:-1]
    x = math.fsum(ps[i] for i in likely)
    if not likely:
        return ps
    return normalised({i: p * (1 - q if i in likely else 1 + q * x / (1 - x)) for i, p in ps.items()})


def penalised(logits, o, history):
    logits = dict(logits)
    n = o.get("penalty_range", len(history))
    decay = o.get("penalty_decay", 0)
    met = set()
    for d, i in enumerate(reversed(history)):
        if d >= n + decay or i not in logits:
            continue
        w = 1.0 if decay == 0 or d <= n else 1 - (d - n) / decay
        if i not in met:
            met.add(i)
            factor = 1 + (o.get("repetition_penalty", 1.0) - 1) * w
            logits[i] = logits[i] / factor if logits[i] > 0 else logits[i] * factor
            logits[i] -= o.get("presence_penalty", 0.0) * w
        logits[i] -= o.get("frequency_penalty", 0.0) * w
    return logits


def distribution(logits, o, history):
    logits = penalised(logits, o, history)
    for i, bias in o.get("logit_bias", {}).items():
        logits[int(i)] += bias
    logits = {i: l for i, l in logits.items() if i not in o.get("deny", [])}
    if "allow" in o:
        logits = {i: l for i, l in logits.items() if i in o["allow"]}
    dynamic = o.get("max_temp", 0.0) > o.get("min_temp", 0.0)
    least = o.get("min_keep", 1)
    ps = softmax(logits, o, o.get("temperature_last", False) or dynamic)
    if o.get("top_n_sigma", 0) > 0:
        logs = [math.log(p) for p in ps.values()]
        mean = math.fsum(logs) / len(logs)
        sigma = math.sqrt(math.fsum((l - mean) ** 2 for l in logs) / len(logs))
        ps = reaching(ps, max(ps.values()) * math.exp(-o["top_n_sigma"] * sigma - 1e-12), least)
    if o.get("top_k", 0) > 0:
        ps = keep(ps, ordered(ps)[: max(o["top_k"], least)])
    if 0 < o.get("top_p", 0) < 1:
        n = len(prefix(ps, ordered(ps), o["top_p"]))
        ps = keep(ps, ordered(ps)[: max(n, least)])
    if o.get("top_a", 0) > 0:
        ps = reaching(ps, o["top_a"] * max(ps.values()) ** 2, least)
    if 0 < o.get("min_p", 0) < 1:
        ps = reaching(ps, o["min_p"] * max(ps.values()), least)
    if 0 < o.get("tfs", 0) < 1:
        ps = tail_free(ps, o["tfs"], least)
    if 0 < o.get("typical", 0) < 1:
        h = entropy(ps)
        order = sorted(ps, key=lambda i: (abs(-math.log(ps[i]) - h), -ps[i], i))
        n = len(prefix(ps, order, o["typical"]))
        ps = keep(ps, order[: max(n, least)])
    if o.get("epsilon_cutoff", 0) > 0:
        ps = reaching(ps, o["epsilon_cutoff"], least)
    if o.get("eta_cutoff", 0) > 0:
        e = o["eta_cutoff"]
        ps = reaching(ps, min(e, math.sqrt(e) * math.exp(-entropy(ps))), least)
    if o.get("mirostat", False):
        ps = reaching(ps, 2 ** (-2 * o.get("mirostat_tau", 1.5)), least)
    if dynamic:
        h, n = entropy(ps), len(ps)
        share = h / math.log(n) if n > 1 else 0.0
        t = o["min_temp"] + (o["max_temp"] - o["min_temp"]) * share ** o.get("temp_exponent", 1.0)
        ps = power(ps, t)
    elif o.get("temperature_last", False):
        ps = power(ps, o.get("temperature", 1.0))
    if o.get("xtc_probability", 0) > 0:
        ps = exclude_top(ps, o["xtc_probability"], o.get("xtc_threshold", 0.1), o.get("xtc_ignore", []))
    if 0 <= o.get("adaptive_target", 1.0) < 1:
        # The target of the first token is the one that was asked for.
        far = {i: abs(p - o["adaptive_target"]) / 0.3 for i, p in ps.items()}
        ps = normalised({i: math.exp(5 - 10 * x * x / (1 + x)) for i, x in far.items()})
    return ps


def settings(rng):
    single = [
        {}, {"temperature": 0.5}, {"temperature": 1.75}, {"temperature": 0.0}, {"top_k": 1}, {"top_k": 5},
        {"top_p": 0.75}, {"top_a": 0.375}, {"min_p": 0.125}, {"tfs": 0.875}, {"typical": 0.625},
        {"epsilon_cutoff": 0.03125}, {"eta_cutoff": 0.25}, {"top_n_sigma": 1.0}, {"mirostat": True},
        {"smoothing_factor": 0.25}, {"smoothing_factor": 0.25, "smoothing_curve": 2.5, "temperature": 0.75},
        {"temperature": 0.75, "temperature_last": True, "top_p": 0.875},
        {"temperature": 0.0, "temperature_last": True},
        {"min_temp": 0.5, "max_temp": 1.5}, {"min_temp": 0.25, "max_temp": 2.0, "temp_exponent": 2.0, "top_k": 8},
        {"xtc_probability": 0.5}, {"xtc_probability": 1.0, "xtc_threshold": 0.0625},
        {"xtc_probability": 0.25, "xtc_threshold": 0.0625, "xtc_ignore": [0, 3]},
        {"repetition_penalty": 1.5}, {"presence_penalty": 0.5, "frequency_penalty": 0.25},
        {"repetition_penalty": 2.0, "penalty_range": 2, "penalty_decay": 4},
        {"logit_bias": {"2": 1.5, "5": -2.0}}, {"deny": [0, 1]}, {"allow": [4, 9, 2]},
        {"min_keep": 4, "top_p": 0.125}, {"min_keep": 3, "min_p": 0.875, "typical": 0.125},
    ]
    pool = {
        "temperature": [0.5, 0.75, 1.5], "top_k": [4, 9, 15], "top_p": [0.625, 0.875, 0.96875],
        "min_p": [0.03125, 0.0625], "top_a": [0.125, 0.25], "tfs": [0.75, 0.9375], "typical": [0.75, 0.9375],
        "xtc_probability": [0.25, 0.75], "mirostat": [True], "smoothing_factor": [0.125],
        "repetition_penalty": [1.25], "temperature_last": [True], "top_n_sigma": [1.5], "eta_cutoff": [0.125],
    }
    for _ in range(32):
        names = rng.sample(sorted(pool), rng.randint(2, 5))
        single.append({name: rng.choice(pool[name]) for name in names})
    # Behind all others, whose rows stay what they are.
    return single + [
        {"adaptive_target": 0.25}, {"adaptive_target": 0.0}, {"adaptive_target": 0.5, "min_p": 0.0625},
        {"adaptive_target": 0.625, "top_k": 5, "xtc_probability": 0.5}, {"adaptive_target": 1.0},
        {"min_keep": 4, "top_k": 2}, {"min_keep": 3, "top_k": 1, "top_p": 0.125},
    ]


def main():
    rng = random.Random(20250101)
    cases = []
    for options in settings(rng):
        # Halves and eighths are the same number in single and in double precision.
        row = [f32(round(rng.gauss(0, 1.6) * 64) / 64) for _ in range(20)]
        history = [rng.randrange(24) for _ in range(10)]
        ps = distribution(dict(enumerate(row)), options, history)
        expected = [[i, ps[i]] for i in ordered(ps)]
        cases.append({"options": options, "logits": row, "history": history, "expected": expected})
    with open("rows.json", "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
