// Real processes that disagree: rank 1 calls under another label. The launch must end, with a
// message that names the call, the rank and the peer; CMakeLists.txt holds it to that.
#include <cstdio>

#include "collectives/communicator.h"
#include "runtime/error.h"

int main(int argc, char** argv) {
  using namespace ringworld;
  try {
    const auto transport = make_mpi_transport(&argc, &argv);
    const auto backend = make_cpu_backend(Device::create({}), 1);
    Communicator communicator(*transport, *backend, {.timeout = std::chrono::milliseconds(500)});
    const Tensor x = backend->zeros(DType::f32, Shape{12}, Category::communication);
    const char* label = transport->rank() == 1 ? "weights" : "gradients";
    communicator.all_reduce(x, x, ReduceOp::sum, label).wait();
    std::puts("wrong: the call succeeded");
  } catch (const CommunicationError& error) {
    std::printf("exit code %d: %s\n", static_cast<int>(error.code()), error.what());
    std::fflush(stdout);
    abort_mpi_job(static_cast<int>(error.code()));
  }
}
