// Cross-entropy of softmax, one row of logits at a time.
#pragma once

#include <cstdint>

#include "runtime/cpu/types.h"

namespace ringworld {

template <typename T>
struct CrossEntropyKernels {
  // log(sum of e^logits[i]) over the row, n > 0. The loss is this less the target's logit.
  ComputeType<T> (*log_sum_exp)(const T* logits, std::int64_t n);
  // dlogits = factor * (e^(logits - log_sum_exp) - [i == target]); dlogits may be logits. A
  // negative target is none of the row's.
  void (*backward)(T* dlogits, const T* logits, std::int64_t n, std::int64_t target,
                   ComputeType<T> log_sum_exp, double factor);
};

const ByFloatingType<CrossEntropyKernels>& cross_entropy_kernels();

}  // namespace ringworld
