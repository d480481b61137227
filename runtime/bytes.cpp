#include "runtime/bytes.h"

#include <cctype>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {

std::string to_string(Bytes bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double amount = static_cast<double>(bytes.value);
  int unit = 0;
  while (std::abs(amount) >= 1024 && unit < 5) {
    amount /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes.value)
                   : fmt::format("{:.2f} {}", amount, units[unit]);
}

Bytes parse_bytes(std::string_view text, std::string_view option) {
  const auto refuse = [&]() -> UsageError {
    return UsageError(fmt::format(
        "{}: '{}' is not a size; write a positive number with a unit, such as 50MB, 1.5GiB or 4096",
        option, text));
  };
  double amount = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount);
  if (error != std::errc() || !std::isfinite(amount) || amount <= 0) {
    throw refuse();
  }
  std::string unit;
  for (const char* c = end; c != text.data() + text.size(); ++c) {
    if (*c != ' ') {
      unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    }
  }
  double factor = 1;
  if (!unit.empty() && unit != "b") {
    static constexpr std::string_view prefixes = "kmgtp";
    const auto power = prefixes.find(unit[0]);
    const std::string_view rest = std::string_view(unit).substr(1);
    if (power == std::string_view::npos || !(rest.empty() || rest == "b" || rest == "ib")) {
      throw refuse();
    }
    factor = std::pow(rest == "b" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
  }
  const double bytes = std::floor(amount * factor);
  if (bytes < 1 || bytes > 9e18) {
    throw refuse();
  }
  return Bytes(static_cast<std::int64_t>(bytes));
}

}  // namespace ringworld
