// An amount of memory or traffic. A type of its own, so that bytes and element counts cannot be
// mixed up: the collectives take elements (tensors), the ledger and the transports count Bytes.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace ringworld {

struct Bytes {
  std::int64_t value = 0;

  constexpr Bytes() = default;
  constexpr explicit Bytes(std::int64_t bytes) : value(bytes) {}

  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes other) {
    value += other.value;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes other) {
    value -= other.value;
    return *this;
  }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.value + b.value); }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return Bytes(a.value - b.value); }
  friend constexpr Bytes operator*(std::int64_t n, Bytes b) { return Bytes(n * b.value); }
};

// "512 B", "1.50 MiB", "2.00 GiB": powers of 1024, as memory is sold.
std::string to_string(Bytes bytes);

// Reads "4096", "50MB", "1.5 GiB", "2g": decimal prefixes with MB, binary with MiB; a bare letter
// is binary. Throws UsageError that names `option` when the text is not a positive size.
Bytes parse_bytes(std::string_view text, std::string_view option);

}  // namespace ringworld
