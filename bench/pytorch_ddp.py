#!/usr/bin/env python3
"""The same training step in PyTorch, for scale: GPT-2 124M, DDP over gloo, one thread a rank.

Prints the median tokens/s of the steps after the first. Needs PyTorch (Debian: python3-torch).

    python3 bench/pytorch_ddp.py --ranks 2 --steps 8
"""
import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 50257, 1024, 768, 12, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.mlp_c_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, time_, _ = x.shape
        heads = (batch, time_, HEADS, WIDTH // HEADS)
        q, k, v = (t.view(heads).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(WIDTH, 2))
        scores = q @ k.transpose(2, 3) / (WIDTH // HEADS) ** 0.5
        future = torch.ones(time_, time_, dtype=torch.bool).triu(1)
        attended = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        x = x + self.c_proj(attended.transpose(1, 2).reshape(batch, time_, WIDTH))
        return x + self.mlp_c_proj(nn.functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks, self.ln_f = nn.Sequential(*[Block() for _ in range(LAYERS)]), nn.LayerNorm(WIDTH)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        logits = self.ln_f(self.blocks(x)) @ self.wte.weight.T
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(rank, options):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", rank=rank, world_size=options.ranks)
    model = nn.parallel.DistributedDataParallel(Gpt2())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    rates = []
    for _ in range(options.steps):
        start = time.perf_counter()
        tokens = torch.randint(VOCABULARY, (options.micro_batch, options.sequence_length + 1))
        model(tokens[:, :-1], tokens[:, 1:]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        trained = options.ranks * options.micro_batch * options.sequence_length
        rates.append(trained / (time.perf_counter() - start))
    if rank == 0:
        print(f"PyTorch {torch.__version__}, DDP over gloo, {options.ranks} ranks: "
              f"{statistics.median(rates[1:]):.0f} tokens/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--sequence-length", type=int, default=64)
    parser.add_argument("--port", type=int, default=29511)
    arguments = parser.parse_args()
    mp.spawn(train, (arguments,), nprocs=arguments.ranks)
