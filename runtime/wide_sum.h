// A sum that is more exact than any f64 it becomes: an unevaluated pair of f64, about 100 bits.
//
// The norm of a gradient is added up over elements, threads, buckets, shards and ranks. In f64
// each of these ways gives other last bits; here they all give the same f64, as long as the exact
// sum does not lie within some 2^-100 of itself from the middle between two neighbours. Squares of
// f32 and of the 16-bit formats are exact in f64; a square of f64 is added as the pair it is.
//
// Error-free sums and products: Dekker (1971) and Knuth (TAOCP 2, 4.2.2). Sum of pairs: Joldes,
// Muller and Popescu, "Tight and rigorous error bounds for basic building blocks of double-word
// arithmetic" (ACM TOMS 2017), algorithm 6, whose relative error is at most 3 x 2^-106.
//
// What is not finite stays so: once an infinity or a NaN was added, value() is one of the two.
#pragma once

#include <cmath>

namespace ringworld {

class WideSum {
 public:
  WideSum() = default;
  // high + low, in any order of magnitude.
  explicit WideSum(double high, double low = 0) { *this = sum_of(high, low); }

  double high() const { return high_; }
  double low() const { return low_; }  // at most half a unit in the last place of high
  double value() const { return high_ + low_; }

  WideSum& operator+=(const WideSum& other) {
    const WideSum highs = sum_of(high_, other.high_);
    const WideSum lows = sum_of(low_, other.low_);
    const WideSum middle = ordered_sum_of(highs.high_, highs.low_ + lows.high_);
    return *this = ordered_sum_of(middle.high_, lows.low_ + middle.low_);
  }
  WideSum& operator+=(double x) { return *this += WideSum(x); }
  void add_square(double x) {
    const double square = x * x;
    *this += WideSum(square, std::fma(x, x, -square));
  }

 private:
  // a + b, exactly, for any a and b.
  static WideSum sum_of(double a, double b) {
    WideSum sum;
    sum.high_ = a + b;
    const double b_part = sum.high_ - a;
    sum.low_ = (a - (sum.high_ - b_part)) + (b - b_part);
    return sum;
  }
  // The same where |a| >= |b|, or a is 0.
  static WideSum ordered_sum_of(double a, double b) {
    WideSum sum;
    sum.high_ = a + b;
    sum.low_ = b - (sum.high_ - a);
    return sum;
  }

  double high_ = 0;
  double low_ = 0;
};

}  // namespace ringworld
