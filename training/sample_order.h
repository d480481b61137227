// In which order samples are trained on: a function of seed and epoch alone.
//
// Training walks an endless row of positions, 0, 1, 2, ... Position p belongs to epoch p / N of a
// data set of N samples, and each epoch is a permutation of [0, N) of its own. World size,
// micro-batch and accumulation only decide who takes which position, never what is there; and as
// batches go on across the end of an epoch, no sample is dropped or seen twice.
#pragma once

#include <cstdint>

namespace ringworld {

class SampleOrder {
 public:
  // `samples` N: at least 1.
  SampleOrder(std::uint64_t seed, std::int64_t samples);

  std::int64_t samples() const { return samples_; }
  std::int64_t at(std::int64_t position) const;  // the sample, in [0, N)

 private:
  std::uint64_t permute(std::uint32_t epoch, std::uint64_t x) const;

  std::uint64_t seed_;
  std::int64_t samples_;
  int half_bits_;  // the permutation works on numbers of 2 * half_bits
};

}  // namespace ringworld
