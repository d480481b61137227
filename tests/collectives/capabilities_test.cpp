// Every cell of the matrix of algorithms, number formats and reductions is right, or refused with
// the reason.
#include "collectives/capabilities.h"

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/collectives/matrix.h"
#include "tests/collectives/on_threads.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

constexpr int ranks = 4;
constexpr std::int64_t block = 3;  // elements; all_reduce's and reduce's buffer or a rank's part

// One call over equal values. Returns the values that rank 0 gets.
std::vector<double> reduced(Communicator& communicator, const Algorithm& algorithm, DType dtype,
                            ReduceOp op, double value) {
  communicator.use(algorithm.operation, algorithm.name);
  const Tensor out = filled(communicator, dtype, block, 0);
  switch (algorithm.operation) {
    case Operation::all_reduce:
      communicator.all_reduce(out, filled(communicator, dtype, block, value), op, "cell").wait();
      break;
    case Operation::reduce_scatter:
      communicator
          .reduce_scatter(out, filled(communicator, dtype, ranks * block, value), op, "cell")
          .wait();
      break;
    default:
      communicator.reduce(out, filled(communicator, dtype, block, value), op, 0, "cell").wait();
  }
  return communicator.backend().download_values(out);
}

TEST(Capabilities, EveryCellIsRightOrRefused) {
  run_communicators(ranks, [](Communicator& communicator) {
    for (const Operation operation :
         {Operation::all_reduce, Operation::reduce_scatter, Operation::reduce}) {
      for (const std::string& name : serving(operation, ranks)) {
        const Algorithm& algorithm = find_algorithm(operation, name);
        for (const DType dtype : all_dtypes) {
          const double value = is_floating(dtype) ? 1.5 : 3;
          for (const ReduceOp op : all_reduce_ops) {
            const std::string reason = refusal(algorithm, dtype, op);
            if (!reason.empty()) {
              expect_error<UsageError>([&] { reduced(communicator, algorithm, dtype, op, value); },
                                       {name, reason});
            } else if (const auto result = reduced(communicator, algorithm, dtype, op, value);
                       communicator.rank() == 0) {
              EXPECT_EQ(result, std::vector<double>(block, op == ReduceOp::sum ? 4 * value : value))
                  << name << " " << name_of(operation) << " of " << name_of(dtype) << ", "
                  << name_of(op);
            }
          }
        }
      }
    }
  });
}

TEST(Capabilities, TheReferenceLacksWhatMpiLacks) {
  const auto mpi = [](Operation operation) {
    Algorithm algorithm;
    algorithm.name = "mpi";
    algorithm.operation = operation;
    algorithm.library = true;
    return algorithm;
  };
  int refused = 0;
  for (const DType dtype : all_dtypes) {
    for (const ReduceOp op : all_reduce_ops) {
      const std::string reason = refusal(mpi(Operation::all_reduce), dtype, op);
      if (!reason.empty()) {
        ++refused;
        EXPECT_NE(reason.find(name_of(dtype)), std::string::npos) << reason;
        EXPECT_NE(reason.find(name_of(op)), std::string::npos) << reason;
      }
      EXPECT_EQ(refusal(mpi(Operation::all_gather), dtype, op), "");
    }
  }
  EXPECT_EQ(refused, 4);  // min and max of bf16 and f16
}

}  // namespace
}  // namespace ringworld
