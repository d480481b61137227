#!/usr/bin/env python3
"""Step times of strategies against ddp's, in one run.

Every configuration trains a few steps in turn, several rounds of them, so that what the machine does
beside falls on all alike. Prints the median step of each over all rounds and its ratio to that of
ddp at the same global batch. Of a pipeline's step the bubble is taken off first: what it does in
m + p - 1 micro-batches' time, for m micro-batches on p stages, counts as m.

  bench/strategies.py --program build/release/bin/ringworld --data README.md
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

MODEL = ("--model gpt2 --vocabulary 50257 --sequence-length 64 --threads 1 --progress none "
         "--clip-norm 1")


class Configuration:
    """A row. `bound` is the most that a step may take, in those of ddp at the same global batch; ddp
    has none. `batch` is the global batch, in sequences for each rank."""

    def __init__(self, name, options, bound, batch=4, micro_batch=4):
        self.name, self.options, self.bound = name, options, bound
        self.batch, self.micro_batch = batch, micro_batch

    @property
    def is_control(self):
        return self.bound is None


# Two tensor ranks have one micro-batch of 8 together where ddp's have one of 4 each. A pipeline of two
# stages has 8 micro-batches, of which ddp's ranks have 4 each.
CONFIGURATIONS = [
    Configuration("ddp", "--strategy ddp", None),
    Configuration("zero1", "--strategy zero1", 1.03),
    Configuration("zero2", "--strategy zero2", 1.05),
    Configuration("fsdp", "--strategy fsdp", 1.10),
    Configuration("ddp, recomputation", "--strategy ddp --checkpoint-activations 1", 1.35),
    Configuration("ddp, offload optimizer", "--strategy ddp --offload optimizer", 1.15),
    Configuration("ddp, bf16", "--strategy ddp --precision bf16", 1.30),
    Configuration("tp", "--mesh tp={ranks}", 1.15, micro_batch=8),
    Configuration("tp, sequence parallel", "--mesh tp={ranks} --sequence-parallel", 1.15,
                  micro_batch=8),
    Configuration("ddp, accumulated", "--strategy ddp", None, batch=16),
    Configuration("pp", "--mesh pp={ranks}", 1.10, batch=16),
]


def steps(arguments, chosen):
    with tempfile.TemporaryDirectory() as directory:
        metrics = pathlib.Path(directory) / "metrics.jsonl"
        command = [*arguments.mpiexec.split(), "-n", str(arguments.ranks), arguments.program,
                   "train", "--data", arguments.data, *MODEL.split(),
                   "--global-batch", str(chosen.batch * arguments.ranks),
                   "--micro-batch", str(chosen.micro_batch),
                   "--steps", str(arguments.steps + 1), "--metrics", str(metrics),
                   *chosen.options.format(ranks=arguments.ranks).split()]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    # The first step makes what is made once.
    return [line["step_seconds"] for line in lines[2:]], lines[0]["conditions"]


def share_of_work(chosen, ranks):
    """Of a step's time, what is not the pipeline's bubble."""
    if "pp=" not in chosen.options:
        return 1
    micro_batches = chosen.batch * ranks // chosen.micro_batch
    return micro_batches / (micro_batches + ranks - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="configurations whose name contains this, and their controls")
    arguments = parser.parse_args()

    asked_for = [c for c in CONFIGURATIONS if not arguments.only or arguments.only in c.name]
    controls = {c.batch: c for c in CONFIGURATIONS if c.is_control}
    chosen = [c for c in CONFIGURATIONS
              if c in asked_for or c in (controls[a.batch] for a in asked_for)]
    seconds = {c: [] for c in chosen}
    for _ in range(arguments.rounds):
        for c in chosen:
            measured, conditions = steps(arguments, c)
            seconds[c] += measured
    print(f"{conditions['ranks']} ranks on {conditions['cpus_allowed']} CPUs, "
          f"{conditions['threads_per_rank']} thread each, {conditions['mpi_library']}; "
          f"median of {arguments.rounds} x {arguments.steps} steps")
    medians = {c: statistics.median(seconds[c]) for c in chosen}
    for c in chosen:
        share = share_of_work(c, arguments.ranks)
        ratio = medians[c] * share / medians[controls[c.batch]]
        asked = f"  at most {c.bound:.2f}" if c.bound else ""
        bubble = f", its bubble of {1 - share:.1%} taken off" if share < 1 else ""
        print(f"{c.name:<24} {medians[c]:7.3f} s  {ratio:5.2f}{asked}{bubble}")


if __name__ == "__main__":
    main()
