// What tests under mpiexec share: see mpi_main.cpp.
#pragma once

#include "runtime/transport.h"

namespace ringworld {

// This process's transport, initialised before the first test and finalised after the last.
Transport& mpi_test_transport();

}  // namespace ringworld
