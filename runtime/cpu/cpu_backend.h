// The CPU backend: checks what a verb is called with, cuts the work into parts for the threads of
// the rank, and calls the kernels of the element type. The verbs' contract is in runtime/backend.h;
// here they are in files by kind: cpu_backend.cpp (data, elementwise, optimizers), cpu_matmul.cpp,
// cpu_vocabulary.cpp (embedding, cross-entropy), cpu_norms.cpp, cpu_attention.cpp and
// cpu_layers.cpp (the rest).
#pragma once

#include "runtime/backend.h"

namespace ringworld {

class CpuBackend final : public Backend {
 public:
  CpuBackend(std::shared_ptr<Device> device, int threads);

  std::string_view name() const override { return "cpu"; }
  int threads() const override { return threads_; }

  void upload(const Tensor& out, std::span<const std::byte> host) override;
  void download(std::span<std::byte> host, const Tensor& x) override;
  void fill(const Tensor& out, double value) override;
  void copy(const Tensor& out, const Tensor& x, bool passing) override;
  void cast(const Tensor& out, const Tensor& x) override;
  void normal(const Tensor& out, const RandomKey& key, std::int64_t first_index, double mean,
              double deviation) override;

  void add(const Tensor& out, const Tensor& a, const Tensor& b) override;
  void scale(const Tensor& x, double factor) override;
  void combine(const Tensor& out, const Tensor& a, const Tensor& b, ReduceOp op,
               bool passing) override;
  void divide(const Tensor& x, std::int64_t divisor) override;
  double sum(const Tensor& x) override;
  WideSum sum_of_squares(const Tensor& x) override;
  std::int64_t fingerprint(const Tensor& x) override;

  void matmul(const Tensor& out, const Tensor& a, const Tensor& b,
              const MatmulOptions& options) override;
  void fill_rows(const Tensor& out, const Tensor& bias) override;
  void sum_rows(const Tensor& out, const Tensor& x) override;

  void embedding_forward(const Tensor& y, const Tensor& tokens, const Tensor& table,
                         const Tensor& positions, std::optional<std::int64_t> first_token) override;
  void embedding_backward(const Tensor& dtable, const Tensor& dpositions, const Tensor& dy,
                          const Tensor& tokens, std::optional<std::int64_t> first_token) override;
  void layer_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& inverse_deviation,
                          const Tensor& x, const Tensor& weight, const Tensor& bias,
                          double epsilon) override;
  void layer_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                           const Tensor& dy, const Tensor& x, const Tensor& weight,
                           const Tensor& mean, const Tensor& inverse_deviation) override;
  void rms_norm_forward(const Tensor& y, const Tensor& inverse_rms, const Tensor& x,
                        const Tensor& weight, double epsilon) override;
  void rms_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dy, const Tensor& x,
                         const Tensor& weight, const Tensor& inverse_rms) override;
  void gelu_forward(const Tensor& y, const Tensor& x) override;
  void gelu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x) override;
  void swiglu_forward(const Tensor& y, const Tensor& x) override;
  void swiglu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x) override;
  void rotary(const Tensor& x, int heads, std::int64_t head_size, double theta, int sign) override;
  void dropout(const Tensor& out, const Tensor& x, const RandomKey& key, std::int64_t first_index,
               double probability) override;
  void attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv, int heads,
                         int kv_heads) override;
  void attention_backward(const Tensor& dqkv, const Tensor& dy, const Tensor& y,
                          const Tensor& log_sum_exp, const Tensor& qkv, int heads,
                          int kv_heads) override;
  void cross_entropy_forward(const Tensor& losses, const Tensor& log_sum_exp, const Tensor& logits,
                             const Tensor& targets,
                             std::optional<std::int64_t> first_class) override;
  void cross_entropy_join(const Tensor& losses, const Tensor& log_sum_exp, const Tensor& parts,
                          std::int64_t part, const Tensor& targets, std::int64_t first_class,
                          std::int64_t classes) override;
  void cross_entropy_backward(const Tensor& dlogits, const Tensor& logits, const Tensor& targets,
                              const Tensor& log_sum_exp, double factor,
                              std::optional<std::int64_t> first_class) override;

  void adamw(const Tensor& parameter, const Tensor& first_moment, const Tensor& second_moment,
             const Tensor& gradient, const AdamWStep& step) override;
  void sgd(const Tensor& parameter, const Tensor& velocity, const Tensor& gradient,
           const SgdStep& step) override;

 private:
  // Between a tensor and its wide_like, which may be the tensor itself.
  void cast_unless_same(const Tensor& out, const Tensor& x);

  const int threads_;
};

}  // namespace ringworld
