// Layer norm and RMS norm: rows are shared among the threads, and what each thread's rows give to
// the gradients of weight and bias is added up in the order of the threads.
#include "runtime/cpu/checks.h"
#include "runtime/cpu/cpu_backend.h"
#include "runtime/cpu/layer_norm.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/rms_norm.h"
#include "runtime/cpu/workspace.h"
#include "runtime/raw.h"

namespace ringworld {

// --- Layer norm ---------------------------------------------------------------------------------

void CpuBackend::layer_norm_forward(const Tensor& y, const Tensor& mean,
                                    const Tensor& inverse_deviation, const Tensor& x,
                                    const Tensor& weight, const Tensor& bias, double epsilon) {
  check_floating("layer_norm_forward", {&y, &x, &weight, &bias});
  check_floating("layer_norm_forward", {&mean, &inverse_deviation});
  const std::int64_t rows = x.shape().rows();
  const std::int64_t width = width_of(x);
  check(
      y.elements() == x.elements() && width_of(y) == width && weight.elements() == width &&
          bias.elements() == width && mean.dtype() == wide_dtype(x.dtype()) &&
          mean.elements() == rows && inverse_deviation.elements() == rows,
      "layer_norm_forward",
      "y (..., C), mean (rows) f32/f64, inverse_deviation (rows) f32/f64, x (..., C), weight (C), "
      "bias (C)",
      {&y, &mean, &inverse_deviation, &x, &weight, &bias});
  with_floating_type(x.dtype(), [&]<typename T>() {
    using Sum = ComputeType<T>;
    const LayerNormForward<T> tensors{
        .y = raw<T>(y),
        .mean = raw<Sum>(mean),
        .inverse_deviation = raw<Sum>(inverse_deviation),
        .x = raw<T>(x),
        .weight = raw<T>(weight),
        .bias = raw<T>(bias),
        .width = width,
        .epsilon = epsilon,
    };
    const auto& kernels = layer_norm_kernels().of<T>();
    for_each_range(threads_, rows, rows_per_part(width), [&](std::int64_t begin, std::int64_t end) {
      kernels.forward(tensors, begin, end);
    });
  });
}

void CpuBackend::layer_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                                     const Tensor& dy, const Tensor& x, const Tensor& weight,
                                     const Tensor& mean, const Tensor& inverse_deviation) {
  check_floating("layer_norm_backward", {&dx, &dy, &x, &weight});
  check_floating("layer_norm_backward", {&dweight, &dbias});
  check_floating("layer_norm_backward", {&mean, &inverse_deviation});
  const std::int64_t rows = x.shape().rows();
  const std::int64_t width = width_of(x);
  const DType wide = wide_dtype(x.dtype());
  check(is_maybe_wide(dweight, x.dtype()) && dx.elements() == x.elements() &&
            width_of(dx) == width && dy.elements() == x.elements() && width_of(dy) == width &&
            dweight.elements() == width && dbias.elements() == width &&
            weight.elements() == width && mean.dtype() == wide && mean.elements() == rows &&
            inverse_deviation.elements() == rows,
        "layer_norm_backward",
        "dx (..., C), dweight (C), dbias (C), dy (..., C), x (..., C), weight (C), "
        "mean (rows) f32/f64, inverse_deviation (rows) f32/f64",
        {&dx, &dweight, &dbias, &dy, &x, &weight, &mean, &inverse_deviation});
  const Tensor sums = layer_norm_backward_workspace(*this, x);
  const std::int64_t parts = sums.shape()[0];
  with_floating_type(x.dtype(), [&]<typename T>() {
    using Sum = ComputeType<T>;
    const LayerNormBackward<T> tensors{
        .dx = raw<T>(dx),
        .dy = raw<T>(dy),
        .x = raw<T>(x),
        .weight = raw<T>(weight),
        .mean = raw<Sum>(mean),
        .inverse_deviation = raw<Sum>(inverse_deviation),
        .width = width,
    };
    const auto& kernels = layer_norm_kernels().of<T>();
    Sum* const part_sums = raw<Sum>(sums);
    for_each_part(threads_, rows, rows_per_part(width),
                  [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
                    kernels.backward(tensors, part_sums + part * 2 * width, begin, end);
                  });
    const auto add_sums = [&]<typename Out>(Out* to_weight, Out* to_bias) {
      const auto add = layer_norm_kernels().of<Out>().add_sums;
      add(to_weight, part_sums, parts, 2 * width, width);
      add(to_bias, part_sums + width, parts, 2 * width, width);
    };
    if (dweight.dtype() == x.dtype()) {
      add_sums(raw<T>(dweight), raw<T>(dbias));
    } else {
      add_sums(raw<Sum>(dweight), raw<Sum>(dbias));
    }
  });
}

// --- RMS norm -----------------------------------------------------------------------------------

void CpuBackend::rms_norm_forward(const Tensor& y, const Tensor& inverse_rms, const Tensor& x,
                                  const Tensor& weight, double epsilon) {
  check_floating("rms_norm_forward", {&y, &x, &weight});
  check_floating("rms_norm_forward", {&inverse_rms});
  const std::int64_t rows = x.shape().rows();
  const std::int64_t width = width_of(x);
  check(y.elements() == x.elements() && width_of(y) == width && weight.elements() == width &&
            inverse_rms.dtype() == wide_dtype(x.dtype()) && inverse_rms.elements() == rows,
        "rms_norm_forward", "y (..., C), inverse_rms (rows) f32/f64, x (..., C), weight (C)",
        {&y, &inverse_rms, &x, &weight});
  with_floating_type(x.dtype(), [&]<typename T>() {
    const RmsNormForward<T> tensors{
        .y = raw<T>(y),
        .inverse_rms = raw<ComputeType<T>>(inverse_rms),
        .x = raw<T>(x),
        .weight = raw<T>(weight),
        .width = width,
        .epsilon = epsilon,
    };
    const auto& kernels = rms_norm_kernels().of<T>();
    for_each_range(threads_, rows, rows_per_part(width), [&](std::int64_t begin, std::int64_t end) {
      kernels.forward(tensors, begin, end);
    });
  });
}

void CpuBackend::rms_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dy,
                                   const Tensor& x, const Tensor& weight,
                                   const Tensor& inverse_rms) {
  check_floating("rms_norm_backward", {&dx, &dy, &x, &weight});
  check_floating("rms_norm_backward", {&inverse_rms});
  const std::int64_t rows = x.shape().rows();
  const std::int64_t width = width_of(x);
  check(is_maybe_wide(dweight, x.dtype()) && dx.elements() == x.elements() &&
            width_of(dx) == width && dy.elements() == x.elements() && width_of(dy) == width &&
            dweight.elements() == width && weight.elements() == width &&
            inverse_rms.dtype() == wide_dtype(x.dtype()) && inverse_rms.elements() == rows,
        "rms_norm_backward",
        "dx (..., C), dweight (C), dy (..., C), x (..., C), weight (C), inverse_rms (rows) f32/f64",
        {&dx, &dweight, &dy, &x, &weight, &inverse_rms});
  const Tensor sums = rms_norm_backward_workspace(*this, x);
  const std::int64_t parts = sums.shape()[0];
  with_floating_type(x.dtype(), [&]<typename T>() {
    using Sum = ComputeType<T>;
    const RmsNormBackward<T> tensors{
        .dx = raw<T>(dx),
        .dy = raw<T>(dy),
        .x = raw<T>(x),
        .weight = raw<T>(weight),
        .inverse_rms = raw<Sum>(inverse_rms),
        .width = width,
    };
    const auto& kernels = rms_norm_kernels().of<T>();
    Sum* const part_sums = raw<Sum>(sums);
    for_each_part(threads_, rows, rows_per_part(width),
                  [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
                    kernels.backward(tensors, part_sums + part * width, begin, end);
                  });
    if (dweight.dtype() == x.dtype()) {
      layer_norm_kernels().of<T>().add_sums(raw<T>(dweight), part_sums, parts, width, width);
    } else {
      layer_norm_kernels().of<Sum>().add_sums(raw<Sum>(dweight), part_sums, parts, width, width);
    }
  });
}

}  // namespace ringworld
