"""prototype"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...defenses.layout import Layout
from .convolved import Stage
from .grouped import GroupShape
from .local_steps import LocalSteps
from .objective import Matching, Products
from .parts import along, compare
from .target import Target


class _Convolution:
    def __init__(self, shape: GroupShape, T: int, where: Tensor) -> None:
        self.shape, self.T = shape, T
        own = torch.eye(shape.real).view(shape.real, shape.fold, shape.fold, -1).permute(0, 3, 1, 2)
        self.fold = F.pad(own, (0, 0, 0, 0, 0, 0, 0, shape.channels - shape.real)).to(where)

    def weights(self, weight: Tensor) -> Tensor:
        """(T, O, C, kh, kw)."""
        return self.shape.spread(weight).flatten(0, 1).contiguous(memory_format=torch.channels_last)

    def plain(self, w: Tensor) -> Tensor:
        """Back from there, (T, -1)"""
        shape, layer = self.shape, self.shape.layer
        s, (h, k) = shape.fold, shape.kernel
        own = w.unflatten(0, (self.T, -1))[:, : layer.out_channels, : shape.real]
        parted = own.unflatten(2, (s, s, layer.in_channels)).movedim((2, 3), (-3, -1))
        # (T,O,C,h,s,w,s)
        whole = parted.flatten(-2).flatten(-3, -2)
        kh, kw = layer.kernel_size
        return whole[..., :kh, :kw].flatten(1)

    def bias(self, b):
        return self.shape.fill(b).flatten()

    def enter(self, images: Tensor) -> Tensor:
        (T, n), s = images.shape[:2], self.shape.fold
        (top, left), (height, width) = self.shape.around, self.shape.size
        high, wide = self.shape.entered
        padded = F.pad(images, (left, wide * s - width - left, top, high * s - height - top))
        folded = F.conv2d(padded.flatten(0, 1), self.fold, None, s).unflatten(0, (T, n))
        return folded.permute(1, 3, 4, 0, 2).flatten(3).permute(0, 3, 1, 2)

    def leave(self, x: Tensor) -> Tensor:
        candidates = self.T
        s, (top, left), (height, width) = self.shape.fold, self.shape.around, self.shape.size
        own = x.permute(0, 2, 3, 1).unflatten(3, (candidates, -1))[..., : self.shape.real]
        n, high, wide = own.shape[:3]
        parted = own.reshape(n, high, wide, candidates, s, s, -1).permute(3, 0, 6, 1, 4, 2, 5)
        whole = parted.reshape(candidates, n, -1, high * s, wide * s)
        below, right = max(0, top + height - high * s), max(0, left + width - wide * s)
        if below or right:
            whole = F.pad(whole, (0, right, 0, below))
        return whole[..., top : top + height, left : left + width]

    def rows(self, x: Tensor) -> Tensor:
        """(T, n, C*h*w) in network's order"""
        own = x.unflatten(1, (self.T, -1))[:, :, : self.shape.layer.out_channels]
        return own.transpose(0, 1).flatten(2)

    def images(self, rows: Tensor) -> Tensor:
        own = rows.unflatten(2, (self.shape.layer.out_channels, *self.shape.out))
        full = F.pad(own, (0, 0, 0, 0, 0, self.shape.outputs - own.shape[2]))
        return full.permute(1, 3, 4, 0, 2).flatten(3).permute(0, 3, 1, 2)

    def forth(self, x, w, b):
        shape = self.shape
        return F.conv2d(x, w, b, shape.stride, shape.padding, shape.layer.dilation, self.T)

    def back(self, e, x, w, wanted):
        shape = self.shape
        geometry = (shape.stride, shape.padding, shape.layer.dilation, False, (0, 0), self.T)
        return torch.ops.aten.convolution_backward(e, x, w, [len(w)], *geometry, wanted)


class _Linear:
    def __init__(self, before=None):
        self.before = before

    def weights(self, w):
        return w

    def plain(self, w):
        return w.flatten(1)

    def bias(self, b):
        return b

    def forth(self, x, w, b):
        if self.before is not None:
            x = self.before.rows(x)
        return x @ w.mT if b is None else torch.baddbmm(b[:, None], x, w.mT)

    def back(self, e, x, w, wanted):
        if self.before is not None and wanted[1]:
            x = self.before.rows(x)
        pulled = None
        if wanted[0]:
            pulled = torch.bmm(e, w)
            if self.before is not None:
                pulled = self.before.images(pulled)
        return pulled, torch.bmm(e.mT, x) if wanted[1] else None, e.sum(1) if wanted[2] else None


@dataclass
class _Step:
    w: list
    x: list
    e: list
    grown: list
    kept: list
    p: Tensor


class GroupedSteps:
    def __init__(self, stages: Sequence[Stage], constants, layout, targets: Sequence[Target], labels: Tensor, matching):
        first = targets[0]
        self.T = T = len(targets)
        self.recipe = first.recipe
        self.layout, self.matching, self.stages = layout, matching, stages
        where = first.weights
        self.start = torch.stack([t.weights for t in targets])
        self.observed = layout.split(torch.stack([t.gradient for t in targets]))
        self.mean, self.std = (c.to(where) for c in constants)
        self.labels = labels
        self.curves = [s.curve for s in stages if s.curve is not None]
        self.parts = []
        for k, s in enumerate(stages):
            if isinstance(s.layer, nn.Conv2d):
                self.parts.append(_Convolution(GroupShape(s.layer, s.takes[0], s.takes[1], not k), T, where))
            else:
                self.parts.append(_Linear(self.parts[-1] if isinstance(self.parts[-1], _Convolution) else None))

    def _split(self, flat):
        named = self.layout.split(flat)
        return [
            (part.weights(named[s.weight]), None if s.bias is None else part.bias(named[s.bias]))
            for part, s in zip(self.parts, self.stages)
        ]

    def _join(self, found):
        named = {}
        for part, s, (w, b) in zip(self.parts, self.stages, found):
            named[s.weight] = part.plain(w)
            if s.bias is not None:
                named[s.bias] = b.view(self.T, -1)[:, : s.layer.weight.shape[0]]
        return torch.cat([named[n] for n in self.layout.names], 1)

    def __call__(self, images: Tensor):
        T = self.T
        walk = LocalSteps(self.recipe, self.layout, self.start)
        normal = (images - self.mean) / self.std
        steps, first = [], 0
        for size in self.recipe.sizes:
            step, g = self._gradient(walk.weights, normal[:, first : first + size], self.labels[:, first : first + size])
            steps.append(step)
            walk.forward(g)
            first += size
        scale = -1 / self.recipe.scale
        update = (walk.weights - self.start) * scale
        own = self.layout.split(update)
        compared = [compare(g.flatten(1), h.flatten(1), False) for g, h in zip(own.values(), self.observed.values())]
        p = Products(torch.stack([d for d, _, _ in compared], 1), torch.stack([s for _, s, _ in compared], 1),
                     torch.stack([h.flatten(1).square().sum(1) for h in self.observed.values()], 1))
        value, partial = self.matching.derivatives(p)
        v = [along(g.flatten(1), h.flatten(1), (a, b, None)) for g, h, a, b in
             zip(own.values(), self.observed.values(), partial.dot.unbind(1), partial.square.unbind(1))]
        cot = torch.cat(v, 1) * scale
        backward, parts = walk.backward(), []
        for k, step in reversed(list(enumerate(steps))):
            of_g, cot = backward(cot)
            of_x, of_w = self._curved(step, of_g, k > 0)
            if of_w is not None:
                cot = cot + of_w
            parts.append(of_x)
        return value, torch.cat(parts[::-1], 1) / self.std

    def _gradient(self, weights, images, labels):
        T, n = labels.shape
        ws = self._split(weights)
        last = len(ws) - 1
        x = self.parts[0].enter(images)
        xs, kept = [], []
        for part, (w, b), act in zip(self.parts, ws, self.curves):
            xs.append(x)
            x, own = act.value(part.forth(x, w, b))
            kept.append(own)
        xs.append(x)
        z = self.parts[-1].forth(x, *ws[-1])
        p = z.softmax(2)
        e = p.clone()
        e.scatter_add_(2, labels[..., None], e.new_full((), -1).expand(T, n, 1))
        e.div_(n)
        es, grown, found = [None] * (last + 1), [None] * (last + 1), [None] * (last + 1)
        for k in range(last, -1, -1):
            es[k] = e
            below, gw, gb = self.parts[k].back(e, xs[k], ws[k][0], [k > 0, True, ws[k][1] is not None])
            found[k] = (gw, gb)
            if k:
                grown[k - 1] = below
                e = self.curves[k - 1].pulled(below, kept[k - 1])
        return _Step(ws, xs, es, grown, kept, p), self._join(found)

    def _curved(self, s: _Step, v: Tensor, wanted: bool):
        vs = self._split(v)
        last = len(vs) - 1
        n = s.p.shape[1]
        moved = [None]
        ts = []
        for k, part in enumerate(self.parts):
            t = part.forth(s.x[k], *vs[k])
            if k:
                t = t.add_(part.forth(moved[k], s.w[k][0], None))
            ts.append(t)
            if k < last:
                moved.append(self.curves[k].pulled(t, s.kept[k]))
        change = s.p * (ts[-1] - (s.p * ts[-1]).sum(2, keepdim=True)) / n
        found = [None] * (last + 1)
        for k in range(last, -1, -1):
            part = self.parts[k]
            back, ow, ob = part.back(change, s.x[k], s.w[k][0], [True, wanted, wanted and s.w[k][1] is not None])
            more, mw, _ = part.back(s.e[k], moved[k] if k else s.x[k], vs[k][0], [True, wanted and k > 0, False])
            back = back.add_(more)
            if wanted:
                found[k] = (ow if not k else ow.add_(mw), ob)
            if k:
                change = self.curves[k - 1].bent(back, ts[k - 1], s.grown[k - 1], s.kept[k - 1])
        return self.parts[0].leave(back), self._join(found) if wanted else None
