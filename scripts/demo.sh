#!/usr/bin/env bash
# From a fresh clone to a GPT in training on 4 MPI ranks, with the proof that its gradients are right.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

install_dependencies
configure
say "Building ringworld"
cmake --build --preset release --target ringworld
ringworld=build/release/bin/ringworld

# Under mpiexec the program sees a pipe, not the terminal.
progress=lines
if [ -t 1 ]; then
  progress=bar
  COLUMNS=$(tput cols 2>/dev/null || echo 80)
  export COLUMNS
fi
say "Training a small GPT on this repository's own text: 4 MPI processes, one virtual GPU each"
launch 4 "$ringworld" train --model gpt2-tiny \
  --data README.md CONTRIBUTING.md docs runtime collectives models parallel training cli \
  --strategy ddp --steps 400 --global-batch 16 --micro-batch 4 --sequence-length 64 \
  --learning-rate 3e-3 --warmup-steps 50 --bucket 512KiB --validation-interval 100 --progress "$progress"

say "Do 4 ranks compute what one process would?"
launch 4 "$ringworld" verify --strategy ddp --bucket 512KiB

say "Next"
cat <<TEXT
  export PATH=\$PWD/build/release/bin:\$PATH
  mpiexec -n 3 ringworld verify --accumulation 3             other world sizes, with accumulation
  mpiexec -n 4 ringworld verify --plant tensor=h.0.mlp.c_fc.weight,factor=2,rank=1
                                                             plant a fault and see it found
  mpiexec -n 2 ringworld train --data docs --metrics run.jsonl
                                                             one line of JSON a step
  ringworld train --help                                     every option
  ./scripts/test.sh                                          the whole test suite
TEXT
