// Tensor parallelism (Megatron-LM, Shoeybi et al., 2019, section 3) as one device's model sees it:
// of every linear layer, attention head and row of the vocabulary it has a part, and here and there
// it needs what the other devices of its group have.
//
// Between two split layers there is a seam. Without sequence parallelism every device has whole
// activations there: gather is nothing, and reduce adds up the devices' partial sums. With it
// (Korthikanti et al., 2022, section 4.2.2) every device has some rows of them, a row for each
// token of the micro-batch: gather brings the rows together, and reduce adds up and leaves each
// device its rows. Either is the other's backward.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "runtime/backend.h"

namespace ringworld {

// Consecutive elements, rows or columns of something larger.
struct Part {
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool operator==(const Part&) const = default;
};

class TensorParallel {
 public:
  // One of `size` devices.
  TensorParallel(int rank, int size, bool sequence_parallel)
      : rank_(rank), size_(size), sequence_parallel_(sequence_parallel && size > 1) {}
  virtual ~TensorParallel() = default;
  TensorParallel(const TensorParallel&) = delete;
  TensorParallel& operator=(const TensorParallel&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_split() const { return size_ > 1; }
  bool sequence_parallel() const { return sequence_parallel_; }

  // This device's part: parts differ by at most one, and the first ones are the longer.
  Part part(std::int64_t whole) const {
    const std::int64_t each = whole / size_;
    const std::int64_t longer = whole % size_;
    return {rank_ * each + std::min<std::int64_t>(rank_, longer), each + (rank_ < longer ? 1 : 0)};
  }
  // The rows, of so many, that this device has at a seam.
  Part rows(std::int64_t rows) const { return sequence_parallel_ ? part(rows) : Part{0, rows}; }

  // Every device calls each of these for the same tensor, in the same order. `label` names it.

  // x as reduce returned it, or alike, of a micro-batch of `tokens` (B, T); the result (B, T, C),
  // workspace, or x itself.
  virtual Tensor gather(Backend& backend, const Tensor& x, const Shape& tokens,
                        const std::string& label) const;
  // The devices' partial (B, T, C), added up: partial itself, or a new tensor (1, rows, C) of the
  // category.
  virtual Tensor reduce(Backend& backend, Tensor partial, Category category,
                        const std::string& label) const;
  // x of every device, one row each, in their order: (devices, elements of x), workspace.
  virtual Tensor stack(Backend& backend, const Tensor& x, const std::string& label) const;
  // x = the sum of all devices' x.
  virtual void sum(const Tensor& x, const std::string& label) const;

 private:
  const int rank_;
  const int size_;
  const bool sequence_parallel_;
};

// How often a unit crosses seams, for the bytes that it takes.
struct SeamCrossings {
  int gathers = 0;
  int reduces = 0;
};

}  // namespace ringworld
