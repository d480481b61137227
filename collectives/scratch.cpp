#include "collectives/scratch.h"

#include <algorithm>

namespace ringworld {
namespace {

constexpr std::int64_t alignment = 64;

std::int64_t aligned(Bytes bytes) {
  return (bytes.value + alignment - 1) / alignment * alignment;
}

// The first bytes of a run of bytes as elements.
Tensor as_elements(const Tensor& bytes, DType dtype, std::int64_t elements) {
  return Tensor(dtype, Shape{elements}, bytes.storage(),
                bytes.first_element() / size_of(dtype).value);
}

}  // namespace

Scratch::Scratch(Backend& backend, Bytes at_least)
    : backend_(backend),
      block_(backend.empty(DType::i8, Shape{aligned(at_least)}, Category::communication)) {}

Tensor Scratch::take(DType dtype, std::int64_t elements) {
  const std::int64_t bytes = aligned(elements * size_of(dtype));
  const auto hole = std::ranges::find(holes_, bytes, &Tensor::elements);
  if (hole != holes_.end()) {
    const Tensor taken = as_elements(*hole, dtype, elements);
    holes_.erase(hole);
    return taken;
  }
  if (bytes <= block_.elements() - used_) {
    used_ += bytes;
    return as_elements(block_.slice(used_ - bytes, bytes), dtype, elements);
  }
  overflow_.push_back(backend_.empty(DType::i8, Shape{bytes}, Category::communication));
  return as_elements(overflow_.back(), dtype, elements);
}

void Scratch::give_back(const Tensor& x) {
  const std::int64_t first = (x.first_element() * size_of(x.dtype())).value;
  holes_.emplace_back(DType::i8, Shape{aligned(x.bytes())}, x.storage(), first);
}

void Scratch::reset() {
  holes_.clear();
  if (!overflow_.empty()) {
    std::int64_t bytes = used_;
    for (const Tensor& piece : overflow_) {
      bytes += piece.elements();
    }
    overflow_.clear();
    block_ = Tensor(DType::i8, Shape{0}, nullptr);
    block_ = backend_.empty(DType::i8, Shape{bytes}, Category::communication);
  }
  used_ = 0;
}

}  // namespace ringworld
