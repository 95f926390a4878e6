#!/usr/bin/env python3
"""Writes figures.json: the statistics of some samples by numpy and scipy, for crates/report/src/statistics/tests.rs.

Ran with Python 3.11, numpy 2.4.6 and scipy 1.17.1: pip install numpy scipy; python3 record.py
"""

import json
import pathlib

import numpy as np
from scipy import stats

RESAMPLES = 200_000


def tail(n):
    """The expanded percentile interval's tail (Hesterberg 2015)."""
    return float(stats.norm.cdf(-np.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 1)))


def interval(data, statistic, n, paired=False):
    level = 1 - 2 * tail(n)
    result = stats.bootstrap(
        data,
        statistic,
        paired=paired,
        vectorized=True,
        confidence_level=level,
        n_resamples=RESAMPLES,
        batch=10_000,
        method="percentile",
        rng=np.random.default_rng(7),
    )
    low, high = result.confidence_interval
    return [float(low), float(high)]


def ratio(a, b, axis):
    return np.median(a, axis=axis) / np.median(b, axis=axis)


def main():
    rng = np.random.default_rng(42)
    sets = {
        "one": [3.5],
        "two": [3.5, 2.0],
        "three": [3.5, 2.0, 9.0],
        "normal 6": rng.normal(10, 1, 6),
        "normal 7": rng.normal(10, 1, 7),
        "normal 25": rng.normal(10, 1, 25),
        "skewed 40": rng.lognormal(1, 0.7, 40),
        "ties 12": rng.integers(1, 5, 12).astype(float),
    }
    estimates = []
    for name, values in sets.items():
        values = np.asarray(values)
        estimates.append(
            {
                "name": name,
                "values": values.tolist(),
                "median": float(np.median(values)),
                "percentiles": [[p, float(np.percentile(values, p))] for p in (0, 1, 25, 50, 90, 99.9, 100)],
                "interval": interval((values,), np.median, len(values)) if len(values) >= 6 else None,
            }
        )
    ratios = []
    for name, n, shift, drift in (("equal", 10, 1.0, 0.0), ("drift", 12, 1.05, 0.2), ("twice", 31, 2.0, 0.1)):
        common = 1 + drift * rng.uniform(-1, 1, n)
        b = 4 * common * rng.normal(1, 0.01, n)
        a = 4 * shift * common * rng.normal(1, 0.01, n)
        ratios.append(
            {
                "name": name,
                "a": a.tolist(),
                "b": b.tolist(),
                "ratio": float(np.median(a) / np.median(b)),
                "by_round": interval((a, b), ratio, n, paired=True),
                "apart": interval((a, b), ratio, n),
            }
        )
    tails = [[n, tail(n)] for n in (6, 7, 10, 30, 1000)]
    here = pathlib.Path(__file__).parent
    figures = {"tails": tails, "estimates": estimates, "ratios": ratios}
    here.joinpath("figures.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
