#!/usr/bin/env python3
"""Step times of strategies against ddp's, in one run.

Every configuration trains a few steps in turn, several rounds of them, so that what the machine does
beside falls on all alike. Prints the median step of each over all rounds and its ratio to ddp's.

  bench/strategies.py --program build/release/bin/ringworld --data README.md
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

MODEL = ("--model gpt2 --vocabulary 50257 --sequence-length 64 --micro-batch 4 --threads 1 "
         "--progress none --clip-norm 1")
# What is asked for is the most that a step may take, in ddp's.
CONFIGURATIONS = [
    ("ddp", "--strategy ddp", None),
    ("zero1", "--strategy zero1", 1.03),
    ("zero2", "--strategy zero2", 1.05),
    ("fsdp", "--strategy fsdp", 1.10),
    ("ddp, recomputation", "--strategy ddp --checkpoint-activations 1", 1.35),
    ("ddp, offload optimizer", "--strategy ddp --offload optimizer", 1.15),
    ("ddp, bf16", "--strategy ddp --precision bf16", 1.30),
]


def steps(arguments, options):
    with tempfile.TemporaryDirectory() as directory:
        metrics = pathlib.Path(directory) / "metrics.jsonl"
        command = [*arguments.mpiexec.split(), "-n", str(arguments.ranks), arguments.program,
                   "train", "--data", arguments.data, *MODEL.split(),
                   "--global-batch", str(4 * arguments.ranks),
                   "--steps", str(arguments.steps + 1), "--metrics", str(metrics), *options.split()]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    # The first step makes what is made once.
    return [line["step_seconds"] for line in lines[2:]], lines[0]["conditions"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="configurations whose name contains this, beside ddp")
    arguments = parser.parse_args()

    chosen = [c for c in CONFIGURATIONS
              if c[0] == "ddp" or not arguments.only or arguments.only in c[0]]
    seconds = {name: [] for name, _, _ in chosen}
    for _ in range(arguments.rounds):
        for name, options, _ in chosen:
            measured, conditions = steps(arguments, options)
            seconds[name] += measured
    print(f"{conditions['ranks']} ranks on {conditions['cpus_allowed']} CPUs, "
          f"{conditions['threads_per_rank']} thread each, {conditions['mpi_library']}; "
          f"median of {arguments.rounds} x {arguments.steps} steps")
    control = statistics.median(seconds["ddp"])
    for name, _, bound in chosen:
        median = statistics.median(seconds[name])
        asked = f"  at most {bound:.2f}" if bound else ""
        print(f"{name:<24} {median:7.3f} s  {median / control:5.2f}{asked}")


if __name__ == "__main__":
    main()
