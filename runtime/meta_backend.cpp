#include "runtime/meta_backend.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "runtime/cpu/workspace.h"

namespace ringworld {
namespace {

class MetaBackend final : public Backend {
 public:
  MetaBackend(std::shared_ptr<Device> device, int threads)
      : Backend(std::move(device)), threads_(threads) {
    if (threads < 1) {
      throw std::invalid_argument(fmt::format("a meta backend with {} threads", threads));
    }
  }

  std::string_view name() const override { return "meta"; }
  int threads() const override { return threads_; }

  void upload(const Tensor&, std::span<const std::byte>) override {}
  void download(std::span<std::byte> host, const Tensor&) override {
    std::ranges::fill(host, std::byte{0});
  }
  void fill(const Tensor&, double) override {}
  void copy(const Tensor&, const Tensor&, bool) override {}
  void cast(const Tensor&, const Tensor&) override {}
  void normal(const Tensor&, const RandomKey&, std::int64_t, double, double) override {}

  void add(const Tensor&, const Tensor&, const Tensor&) override {}
  void scale(const Tensor&, double) override {}
  void combine(const Tensor&, const Tensor&, const Tensor&, ReduceOp, bool) override {}
  void divide(const Tensor&, std::int64_t) override {}
  double sum(const Tensor&) override { return 0; }
  WideSum sum_of_squares(const Tensor&) override { return {}; }
  std::int64_t fingerprint(const Tensor&) override { return 0; }

  void matmul(const Tensor& out, const Tensor& a, const Tensor& b,
              const MatmulOptions& options) override {
    count_matmul(out, a, options);
    matmul_workspace(*this, out, a, b, options);
  }
  void fill_rows(const Tensor&, const Tensor&) override {}
  void sum_rows(const Tensor&, const Tensor&) override {}

  void embedding_forward(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                         std::optional<std::int64_t>) override {}
  void embedding_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          std::optional<std::int64_t>) override {}
  void layer_norm_forward(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&, double) override {}
  void layer_norm_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                           const Tensor& x, const Tensor&, const Tensor&, const Tensor&) override {
    layer_norm_backward_workspace(*this, x);
  }
  void rms_norm_forward(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                        double) override {}
  void rms_norm_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor& x,
                         const Tensor&, const Tensor&) override {
    rms_norm_backward_workspace(*this, x);
  }
  void dropout(const Tensor&, const Tensor&, const RandomKey&, std::int64_t, double) override {}
  void gelu_forward(const Tensor&, const Tensor&) override {}
  void gelu_backward(const Tensor&, const Tensor&, const Tensor&) override {}
  void swiglu_forward(const Tensor&, const Tensor&) override {}
  void swiglu_backward(const Tensor&, const Tensor&, const Tensor&) override {}
  void rotary(const Tensor& x, int heads, std::int64_t head_size, double, int) override {
    rotary_workspace(*this, x, heads, head_size);
  }
  void attention_forward(const Tensor& y, const Tensor&, const Tensor& qkv, int heads,
                         int) override {
    if (qkv.elements() > 0) {
      count_attention_forward(y);
      attention_forward_workspace(*this, y, qkv, heads);
    }
  }
  void attention_backward(const Tensor& dqkv, const Tensor& dy, const Tensor& y, const Tensor&,
                          const Tensor& qkv, int, int kv_heads) override {
    if (qkv.elements() > 0) {
      count_attention_backward(dy);
      attention_backward_workspace(*this, dqkv, dy, y, qkv, kv_heads);
    }
  }
  void cross_entropy_forward(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                             std::optional<std::int64_t>) override {}
  void cross_entropy_join(const Tensor&, const Tensor&, const Tensor&, std::int64_t, const Tensor&,
                          std::int64_t, std::int64_t) override {}
  void cross_entropy_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&, double,
                              std::optional<std::int64_t>) override {}

  void adamw(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
             const AdamWStep&) override {}
  void sgd(const Tensor&, const Tensor&, const Tensor&, const SgdStep&) override {}

 private:
  const int threads_;
};

}  // namespace

std::shared_ptr<Device> make_meta_device(Bytes budget) {
  return Device::create({.budget = budget, .poison = false}, make_no_memory());
}

std::unique_ptr<Backend> make_meta_backend(std::shared_ptr<Device> device, int threads) {
  return std::make_unique<MetaBackend>(std::move(device), threads);
}

}  // namespace ringworld
