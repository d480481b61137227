// A tensor: element type, shape, and a view of a block of device memory; row-major, contiguous.
//
// Copying a Tensor copies the handle, not the elements: two tensors may view the same memory, and a
// const Tensor& is a fixed view of elements that may change, as a std::span is. Elements are read
// and written by a Backend only; upload and download there move them to and from the host.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "runtime/bytes.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace ringworld {

// Up to four axes. Shape{} is a scalar: one element.
class Shape {
 public:
  static constexpr int max_axes = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes) {
    for (const std::int64_t size : sizes) {
      if (axes_ == max_axes || size < 0) {
        refuse(sizes);
      }
      sizes_[static_cast<std::size_t>(axes_++)] = size;
    }
  }

  int axes() const { return axes_; }
  std::int64_t operator[](int axis) const;  // negative counts from the end: shape[-1]
  std::int64_t elements() const {
    std::int64_t product = 1;
    for (int axis = 0; axis < axes_; ++axis) {
      product *= sizes_[static_cast<std::size_t>(axis)];
    }
    return product;
  }
  // Rows of the matrix that the last axis makes the columns of: the product of all other axes.
  std::int64_t rows() const;
  bool operator==(const Shape& other) const = default;

 private:
  [[noreturn]] static void refuse(std::initializer_list<std::int64_t> sizes);

  std::array<std::int64_t, max_axes> sizes_{};
  int axes_ = 0;
};
std::string to_string(const Shape& shape);  // "(4, 64, 128)"

class Tensor {
 public:
  Tensor() = default;  // undefined: no memory, no shape
  Tensor(DType dtype, Shape shape, std::shared_ptr<const Storage> storage,
         std::int64_t first_element = 0)
      : dtype_(dtype), shape_(shape), storage_(std::move(storage)), first_element_(first_element) {}

  bool defined() const { return storage_ != nullptr; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t elements() const { return shape_.elements(); }
  Bytes bytes() const { return elements() * size_of(dtype_); }

  // The same elements under another shape of as many elements.
  Tensor view(Shape shape) const;
  // `count` consecutive elements from `first`, counted over the whole tensor, as one axis.
  Tensor slice(std::int64_t first, std::int64_t count) const;
  // As slice, but nothing that keeps the memory: for as long as another handle does, where counting
  // handles would cost more than what is done with this one.
  Tensor lent(std::int64_t first, std::int64_t count) const {
    check_slice(first, count);
    return Tensor(dtype_, Shape{count}, {std::shared_ptr<const Storage>(), storage_.get()},
                  first_element_ + first);
  }
  // `count` entries of the first axis from `first`: (N, ...) -> (count, ...).
  Tensor rows(std::int64_t first, std::int64_t count) const;
  // Whether both view the same elements, element for element.
  bool same_view(const Tensor& other) const;

  const std::shared_ptr<const Storage>& storage() const { return storage_; }
  std::int64_t first_element() const { return first_element_; }

 private:
  void check_slice(std::int64_t first, std::int64_t count) const {
    if (first < 0 || count < 0 || first > elements() - count) {
      refuse_slice(first, count);
    }
  }
  [[noreturn]] void refuse_slice(std::int64_t first, std::int64_t count) const;

  DType dtype_ = DType::f32;
  Shape shape_;
  std::shared_ptr<const Storage> storage_;
  std::int64_t first_element_ = 0;
};

}  // namespace ringworld
