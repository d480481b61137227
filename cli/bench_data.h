// What the ranks give in a benchmark, and what must come out of it, to the bit.
//
// Small whole numbers, so that every sum is exact in every dtype and in any order, and a sum that
// avg divides is divisible. They differ from rank to rank and from element to element, so that a
// contribution that is missing, comes twice or lies at the wrong place shows. The values repeat in
// periods, each turned by another amount, so that buffers of any size are written and compared at
// the speed of memory and cost no memory of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/backend.h"

namespace ringworld {

class BenchData {
 public:
  // Whose values, instead of a rank's: the reduction of all ranks'.
  static constexpr int reduction = -1;

  // Without `op` nothing is reduced.
  BenchData(Backend& backend, DType dtype, std::optional<ReduceOp> op, int ranks);

  // out = the values of `source` from index `first` on.
  void write(const Tensor& out, int source, std::int64_t first) const;
  // How many elements of x differ from them.
  std::int64_t count_wrong(const Tensor& x, int source, std::int64_t first) const;

 private:
  template <typename Body>
  void for_each_run(int source, std::int64_t first, std::int64_t count, const Body& body) const;

  Backend& backend_;
  const std::size_t element_;                     // bytes
  std::vector<std::vector<std::byte>> patterns_;  // by rank, and the reduction; two periods of each
};

}  // namespace ringworld
