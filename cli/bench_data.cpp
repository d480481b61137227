#include "cli/bench_data.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace ringworld {
namespace {

// A prime, so that no block, chunk or segment of a power of two elements is a whole number of
// periods.
constexpr std::int64_t period = 4093;

// The finaliser of SplitMix64 (Steele et al., 2014): unrelated numbers for related keys.
std::uint64_t scrambled(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// -largest to largest.
std::int64_t small_number(std::int64_t key, std::int64_t index, std::int64_t largest) {
  const std::uint64_t bits = scrambled(static_cast<std::uint64_t>(period * key + index));
  return static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(2 * largest + 1)) - largest;
}

// What a rank has at an index of a period.
std::int64_t value_of(int rank, int ranks, std::int64_t index, std::optional<ReduceOp> op) {
  if (op == ReduceOp::sum) {
    return small_number(rank, index, 3);
  }
  if (op == ReduceOp::avg) {
    // Ranks in pairs above and below a mean of their own, so that it is the mean of all.
    const std::int64_t mean = small_number(-1, index, 3);
    const bool alone = rank == ranks - 1 && rank % 2 == 0;
    const std::int64_t deviation = alone ? 0 : small_number(rank / 2, index, 3);
    return rank % 2 == 0 ? mean + deviation : mean - deviation;
  }
  return small_number(rank, index, 100);
}

// The dtype's own arithmetic: integers wrap, and their quotients are truncated.
std::int64_t wrapped(std::int64_t value, DType dtype) {
  return dtype == DType::i8 ? static_cast<std::int8_t>(value) : value;
}

std::int64_t reduced(const std::vector<std::int64_t>& values, ReduceOp op, DType dtype) {
  if (op == ReduceOp::min || op == ReduceOp::max) {
    const auto [min, max] = std::ranges::minmax(values);
    return op == ReduceOp::min ? min : max;
  }
  std::int64_t sum = 0;
  for (const std::int64_t value : values) {
    sum += value;
  }
  sum = wrapped(sum, dtype);
  return op == ReduceOp::avg ? sum / std::ssize(values) : sum;
}

}  // namespace

BenchData::BenchData(Backend& backend, DType dtype, std::optional<ReduceOp> op, int ranks)
    : backend_(backend), element_(static_cast<std::size_t>(size_of(dtype).value)) {
  const Tensor tensor = backend.empty(dtype, Shape{2 * period}, Category::workspace);
  const auto add_pattern = [&](const std::function<std::int64_t(std::int64_t)>& value) {
    std::vector<double> values(2 * period);
    for (std::int64_t i = 0; i < 2 * period; ++i) {
      values[static_cast<std::size_t>(i)] = static_cast<double>(value(i % period));
    }
    backend.upload_values(tensor, values);
    backend.download(patterns_.emplace_back(values.size() * element_), tensor);
  };
  for (int rank = 0; rank < ranks; ++rank) {
    add_pattern([&](std::int64_t index) { return value_of(rank, ranks, index, op); });
  }
  if (op) {
    add_pattern([&](std::int64_t index) {
      std::vector<std::int64_t> values;
      for (int rank = 0; rank < ranks; ++rank) {
        values.push_back(value_of(rank, ranks, index, op));
      }
      return reduced(values, *op, dtype);
    });
  }
}

// body(offset, bytes) for each run of elements within one period; offset counts from `first`.
template <typename Body>
void BenchData::for_each_run(int source, std::int64_t first, std::int64_t count,
                             const Body& body) const {
  const std::vector<std::byte>& pattern =
      source == reduction ? patterns_.back() : patterns_[static_cast<std::size_t>(source)];
  for (std::int64_t offset = 0; offset < count;) {
    const std::int64_t index = (first + offset) % period;
    const std::int64_t length = std::min(period - index, count - offset);
    const auto turn = scrambled(static_cast<std::uint64_t>((first + offset) / period)) % period;
    const auto start = (turn + static_cast<std::uint64_t>(index)) * element_;
    body(offset, std::span(pattern).subspan(start, static_cast<std::size_t>(length) * element_));
    offset += length;
  }
}

void BenchData::write(const Tensor& out, int source, std::int64_t first) const {
  for_each_run(source, first, out.elements(),
               [&](std::int64_t offset, std::span<const std::byte> bytes) {
                 const auto count = static_cast<std::int64_t>(bytes.size() / element_);
                 backend_.upload(out.slice(offset, count), bytes);
               });
}

std::int64_t BenchData::count_wrong(const Tensor& x, int source, std::int64_t first) const {
  std::int64_t wrong = 0;
  std::vector<std::byte> found(static_cast<std::size_t>(period) * element_);
  for_each_run(source, first, x.elements(),
               [&](std::int64_t offset, std::span<const std::byte> expected) {
                 const auto count = static_cast<std::int64_t>(expected.size() / element_);
                 backend_.download(std::span(found).first(expected.size()), x.slice(offset, count));
                 if (std::memcmp(found.data(), expected.data(), expected.size()) == 0) {
                   return;
                 }
                 for (std::size_t byte = 0; byte < expected.size(); byte += element_) {
                   wrong += std::memcmp(&found[byte], &expected[byte], element_) != 0 ? 1 : 0;
                 }
               });
  return wrong;
}

}  // namespace ringworld
