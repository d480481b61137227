// A rank that waits for ever inside a call of the MPI library: the launch must end within the
// timeout, with a message that names rank and call; CMakeLists.txt holds it to that.
#include <cstdio>

#include <unistd.h>

#include "runtime/mpi_collectives.h"
#include "runtime/transport.h"

int main(int argc, char** argv) {
  using namespace ringworld;
  const auto transport = make_mpi_transport(&argc, &argv);
  const auto library =
      make_mpi_collectives(MPI_COMM_WORLD, [] { return std::chrono::milliseconds(500); });
  library->barrier();
  if (transport->rank() != 1) {
    library->barrier();  // without rank 1
    std::puts("wrong: the call returned");
  }
  std::fflush(stdout);
  ::pause();  // until the job is ended
}
