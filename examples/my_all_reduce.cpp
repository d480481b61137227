// An all-reduce of your own: write it, register it, have it proved, run it beside the others.
//
// The algorithm here is the simplest there is, a star: rank 0 adds up what the others send it, one
// after the other, and sends the sum to all of them. The proof finds it right for any number of
// ranks; the times show what that costs with many ranks and large buffers. Change it and see what
// the proof has to say.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "collectives/communicator.h"
#include "collectives/proof.h"

using namespace ringworld;

// What one rank does: the buffer is a single chunk, number 0.
Schedule star_all_reduce(int rank, int ranks, int /*root*/) {
  Schedule schedule(1);
  for (int peer = 1; peer < ranks; ++peer) {
    schedule.begin_step();
    if (rank == 0) {
      schedule.receive_reduce(peer, 0);
    } else if (rank == peer) {
      schedule.send(0, 0);
    }
  }
  schedule.begin_step();
  for (int peer = 1; peer < ranks; ++peer) {
    if (rank == 0) {
      schedule.send(peer, 0);
    } else if (rank == peer) {
      schedule.receive(0, 0);
    }
  }
  return schedule;
}

int main() {
  const Algorithm& star = register_algorithm({
      .name = "star",
      .operation = Operation::all_reduce,
      .emit = star_all_reduce,
      .steps = {"P", [](std::int64_t p, std::int64_t) { return p == 1 ? 0 : p; }},
      .elements_sent = {"2 (P - 1) n",
                        [](std::int64_t p, std::int64_t n) { return 2 * (p - 1) * n; }},
  });

  for (int ranks = 1; ranks <= max_proved_ranks; ++ranks) {
    if (const auto refutation = refute(star, ranks)) {
      std::printf("wrong: %s\n", refutation->c_str());
      return 1;
    }
  }
  std::printf("proved for 1 to %d ranks\n", max_proved_ranks);

  // Four ranks, as threads of this process; over MPI, make_mpi_transport takes their place.
  bool right = true;
  run_on_threads(4, [&](Transport& transport) {
    const auto backend = make_cpu_backend(Device::create({}), /*threads=*/1);
    Communicator communicator(transport, *backend);
    const Tensor x = backend->empty(DType::f32, Shape{1 << 20}, Category::communication);
    for (const char* name : {"star", "ring"}) {
      communicator.use(Operation::all_reduce, name);
      double best = 1e9;
      for (int repetition = 0; repetition < 5; ++repetition) {
        backend->fill(x, communicator.rank() + 1);
        communicator.barrier("start together");
        const auto start = std::chrono::steady_clock::now();
        communicator.all_reduce(x, x, ReduceOp::sum, "example").wait();
        const std::chrono::duration<double, std::milli> time =
            std::chrono::steady_clock::now() - start;
        best = std::min(best, communicator.all_reduce_value(time.count(), ReduceOp::max, "time"));
      }
      if (communicator.rank() == 0) {
        right = right && backend->sum(x) == 10.0 * (1 << 20);  // 1 + 2 + 3 + 4 everywhere
        std::printf("%s: 4 MiB over 4 ranks in %.2f ms\n", name, best);
      }
    }
  });
  std::printf(right ? "the sums are right\n" : "wrong: the sums differ\n");
  return right ? 0 : 1;
}
