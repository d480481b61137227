#include "training/relative_difference.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>

namespace ringworld {

double sum_of_squares(std::span<const double> values) {
  double squares = 0;
  for (const double x : values) {
    squares += x * x;
  }
  return squares;
}

RelativeDifference relative_difference(std::span<const double> a, std::span<const double> b,
                                       double control_squares) {
  if (a.size() != b.size()) {
    throw std::invalid_argument("relative_difference: parts of different sizes");
  }
  double difference = 0;
  double own_squares = 0;
  double products = 0;
  bool equal = true;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    own_squares += b[i] * b[i];
    products += a[i] * b[i];
    equal = equal && (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])));
  }
  if (equal) {
    return {};
  }
  const double error = std::sqrt(difference / control_squares);
  return {.error = std::isfinite(error) ? error : std::numeric_limits<double>::infinity(),
          .ratio = products / own_squares,
          .bit_equal = false};
}

}  // namespace ringworld
