"""Nodes and weights on [0, 1]: ∫ g ≈ Σ weight · g(node)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

Rule = Literal["gauss-legendre", "midpoint", "trapezoid"]


def rule(name: Rule, steps: int) -> tuple[Float[ndarray, " step"], Float[ndarray, " step"]]:
    """`steps` nodes of the rule and their weights, which sum to 1."""
    if name == "gauss-legendre":
        nodes, weights = np.polynomial.legendre.leggauss(steps)
        return (1 + nodes) / 2, weights / 2
    if name == "midpoint" or steps == 1:
        return (np.arange(steps) + 0.5) / steps, np.full(steps, 1 / steps)
    weights = np.full(steps, 1 / (steps - 1))
    weights[[0, -1]] /= 2
    return np.linspace(0, 1, steps), weights
