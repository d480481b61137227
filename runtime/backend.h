// The compute verbs that models, optimizers and collectives need, on one device.
//
// Implementations: `cpu` (runtime/cpu/) and `meta` (meta_backend.h), which computes nothing. Others
// follow the same contract, and nothing above runtime/ knows which one runs. Conventions that hold
// for every verb:
//
//  - Outputs come first; the caller allocates them. "=" overwrites, "+=" adds to what is there.
//  - All floating tensors of one call have one dtype unless the verb says otherwise; f64 computes
//    in f64, everything else in f32. bf16 and f16 inputs are widened, results rounded once, and
//    sums are kept in f32, as tensor cores do. Tensors called "f32/f64" are f64 in an f64 call,
//    else f32.
//  - Gradients of parameters, marked "wide" here, may be f32 where the rest is bf16 or f16: they
//    are added to over many micro-batches. gradient_dtype(dtype) says what a model's are.
//  - Shapes are checked; what does not fit throws std::invalid_argument that names verb and shapes
//    (a bug in the caller, not in the user's input).
//  - Outputs may not alias inputs unless the verb says so.
//  - The same call with the same inputs gives the same bits, whatever ran before.
//  - A verb may be called by the compute thread while the communication stream calls another one on
//    other tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device.h"
#include "runtime/random.h"
#include "runtime/tensor.h"
#include "runtime/wide_sum.h"

namespace ringworld {

// Of what is written that much at once, the first has left the caches before the last is there. It
// is better written past them: with two ranks on two cores, that takes a sixth to a half off a 64
// MiB all-gather. What is smaller, and read next, is better left there.
inline constexpr Bytes passing_bytes{16 << 20};

enum class ReduceOp : std::uint8_t { sum, avg, min, max };
inline constexpr ReduceOp all_reduce_ops[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::min,
                                              ReduceOp::max};
std::string_view name_of(ReduceOp op);
ReduceOp parse_reduce_op(std::string_view text);  // throws UsageError that lists the known ones

struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  // out += instead of out =
};

// Hyperparameters of one AdamW update (Loshchilov and Hutter, ICLR 2019). `gradient_scale`
// multiplies the gradient first (clipping), `step` counts from 1.
struct AdamWStep {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;
  std::int64_t step = 1;
};

// One update of SGD with momentum as PyTorch defines it: v = momentum v + g, p -= learning_rate v,
// with decoupled weight decay. With momentum 0 no velocity is needed.
struct SgdStep {
  double learning_rate = 0;
  double momentum = 0;
  double weight_decay = 0;
  double gradient_scale = 1;
};

// Floating-point operations of the verbs called so far, by kind; additions and multiplications
// count one each. Everything else is a few percent of these and is not counted.
struct Flops {
  double matmul = 0;  // 2 M N K a product
  // As model FLOPs are counted by custom (Chowdhery et al., "PaLM", 2022, appendix B): 4 B T^2
  // times the width of all query heads forward and twice that backward, as if there were no causal
  // mask, and without computing the scores again.
  double attention_forward = 0;
  double attention_backward = 0;
  double total() const { return matmul + attention_forward + attention_backward; }
  friend Flops operator-(const Flops& a, const Flops& b) {
    return {a.matmul - b.matmul, a.attention_forward - b.attention_forward,
            a.attention_backward - b.attention_backward};
  }
};

class Backend {
 public:
  explicit Backend(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  virtual ~Backend() = default;

  Device& device() { return *device_; }
  virtual std::string_view name() const = 0;
  virtual int threads() const = 0;
  const Flops& flops() const { return flops_; }

  // Allocation. `empty` is undefined content, `zeros` all zero.
  Tensor empty(DType dtype, Shape shape, Category category);
  Tensor zeros(DType dtype, Shape shape, Category category);

  // --- Moving data -------------------------------------------------------------------------------
  // Between host memory and a tensor; `host` holds exactly the tensor's bytes, in its dtype.
  virtual void upload(const Tensor& out, std::span<const std::byte> host) = 0;
  virtual void download(std::span<std::byte> host, const Tensor& x) = 0;
  // Through doubles, for any dtype; for tests, metrics and small tensors.
  void upload_values(const Tensor& out, std::span<const double> values);
  std::vector<double> download_values(const Tensor& x);

  virtual void fill(const Tensor& out, double value) = 0;
  // Same dtype and element count. `passing`: out is a part of passing_bytes or more.
  virtual void copy(const Tensor& out, const Tensor& x, bool passing = false) = 0;
  virtual void cast(const Tensor& out, const Tensor& x) = 0;  // any two floating dtypes
  // out[i] = mean + deviation * normal(key, first_index + i)
  virtual void normal(const Tensor& out, const RandomKey& key, std::int64_t first_index,
                      double mean, double deviation) = 0;

  // --- Elementwise and reductions ----------------------------------------------------------------
  virtual void add(const Tensor& out, const Tensor& a, const Tensor& b) = 0;  // out may be a or b
  virtual void scale(const Tensor& x, double factor) = 0;                     // x *= factor
  // out = a (op) b, any dtype, for collectives; out may be a or b. avg adds, as sum does: the
  // division comes once, at the end, through divide. min and max pass NaN on, whichever side it is
  // on. Integers wrap. `passing`: out is a part of passing_bytes or more, and not a or b.
  virtual void combine(const Tensor& out, const Tensor& a, const Tensor& b, ReduceOp op,
                       bool passing = false) = 0;
  void combine(const Tensor& out, const Tensor& x, ReduceOp op) { combine(out, out, x, op); }
  // x /= divisor, any dtype; integers are truncated towards zero.
  virtual void divide(const Tensor& x, std::int64_t divisor) = 0;
  virtual double sum(const Tensor& x) = 0;  // in f64, floating dtypes
  // Of any floating dtype. Sums over the parts of a tensor add up to the f64 that the sum over the
  // whole becomes, bit for bit, however it is cut. Not finite if any element is not.
  virtual WideSum sum_of_squares(const Tensor& x) = 0;
  // A 63-bit fingerprint of the tensor's bytes and element count.
  virtual std::int64_t fingerprint(const Tensor& x) = 0;

  // --- Matrix products ---------------------------------------------------------------------------
  // out (M, N) = op(a) (M, K) * op(b) (K, N); every tensor is taken as (rows, last axis). out may
  // be wide.
  virtual void matmul(const Tensor& out, const Tensor& a, const Tensor& b,
                      const MatmulOptions& options = {}) = 0;
  // out (..., N) = bias (N) in every row; matmul with accumulate then adds the product.
  virtual void fill_rows(const Tensor& out, const Tensor& bias) = 0;
  // out (N) += sum over rows of x (..., N): a bias's gradient. out may be wide.
  virtual void sum_rows(const Tensor& out, const Tensor& x) = 0;

  // --- Layers ------------------------------------------------------------------------------------
  // Embedding: y (B, T, C) = table[tokens] + positions[t]. tokens (B, T) i32 in [0, V);
  // table (V, C); positions (>= T, C) or undefined. With `first_token` the table is a part of a
  // larger one, from that token on: tokens that it does not hold have a zero row there.
  virtual void embedding_forward(const Tensor& y, const Tensor& tokens, const Tensor& table,
                                 const Tensor& positions,
                                 std::optional<std::int64_t> first_token = {}) = 0;
  // dtable += , dpositions += (undefined: skipped), dy (B, T, C). Each of the first two may be
  // wide. `first_token` as above: tokens that dtable does not hold add nothing to it.
  virtual void embedding_backward(const Tensor& dtable, const Tensor& dpositions, const Tensor& dy,
                                  const Tensor& tokens,
                                  std::optional<std::int64_t> first_token = {}) = 0;

  // Layer normalisation over the last axis (Ba et al., 2016): x, y (..., C); weight, bias (C);
  // mean, inverse_deviation (rows) f32/f64 are kept for backward.
  virtual void layer_norm_forward(const Tensor& y, const Tensor& mean,
                                  const Tensor& inverse_deviation, const Tensor& x,
                                  const Tensor& weight, const Tensor& bias, double epsilon) = 0;
  // dx += (the residual's gradient is already there); dweight +=, dbias +=. dx may not be dy.
  // dweight and dbias may be wide, both.
  virtual void layer_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                                   const Tensor& dy, const Tensor& x, const Tensor& weight,
                                   const Tensor& mean, const Tensor& inverse_deviation) = 0;

  // Root mean square normalisation over the last axis (Zhang and Sennrich, NeurIPS 2019):
  // y = x inverse_rms weight, inverse_rms = 1 / sqrt(mean of x^2 + epsilon). x, y (..., C);
  // weight (C); inverse_rms (rows) f32/f64 is kept for backward.
  virtual void rms_norm_forward(const Tensor& y, const Tensor& inverse_rms, const Tensor& x,
                                const Tensor& weight, double epsilon) = 0;
  // dx += (the residual's gradient is already there); dweight +=, which may be wide. dx may not be
  // dy.
  virtual void rms_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dy,
                                 const Tensor& x, const Tensor& weight,
                                 const Tensor& inverse_rms) = 0;

  // GELU with the tanh approximation, as in GPT-2 (Hendrycks and Gimpel, 2016).
  virtual void gelu_forward(const Tensor& y, const Tensor& x) = 0;
  virtual void gelu_backward(const Tensor& dx, const Tensor& dy,
                             const Tensor& x) = 0;  // dx may be dy

  // SwiGLU (Shazeer, "GLU Variants Improve Transformer", 2020): y (..., H) = silu(gate) * up with
  // silu(g) = g / (1 + e^-g); a row of x (..., 2H) is H of gate, then H of up.
  virtual void swiglu_forward(const Tensor& y, const Tensor& x) = 0;
  // dx (..., 2H) = , dy (..., H); dx may be x.
  virtual void swiglu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x) = 0;

  // Rotary positions (Su et al., "RoFormer", 2021), in place: turns the first `heads` heads,
  // `head_size` D elements each, of every row of x (B, T, >= heads * D); what follows them stays.
  // Elements (i, i + D/2) of a head at position t are a pair, turned by t * theta^(-2i/D): halves,
  // as in Llama's checkpoints at Hugging Face, not neighbours. Angles are f64. `sign` is 1 or -1,
  // which turns back: the gradient of the unturned x.
  virtual void rotary(const Tensor& x, int heads, std::int64_t head_size, double theta,
                      int sign) = 0;

  // Inverted dropout (Srivastava et al., JMLR 2014): out[i] = x[i] / (1 - probability) where
  // random_uniform(key, first_index + i) >= probability, else 0; out may be x. The mask is not
  // kept: backward is the same call on the gradient. Probability is in [0, 1); with 0 out is x,
  // bit for bit.
  virtual void dropout(const Tensor& out, const Tensor& x, const RandomKey& key,
                       std::int64_t first_index, double probability) = 0;

  // Causal multi-head attention: qkv (B, T, (heads + 2 kv_heads) D) is queries, keys and values,
  // the heads of each side by side; y (B, T, heads D). Consecutive heads / kv_heads queries share a
  // head of keys and values (grouped-query attention, Ainslie et al., 2023). Scores are scaled by
  // 1/sqrt(D). Instead of the probabilities only their log-sum-exp (B, heads, T) f32/f64 is kept;
  // backward computes them again (FlashAttention, Dao et al., 2022), so memory grows with T, not
  // T^2.
  virtual void attention_forward(const Tensor& y, const Tensor& log_sum_exp, const Tensor& qkv,
                                 int heads, int kv_heads) = 0;
  virtual void attention_backward(const Tensor& dqkv, const Tensor& dy, const Tensor& y,
                                  const Tensor& log_sum_exp, const Tensor& qkv, int heads,
                                  int kv_heads) = 0;

  // Cross-entropy of softmax: logits (..., V), targets (rows) i32 in [0, V), or negative for a
  // token that is not trained and costs 0. losses, log_sum_exp (rows) f32/f64.
  // With `first_class` the logits are a part of wider ones, from that class on: log_sum_exp is the
  // part's alone, and a target that the part does not hold costs 0. cross_entropy_join makes the
  // parts one.
  virtual void cross_entropy_forward(const Tensor& losses, const Tensor& log_sum_exp,
                                     const Tensor& logits, const Tensor& targets,
                                     std::optional<std::int64_t> first_class = {}) = 0;
  // Of one part of logits that are split by classes (Megatron-LM, Shoeybi et al., 2019, section 3):
  // log_sum_exp (rows) = that of all logits, from parts (n, rows), every part's own; losses (rows)
  // of part number `part` += what its loss lacks, in rows whose target is in [first_class,
  // first_class + classes). The sum of losses over the parts is then the token's. f32/f64;
  // log_sum_exp is the same bits for every part.
  virtual void cross_entropy_join(const Tensor& losses, const Tensor& log_sum_exp,
                                  const Tensor& parts, std::int64_t part, const Tensor& targets,
                                  std::int64_t first_class, std::int64_t classes) = 0;
  // dlogits = factor * (softmax(logits) - onehot(targets)), 0 in rows that are not trained.
  // dlogits may be logits. With `first_class`, as above, of a part, for log_sum_exp of all.
  virtual void cross_entropy_backward(const Tensor& dlogits, const Tensor& logits,
                                      const Tensor& targets, const Tensor& log_sum_exp,
                                      double factor,
                                      std::optional<std::int64_t> first_class = {}) = 0;

  // --- Optimizers --------------------------------------------------------------------------------
  // One pass over parameter, first and second moment, and gradient; equal element counts.
  virtual void adamw(const Tensor& parameter, const Tensor& first_moment,
                     const Tensor& second_moment, const Tensor& gradient,
                     const AdamWStep& step) = 0;
  // velocity may be undefined when momentum is 0.
  virtual void sgd(const Tensor& parameter, const Tensor& velocity, const Tensor& gradient,
                   const SgdStep& step) = 0;

 protected:
  // For the verbs of the same names to call.
  void count_matmul(const Tensor& out, const Tensor& a, const MatmulOptions& options);
  void count_attention_forward(const Tensor& y);
  void count_attention_backward(const Tensor& dy);

 private:
  std::shared_ptr<Device> device_;
  Flops flops_;
};

// The CPU backend: OpenBLAS for matrix products, SIMD for the rest, `threads` threads for both.
std::unique_ptr<Backend> make_cpu_backend(std::shared_ptr<Device> device, int threads);

// Variables that must be in a process's environment when it starts, for the CPU backend to be fast
// on this machine: names and values.
std::vector<std::pair<std::string, std::string>> cpu_backend_environment();

}  // namespace ringworld
