#!/usr/bin/env python3
"""Writes answers.json: the results of PyPI's MLRsearch on the loss curves of curves.json, for crates/lab/tests/mlrsearch.rs.

Ran with Python 3.11 and MLRsearch 1.2.1: pip install MLRsearch==1.2.1; python3 record.py
"""

import json
import math
import pathlib
from importlib.metadata import version

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

MASK = (1 << 64) - 1


def unit(seed, n):
    """A pseudo-random number from 0 to 1 (splitmix64); mlrsearch.rs has the same."""
    z = (seed * 0x9E3779B97F4A7C15 + n * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return ((z ^ (z >> 31)) >> 11) / (1 << 53)


class Curve(AbstractMeasurer):
    """A switch with this loss curve; mlrsearch.rs has the same."""

    def __init__(self, curve):
        self.curve = curve
        self.trials = 0

    def loss(self, load):
        points = self.curve["points"]
        if load <= points[0][0]:
            return points[0][1]
        for (x0, y0), (x1, y1) in zip(points, points[1:]):
            if load <= x1:
                return y0 + (y1 - y0) * (load - x0) / (x1 - x0)
        return points[-1][1]

    def measure(self, intended_duration, intended_load):
        self.trials += 1
        curve, n = self.curve, self.trials
        sent = math.floor(intended_load * intended_duration + 0.5)
        jitter = 1.0 + curve.get("jitter", 0.0) * (2.0 * unit(curve.get("seed", 0), n) - 1.0)
        loss = self.loss(intended_load * jitter)
        if n % curve.get("outage_every", 1 << 60) == 0:
            loss = max(loss, curve["outage_loss"])
        lost = math.floor(sent * loss + 0.5)
        if unit(curve.get("seed", 0) + 1, n) < sent * curve.get("stray", 0.0):
            lost += 1
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=sent,
            forwarding_count=sent - lost,
        )


def main():
    here = pathlib.Path(__file__).parent
    given = json.loads(here.joinpath("curves.json").read_text())
    answers = []
    for curve in given["curves"]:
        for goals in given["goals"]:
            # If one lost packet decides, the answer is chance.
            if goals["name"] not in curve.get("goals", [goals["name"]]):
                continue
            goal = {key: value for key, value in goals.items() if key not in ("name", "loss_ratios")}
            wanted = [SearchGoal(loss_ratio=ratio, fail_fast=False, **goal) for ratio in goals["loss_ratios"]]
            config = Config(
                goals=wanted,
                min_load=given["min_load"],
                max_load=given["max_load"],
                search_duration_max=1e6,
                warmup_duration=None,
            )
            measurer = Curve(curve)
            result = MultipleLossRatioSearch(config=config).search(measurer=measurer, debug=lambda _: None)
            for one in wanted:
                found = result[one]
                lower, upper = found.relevant_lower_bound, found.relevant_upper_bound
                answers.append(
                    {
                        "curve": curve["name"],
                        "goals": goals["name"],
                        "loss_ratio": one.loss_ratio,
                        "lower": lower and float(lower),
                        "upper": upper and float(upper),
                        "throughput": lower and float(found.conditional_throughput),
                        "trials": measurer.trials,
                    }
                )
    text = json.dumps({"package": f"MLRsearch {version('MLRsearch')}", "answers": answers}, indent=1)
    here.joinpath("answers.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
