// How far one tensor is from another that it should equal.
#pragma once

#include <span>

namespace ringworld {

struct RelativeDifference {
  double error = 0;       // |a - b| / |b| in the 2-norm; infinite where it is no number
  double ratio = 1;       // (a . b) / (b . b): shows a factor that got lost or was applied twice
  bool bit_equal = true;  // element for element; NaN equals NaN
};

// Sum of squares, in f64.
double sum_of_squares(std::span<const double> values);

// Of a part `a` of a tensor against the same part `b` of its control: the products are over the
// part, while |b| is of the whole, of which `control_squares` is the sum of squares. Equal parts
// have error 0 and ratio 1, zeros too. The ratio to zeros is NaN.
RelativeDifference relative_difference(std::span<const double> a, std::span<const double> b,
                                       double control_squares);

}  // namespace ringworld
