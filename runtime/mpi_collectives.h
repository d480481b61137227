// The MPI library's own collectives. For the MPI transport, which alone knows a communicator.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include <mpi.h>

#include "runtime/library_collectives.h"

namespace ringworld {

// Over all ranks of `world`, which must return its errors (MPI_ERRORS_RETURN) and outlive this.
// `timeout` is asked at the beginning of every call, by its thread; zero is no limit. `ended`, which
// ranks' processes are known to have ended, is asked by another thread, and may be empty.
std::unique_ptr<LibraryCollectives> make_mpi_collectives(
    MPI_Comm world, std::function<std::chrono::milliseconds()> timeout,
    std::function<std::vector<int>()> ended = {});

}  // namespace ringworld
