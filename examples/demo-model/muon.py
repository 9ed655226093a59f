"""Muon: momentum whose matrices are orthogonalized by a Newton-Schulz iteration.

Matrices of one shape are stacked, so that a step is a few batched products.
The iteration bears bfloat16, where that is faster.
"""

import torch


def orthogonalize(g, dtype, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = (g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)).to(dtype)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(steps):
        s = x @ x.mT
        x = a * x + (b * s + c * (s @ s)) @ x
    return (x.mT if tall else x).float()


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.95, weight_decay=0.0, dtype=torch.float32):
        self.dtype = dtype
        super().__init__(list(params), dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for p in group["params"]:
                if p.grad is not None:
                    shapes.setdefault(tuple(p.shape), []).append(p)
            for shape, params in shapes.items():
                updates = []
                for p in params:
                    state = self.state[p]
                    if "momentum" not in state:
                        state["momentum"] = torch.zeros_like(p)
                    m = state["momentum"].lerp_(p.grad, 1 - group["momentum"])
                    updates.append(p.grad.lerp(m, group["momentum"]))
                scale = 0.2 * max(shape) ** 0.5  # the size of an AdamW step
                for p, u in zip(params, orthogonalize(torch.stack(updates), self.dtype)):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(u, alpha=-group["lr"] * scale)
