#include "runtime/tensor.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace ringworld {

void Shape::refuse(std::initializer_list<std::int64_t> sizes) {
  if (sizes.size() > max_axes) {
    throw std::invalid_argument(
        fmt::format("a shape of {} axes; at most {}", sizes.size(), max_axes));
  }
  throw std::invalid_argument(
      fmt::format("a shape with the negative size {}", std::ranges::min(sizes)));
}

std::int64_t Shape::operator[](int axis) const {
  const int index = axis < 0 ? axis + axes_ : axis;
  if (index < 0 || index >= axes_) {
    throw std::out_of_range(fmt::format("axis {} of the shape {}", axis, to_string(*this)));
  }
  return sizes_[static_cast<std::size_t>(index)];
}

std::int64_t Shape::rows() const {
  std::int64_t product = 1;
  for (int axis = 0; axis + 1 < axes_; ++axis) {
    product *= sizes_[static_cast<std::size_t>(axis)];
  }
  return product;
}

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (int axis = 0; axis < shape.axes(); ++axis) {
    text += fmt::format("{}{}", axis > 0 ? ", " : "", shape[axis]);
  }
  return text + ")";
}

Tensor Tensor::view(Shape shape) const {
  if (shape.elements() != elements()) {
    throw std::invalid_argument(
        fmt::format("view of {} as {}", to_string(shape_), to_string(shape)));
  }
  return Tensor(dtype_, shape, storage_, first_element_);
}

Tensor Tensor::slice(std::int64_t first, std::int64_t count) const {
  check_slice(first, count);
  return Tensor(dtype_, Shape{count}, storage_, first_element_ + first);
}

void Tensor::refuse_slice(std::int64_t first, std::int64_t count) const {
  throw std::invalid_argument(
      fmt::format("slice of {} elements from {} in a tensor of {}", count, first, elements()));
}

Tensor Tensor::rows(std::int64_t first, std::int64_t count) const {
  const std::int64_t all = shape_[0];
  if (first < 0 || count < 0 || first > all - count) {
    throw std::invalid_argument(
        fmt::format("{} rows from {} of the shape {}", count, first, to_string(shape_)));
  }
  const std::int64_t row = all == 0 ? 0 : elements() / all;
  Shape shape;
  switch (shape_.axes()) {
    case 1:
      shape = Shape{count};
      break;
    case 2:
      shape = Shape{count, shape_[1]};
      break;
    case 3:
      shape = Shape{count, shape_[1], shape_[2]};
      break;
    default:
      shape = Shape{count, shape_[1], shape_[2], shape_[3]};
      break;
  }
  return Tensor(dtype_, shape, storage_, first_element_ + first * row);
}

bool Tensor::same_view(const Tensor& other) const {
  return storage_ == other.storage_ && first_element_ == other.first_element_ &&
         elements() == other.elements() && dtype_ == other.dtype_;
}

}  // namespace ringworld
