// Real processes that disagree: after a call that all make, rank 1 calls under another label. Over
// MPI ("mpi"), over shared memory ("shared": small calls), or there with calls that are queued and
// a small one after them ("queued"). The launch must end, with a message that names the call, the
// rank and the peer; CMakeLists.txt holds it to that.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "collectives/communicator.h"
#include "runtime/error.h"

namespace {

using namespace ringworld;

// Each work says what became of it, as often as it is asked and whatever has been called since, and
// so does every later call.
void call_and_disagree(Communicator& communicator, const Tensor& x) {
  const char* label = communicator.rank() == 1 ? "weights" : "gradients";
  Work agreed = communicator.all_reduce(x, x, ReduceOp::sum, "agreed");
  Work disagreed = communicator.all_reduce(x, x, ReduceOp::sum, label);
  try {
    const Tensor small = x.slice(0, 1);
    while (x.elements() > 12 && !disagreed.done()) {
      std::this_thread::yield();
    }
    communicator.all_reduce(small, small, ReduceOp::sum, "later").wait();
    std::puts("wrong: the later call succeeded");
  } catch (const CommunicationError& error) {
    if (std::string_view(error.what()).find("(call 2") == std::string_view::npos) {
      std::printf("wrong: the later call failed for a reason of its own: %s\n", error.what());
    }
    agreed.wait();
    disagreed.wait();
    std::puts("wrong: the call succeeded");
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto mpi = make_mpi_transport(&argc, &argv);
    std::string why_not;
    std::unique_ptr<Transport> shared;
    const std::string_view how = argc > 1 ? argv[1] : "mpi";
    if (how != "mpi") {
      shared = make_shared_transport(
          *mpi, SharedArena::create(shared_front(mpi->local_ranks()), why_not), 1, why_not);
      if (shared == nullptr) {
        std::printf("wrong: %s\n", why_not.c_str());
      }
    }
    const auto backend = make_cpu_backend(Device::create({}), 1);
    Communicator communicator(shared == nullptr ? *mpi : *shared, *backend,
                              {.timeout = std::chrono::milliseconds(500)});
    call_and_disagree(communicator, backend->zeros(DType::f32, Shape{how == "queued" ? 50'000 : 12},
                                                   Category::communication));
  } catch (const CommunicationError& error) {
    std::printf("exit code %d: %s\n", static_cast<int>(error.code()), error.what());
    std::fflush(stdout);
    // What is printed can be lost when another rank aborts the job: so nobody does before all have.
    gather_mpi_failures(error.what(), std::chrono::seconds(10));
    std::_Exit(static_cast<int>(error.code()));
  }
}
