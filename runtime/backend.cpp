#include "runtime/backend.h"

#include <cstring>
#include <stdexcept>

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

constexpr std::string_view reduce_op_names[] = {"sum", "avg", "min", "max"};

// Calls f with a null pointer of the C++ type of the dtype.
template <typename F>
void with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::f64:
      return f(static_cast<double*>(nullptr));
    case DType::f32:
      return f(static_cast<float*>(nullptr));
    case DType::bf16:
      return f(static_cast<bf16*>(nullptr));
    case DType::f16:
      return f(static_cast<f16*>(nullptr));
    case DType::i64:
      return f(static_cast<std::int64_t*>(nullptr));
    case DType::i32:
      return f(static_cast<std::int32_t*>(nullptr));
    case DType::i8:
      return f(static_cast<std::int8_t*>(nullptr));
  }
}

template <typename T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, f16>) {
    return to_f16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
double as_double(T value) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>) {
    return static_cast<double>(to_float(value));
  } else {
    return static_cast<double>(value);
  }
}

}  // namespace

std::string_view name_of(ReduceOp op) {
  return reduce_op_names[static_cast<std::size_t>(op)];
}

ReduceOp parse_reduce_op(std::string_view text) {
  for (const ReduceOp op : all_reduce_ops) {
    if (name_of(op) == text) {
      return op;
    }
  }
  throw UsageError(fmt::format("unknown reduction '{}'; known: sum, avg, min, max", text));
}

Tensor Backend::empty(DType dtype, Shape shape, Category category) {
  const Bytes bytes = shape.elements() * size_of(dtype);
  return Tensor(dtype, shape, device_->allocate(bytes, category));
}

Tensor Backend::zeros(DType dtype, Shape shape, Category category) {
  Tensor tensor = empty(dtype, shape, category);
  fill(tensor, 0);
  return tensor;
}

void Backend::count_matmul(const Tensor& out, const Tensor& a, const MatmulOptions& options) {
  const std::int64_t columns = a.shape().axes() == 0 ? 1 : a.shape()[-1];
  const std::int64_t k = options.transpose_a ? a.shape().rows() : columns;
  flops_.matmul += 2.0 * static_cast<double>(out.elements()) * static_cast<double>(k);
}

void Backend::count_attention_forward(const Tensor& y) {
  flops_.attention_forward +=
      4.0 * static_cast<double>(y.elements()) * static_cast<double>(y.shape()[1]);
}

void Backend::count_attention_backward(const Tensor& dy) {
  flops_.attention_backward +=
      8.0 * static_cast<double>(dy.elements()) * static_cast<double>(dy.shape()[1]);
}

void Backend::upload_values(const Tensor& out, std::span<const double> values) {
  if (static_cast<std::int64_t>(values.size()) != out.elements()) {
    throw std::invalid_argument(
        fmt::format("upload_values: {} values into {}", values.size(), to_string(out.shape())));
  }
  with_type(out.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    std::vector<T> host(values.size());
    for (std::size_t i = 0; i < host.size(); ++i) {
      host[i] = from_double<T>(values[i]);
    }
    upload(out, std::as_bytes(std::span(host)));
  });
}

std::vector<double> Backend::download_values(const Tensor& x) {
  std::vector<double> values(static_cast<std::size_t>(x.elements()));
  with_type(x.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    std::vector<T> host(values.size());
    download(std::as_writable_bytes(std::span(host)), x);
    for (std::size_t i = 0; i < host.size(); ++i) {
      values[i] = as_double(host[i]);
    }
  });
  return values;
}

}  // namespace ringworld
