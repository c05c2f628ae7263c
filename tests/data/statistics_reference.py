"""Write statistics.json: reference values from SciPy, which is not installed with Loopwright.

python -m venv /tmp/scipy && /tmp/scipy/bin/pip install scipy
/tmp/scipy/bin/python tests/data/statistics_reference.py
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from scipy import stats


def main() -> None:
    values = [0.2, 0.35, 0.5, 0.55, 0.61, 0.7, 0.72, 0.9]
    t = stats.t.interval(0.95, len(values) - 1, loc=sum(values) / 8, scale=stats.sem(values))
    rows = {
        "beta_cdf": [
            [x, a, b, float(stats.beta.cdf(x, a, b))]
            for x in (0.01, 0.2, 0.5, 0.77, 0.999)
            for a, b in ((0.5, 0.5), (2, 5), (30, 1.5), (200, 180), (0.1, 3))
        ],
        "t_cdf": [
            [x, df, float(stats.t.cdf(x, df))]
            for x in (-8.0, -1.3, 0.0, 0.4, 2.5, 30.0)
            for df in (1, 2, 9, 40, 1000)
        ],
        "t_quantile": [
            [p, df, float(stats.t.ppf(p, df))]
            for p in (0.01, 0.3, 0.9, 0.975, 0.9995)
            for df in (1, 2, 9, 40, 1000)
        ],
        "wilson": [
            [k, n, *map(float, stats.binomtest(k, n).proportion_ci(method="wilson"))]
            for k, n in ((0, 10), (10, 10), (1, 20), (53, 60), (197, 200), (500, 1000))
        ],
        "binomial_upper": [
            [k, n, d, float(stats.beta.ppf(1 - d, k + 1, n - k))]
            for k, n in ((0, 29), (1, 46), (2, 61), (0, 59), (30, 100))
            for d in (0.05, 0.10)
        ],
        "majority_error": [
            [e, icc, n, _majority(e, icc, n)]
            for e in (0.05, 0.15, 0.4)
            for icc in (0.0, 0.3, 0.47, 0.78)
            for n in (3, 7, 61)
        ],
        "mean": {"values": values, "low": float(t[0]), "high": float(t[1])},
    }
    path = Path(__file__).with_name("statistics.json")
    path.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def _majority(error: float, icc: float, n: int) -> float:
    if icc == 0:
        return float(stats.binom.sf(n // 2, n, error))
    a, b = error * (1 - icc) / icc, (1 - error) * (1 - icc) / icc
    return math.fsum(float(stats.betabinom.pmf(k, n, a, b)) for k in range(n // 2 + 1, n + 1))


if __name__ == "__main__":
    main()
