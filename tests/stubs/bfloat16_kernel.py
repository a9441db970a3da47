"""Run by test_bfloat16_arithmetic in a process of its own; in a file, since Triton reads kernels' source."""

import torch
import triton
import triton.language as tl

from stubs import bfloat16_arithmetic, interpreter

bfloat16_arithmetic.install()


@triton.jit
def mix(x, y, product, smaller, total, B: tl.constexpr):
    at = tl.arange(0, B)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(product + at, a * b - a)
    tl.store(smaller + at, (a < b).to(tl.int32))
    tl.store(total, tl.sum(a * b, axis=0))


x = torch.tensor([1.0, 2.0, -3.0, 0.5], dtype=torch.bfloat16)
y = torch.tensor([2.0, 1.0, 2.0, -4.0], dtype=torch.bfloat16)
product, smaller, total = torch.zeros_like(x), torch.zeros(4, dtype=torch.int32), torch.zeros(1)


def run():
    mix[(1,)](x, y, product, smaller, total, B=4)
    return product.tolist(), smaller.tolist(), total.tolist()


stock = run()
with interpreter.fast():
    run()
    fast = run()
print(stock, fast == stock)
