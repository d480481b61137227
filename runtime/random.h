// Counter-based random numbers: Philox4x32-10 of Random123 (Salmon et al., SC11).
//
// A number is a function of (seed, purpose, stream, index) alone. With the element's global index
// as the counter, initial weights, masks and data order cannot depend on world size, layout or the
// order of calls.
#pragma once

#include <cstdint>
#include <string_view>

namespace ringworld {

enum class Purpose : std::uint32_t {
  initial_weights = 1,
  data_order = 2,
  synthetic_data = 3,
  dropout = 4,
};

struct RandomKey {
  std::uint64_t seed = 0;
  Purpose purpose = Purpose::initial_weights;
  std::uint32_t stream = 0;  // which sequence: a tensor's (see stream_of), an epoch's, ...
};

// The stream of a named thing; equal names give equal streams on every machine.
std::uint32_t stream_of(std::string_view name);

std::uint64_t random_bits(const RandomKey& key, std::uint64_t index);
double random_uniform(const RandomKey& key, std::uint64_t index);  // in [0, 1), 53 bits
double random_normal(const RandomKey& key, std::uint64_t index);   // mean 0, deviation 1

}  // namespace ringworld
