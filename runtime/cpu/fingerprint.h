// A hash over bytes, as fast as memory, for telling whether ranks hold the same tensor.
#pragma once

#include <cstdint>
#include <span>

namespace ringworld {

// Of up to chunk_bytes; the fingerprint of a tensor is that of its chunks' hashes, so that chunks
// can go to several threads and the result does not depend on how many there are.
inline constexpr std::int64_t fingerprint_chunk_bytes = 1 << 20;
std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed);

}  // namespace ringworld
