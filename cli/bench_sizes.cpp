#include "cli/bench_sizes.h"

#include <algorithm>
#include <charconv>
#include <string>

#include <CLI/StringTools.hpp>
#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

bool has_parts(Operation operation) {
  switch (operation) {
    case Operation::reduce_scatter:
    case Operation::all_gather:
    case Operation::all_to_all:
    case Operation::gather:
    case Operation::scatter:
      return true;
    case Operation::all_reduce:
    case Operation::broadcast:
    case Operation::reduce:
    case Operation::barrier:
      return false;
  }
  return false;
}

std::vector<Bytes> series(const std::vector<std::string>& parts, std::string_view text,
                          std::string_view option) {
  const auto refuse = [&](const std::string& why) {
    return UsageError(fmt::format("{}: '{}': {}", option, text, why));
  };
  if (parts.size() != 3) {
    throw refuse("a series is FIRST:LAST:FACTOR, for example 8:256M:4");
  }
  const Bytes first = parse_bytes(parts[0], option);
  const Bytes last = parse_bytes(parts[1], option);
  std::int64_t factor = 0;
  const char* const end = parts[2].data() + parts[2].size();
  const auto [parsed, error] = std::from_chars(parts[2].data(), end, factor);
  if (error != std::errc() || parsed != end || factor < 2) {
    throw refuse(fmt::format("the factor '{}' is not a whole number of 2 or more", parts[2]));
  }
  if (first > last) {
    throw refuse(fmt::format("the first size, {}, is above the last, {}", to_string(first),
                             to_string(last)));
  }
  std::vector<Bytes> sizes = {first};
  while (sizes.back().value <= last.value / factor) {
    sizes.push_back(factor * sizes.back());
  }
  return sizes;
}

}  // namespace

std::vector<Bytes> parse_sizes(std::string_view text, std::string_view option) {
  if (text.find(':') != std::string_view::npos) {
    return series(CLI::detail::split(std::string(text), ':'), text, option);
  }
  std::vector<Bytes> sizes;
  for (const std::string& part : CLI::detail::split(std::string(text), ',')) {
    sizes.push_back(parse_bytes(part, option));
  }
  return sizes;
}

BufferSize fit(Operation operation, Bytes asked, DType dtype, int ranks) {
  if (operation == Operation::barrier) {
    return {};
  }
  const std::int64_t parts = has_parts(operation) ? ranks : 1;
  const std::int64_t block = std::max<std::int64_t>(1, asked.value / size_of(dtype).value / parts);
  return {.elements = block * parts, .block = block, .bytes = block * parts * size_of(dtype)};
}

double bus_factor(Operation operation, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (operation == Operation::all_reduce) {
    return 2 * others;
  }
  return has_parts(operation) ? others : 1;
}

}  // namespace ringworld
