// The main of tests under mpiexec: every rank runs every test. Rank 0 prints as usual, the others
// only what fails, with their rank in front. When a test fails on any rank, every rank returns
// non-zero; when a rank cannot go on, it ends the whole job.
#include "tests/support/mpi_main.h"

#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "collectives/communicator.h"

namespace ringworld {
namespace {

std::unique_ptr<Transport> transport;

class FailurePrinter final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override { test_ = &test; }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed()) {
      const testing::TestInfo* test = test_;  // asking GoogleTest here would lock it twice
      std::fprintf(stderr, "rank %d: %s.%s: %s:%d: %s\n", transport->rank(),
                   test == nullptr ? "" : test->test_suite_name(),
                   test == nullptr ? "" : test->name(),
                   result.file_name() == nullptr ? "" : result.file_name(), result.line_number(),
                   result.message());
    }
  }

  const testing::TestInfo* test_ = nullptr;
};

bool failed_on_any_rank(bool failed_here) {
  const auto backend = make_cpu_backend(Device::create({}), 1);
  Communicator communicator(*transport, *backend);
  return communicator.all_reduce_value(std::int64_t{failed_here}, ReduceOp::max, "test result") !=
         0;
}

int run_tests(int argc, char** argv) {
  transport = make_mpi_transport(&argc, &argv);
  testing::InitGoogleTest(&argc, argv);
  // An exception that leaves a test on one rank leaves the others waiting: it ends the job below.
  GTEST_FLAG_SET(catch_exceptions, false);
  if (transport->rank() != 0) {
    testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter);
  }
  const bool failed = failed_on_any_rank(RUN_ALL_TESTS() != 0);
  transport.reset();
  return failed ? 1 : 0;
}

}  // namespace

Transport& mpi_test_transport() {
  return *transport;
}

}  // namespace ringworld

int main(int argc, char** argv) {
  try {
    return ringworld::run_tests(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s%s\n",
                 ringworld::transport == nullptr
                     ? ""
                     : ("rank " + std::to_string(ringworld::transport->rank()) + ": ").c_str(),
                 error.what());
    ringworld::abort_mpi_job(1);
  }
}
