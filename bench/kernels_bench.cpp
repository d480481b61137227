// The CPU backend's kernels against the memory bound.
//
// Sizes are those of GPT-2 124M with 256 tokens per rank (sequence 64, micro-batch 4), on one
// thread. For each kernel: bytes that must move, per second, and their share of what a STREAM triad
// reaches in this process (McCalpin, 1995; its bytes, too, are counted without write-allocate).
// Activations of this size fit the second- or third-level cache, so shares above 1 are no error;
// the rows called "large" do not. `step` is one of everything but the large matrix products, as one
// optimizer step of a rank needs them: its share of the step is what the kernels cost a user. The
// rows called "matmul" are there to hold bf16 against f32: widening should cost little.
#include <algorithm>
#include <ctime>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "runtime/backend.h"
#include "runtime/cpu/instruction_sets.h"

namespace ringworld {
namespace {

constexpr std::int64_t batch = 4;
constexpr std::int64_t length = 64;
constexpr std::int64_t width = 768;
constexpr std::int64_t blocks = 12;
constexpr int heads = 12;
constexpr std::int64_t vocabulary = 50257;
constexpr std::int64_t parameters = 124439808;
constexpr std::int64_t large = std::int64_t{1} << 25;

// Bytes per second of a[i] = b[i] + 3 c[i] over arrays far larger than any cache; the best of ten.
double triad_bandwidth() {
  constexpr std::size_t n = std::size_t{1} << 24;
  std::vector<double> a(n, 1), b(n, 2), c(n, 3);
  std::clock_t best = std::numeric_limits<std::clock_t>::max();
  for (int repetition = 0; repetition < 10; ++repetition) {
    const std::clock_t start = std::clock();
    for (std::size_t i = 0; i < n; ++i) {
      a[i] = b[i] + 3.0 * c[i];
    }
    benchmark::DoNotOptimize(a.data());
    benchmark::ClobberMemory();
    best = std::min(best, std::clock() - start);
  }
  return 3 * sizeof(double) * static_cast<double>(n) * CLOCKS_PER_SEC / static_cast<double>(best);
}

// One kernel at one size: how many bytes it must read and write, and how often a step runs it.
struct Row {
  std::string name;
  std::int64_t bytes;
  int per_step;  // 0: not part of the step
  std::function<void()> run;
};

class Kernels {
 public:
  explicit Kernels(Backend& backend) : backend_(backend) {}

  std::vector<Row> rows(DType dtype);

 private:
  Tensor activation(DType dtype, Shape shape) {
    const Tensor x = backend_.empty(dtype, shape, Category::activations);
    if (is_floating(dtype)) {
      backend_.normal(x, {.seed = ++seed_}, 0, 0, 1);
    } else {
      backend_.fill(x, 17);
    }
    return x;
  }

  Backend& backend_;
  std::uint64_t seed_ = 0;
};

std::vector<Row> Kernels::rows(DType dtype) {
  Backend& k = backend_;
  const std::int64_t size = size_of(dtype).value;
  const Shape tokens_shape{batch, length};
  const Tensor x = activation(dtype, Shape{batch, length, width});
  const Tensor y = activation(dtype, Shape{batch, length, width});
  const Tensor z = activation(dtype, Shape{batch, length, width});
  const Tensor hidden = activation(dtype, Shape{batch, length, 4 * width});
  const Tensor dhidden = activation(dtype, Shape{batch, length, 4 * width});
  const Tensor half_hidden = activation(dtype, Shape{batch, length, 2 * width});
  const Tensor qkv = activation(dtype, Shape{batch, length, 3 * width});
  const Tensor dqkv = activation(dtype, Shape{batch, length, 3 * width});
  const Tensor weight = activation(dtype, Shape{width});
  const Tensor bias = activation(dtype, Shape{width});
  const Tensor hidden_bias = activation(dtype, Shape{4 * width});
  const Tensor mean = k.zeros(DType::f32, Shape{batch * length}, Category::activations);
  const Tensor deviation = k.zeros(DType::f32, Shape{batch * length}, Category::activations);
  k.fill(deviation, 1);
  const Tensor lse = k.zeros(DType::f32, Shape{batch, heads, length}, Category::activations);
  const Tensor row_lse = k.zeros(DType::f32, Shape{batch * length}, Category::activations);
  const Tensor losses = k.zeros(DType::f32, Shape{batch * length}, Category::activations);
  const Tensor tokens = activation(DType::i32, tokens_shape);
  const Tensor targets = activation(DType::i32, Shape{batch * length});
  const Tensor table = activation(dtype, Shape{vocabulary, width});
  const Tensor positions = activation(dtype, Shape{length, width});
  const Tensor logits = activation(dtype, Shape{batch * length, vocabulary});
  const Tensor dlogits = k.empty(dtype, logits.shape(), Category::activations);
  k.attention_forward(y, lse, qkv, heads, heads);
  k.cross_entropy_forward(losses, row_lse, logits, targets);

  const std::int64_t n = x.bytes().value;
  const std::int64_t v = logits.bytes().value;
  const int norms = 2 * blocks + 1;
  std::vector<Row> rows{
      {"embedding_forward", 2 * n, 1,
       [=, &k] { k.embedding_forward(x, tokens, table, positions); }},
      {"embedding_backward", n, 1, [=, &k] { k.embedding_backward(table, positions, y, tokens); }},
      {"layer_norm_forward", 2 * n, norms,
       [=, &k] { k.layer_norm_forward(z, mean, deviation, x, weight, bias, 1e-5); }},
      {"layer_norm_backward", 4 * n, norms,
       [=, &k] { k.layer_norm_backward(z, weight, bias, y, x, weight, mean, deviation); }},
      {"attention_forward", 4 * n, blocks,
       [=, &k] { k.attention_forward(y, lse, qkv, heads, heads); }},
      {"attention_backward", 8 * n, blocks,
       [=, &k] { k.attention_backward(dqkv, x, y, lse, qkv, heads, heads); }},
      {"gelu_forward", 8 * n, blocks, [=, &k] { k.gelu_forward(dhidden, hidden); }},
      {"gelu_backward", 12 * n, blocks, [=, &k] { k.gelu_backward(dhidden, dhidden, hidden); }},
      {"add", 3 * n, 2 * blocks, [=, &k] { k.add(z, x, y); }},
      {"fill_rows 768", n, 2 * blocks, [=, &k] { k.fill_rows(z, bias); }},
      {"fill_rows 3072", 4 * n, 2 * blocks, [=, &k] { k.fill_rows(dhidden, hidden_bias); }},
      {"sum_rows 768", n, 2 * blocks, [=, &k] { k.sum_rows(bias, x); }},
      {"sum_rows 3072", 4 * n, 2 * blocks, [=, &k] { k.sum_rows(hidden_bias, hidden); }},
      {"cross_entropy_forward", v, 1,
       [=, &k] { k.cross_entropy_forward(losses, row_lse, logits, targets); }},
      {"cross_entropy_backward", 2 * v, 1,
       [=, &k] { k.cross_entropy_backward(dlogits, logits, targets, row_lse, 0.1); }},
      // What Llama has in place of layer norm, GELU and learned positions.
      {"rms_norm_forward", 2 * n, 0,
       [=, &k] { k.rms_norm_forward(z, deviation, x, weight, 1e-5); }},
      {"rms_norm_backward", 4 * n, 0,
       [=, &k] { k.rms_norm_backward(z, weight, y, x, weight, deviation); }},
      {"swiglu_forward", 6 * n, 0, [=, &k] { k.swiglu_forward(half_hidden, hidden); }},
      {"swiglu_backward", 10 * n, 0, [=, &k] { k.swiglu_backward(dhidden, half_hidden, hidden); }},
      {"rotary", 4 * n, 0, [=, &k] { k.rotary(dqkv, 2 * heads, width / heads, 1e4, 1); }},
  };

  const Tensor p = activation(dtype, Shape{large});
  const Tensor m = k.zeros(dtype, Shape{large}, Category::optimizer);
  const Tensor s = k.zeros(dtype, Shape{large}, Category::optimizer);
  const Tensor g = activation(dtype, Shape{large});
  const Tensor other =
      k.empty(dtype == DType::f32 ? DType::bf16 : DType::f32, Shape{large}, Category::activations);
  const Tensor fc = activation(dtype, Shape{4 * width, width});
  const Tensor dfc = activation(gradient_dtype(dtype), Shape{4 * width, width});
  const Tensor dtable = activation(gradient_dtype(dtype), Shape{vocabulary, width});
  const Shape matrix{large / width, width};
  const std::int64_t matrix_elements = matrix.elements();
  const Tensor norm_mean = k.zeros(DType::f32, Shape{matrix[0]}, Category::activations);
  const Tensor norm_deviation = k.zeros(DType::f32, Shape{matrix[0]}, Category::activations);
  k.fill(norm_deviation, 1);
  const auto rows_of = [=](const Tensor& t) { return t.slice(0, matrix_elements).view(matrix); };
  const Tensor pm = rows_of(p), mm = rows_of(m), gm = rows_of(g);
  const std::int64_t b = large * size;
  const AdamWStep step{.learning_rate = 1e-4, .weight_decay = 0.1, .step = 10};
  const std::vector<Row> large_rows{
      {"large adamw", 7 * b, 0, [=, &k] { k.adamw(p, m, s, g, step); }},
      {"large sgd", 5 * b, 0,
       [=, &k] { k.sgd(p, m, g, {.learning_rate = 1e-4, .momentum = 0.9}); }},
      {"large sum_of_squares", b, 0, [=, &k] { benchmark::DoNotOptimize(k.sum_of_squares(g)); }},
      {"large sum", b, 0, [=, &k] { benchmark::DoNotOptimize(k.sum(g)); }},
      {"large fingerprint", b, 0, [=, &k] { benchmark::DoNotOptimize(k.fingerprint(g)); }},
      {"large combine sum", 3 * b, 0, [=, &k] { k.combine(p, g, ReduceOp::sum); }},
      {"large combine max", 3 * b, 0, [=, &k] { k.combine(p, g, ReduceOp::max); }},
      {"large divide", 2 * b, 0, [=, &k] { k.divide(p, 3); }},
      {"large add", 3 * b, 0, [=, &k] { k.add(m, p, g); }},
      {"large scale", 2 * b, 0, [=, &k] { k.scale(g, 1.0); }},
      {"large fill", b, 0, [=, &k] { k.fill(m, 0); }},
      {"large copy", 2 * b, 0, [=, &k] { k.copy(m, p); }},
      {"large cast", b + other.bytes().value, 0, [=, &k] { k.cast(other, p); }},
      {"large dropout", 2 * b, 0, [=, &k] { k.dropout(m, p, {.seed = 3}, 0, 0.1); }},
      {"large normal", b, 0, [=, &k] { k.normal(p, {.seed = 3}, 0, 0, 0.02); }},
      {"large gelu_forward", 2 * b, 0, [=, &k] { k.gelu_forward(m, g); }},
      {"large gelu_backward", 3 * b, 0, [=, &k] { k.gelu_backward(m, m, g); }},
      {"large layer_norm_forward", 2 * matrix_elements * size, 0,
       [=, &k] { k.layer_norm_forward(mm, norm_mean, norm_deviation, gm, weight, bias, 1e-5); }},
      {"large layer_norm_backward", 4 * matrix_elements * size, 0,
       [=, &k] {
         k.layer_norm_backward(mm, weight, bias, gm, pm, weight, norm_mean, norm_deviation);
       }},
      {"large sum_rows", matrix_elements * size, 0, [=, &k] { k.sum_rows(bias, gm); }},
      {"matmul fc forward", 0, 0,
       [=, &k] { k.matmul(dhidden, x, fc, {.transpose_b = true, .accumulate = true}); }},
      {"matmul fc weight gradient", 0, 0,
       [=, &k] { k.matmul(dfc, hidden, x, {.transpose_a = true, .accumulate = true}); }},
      {"matmul fc input gradient", 0, 0, [=, &k] { k.matmul(z, hidden, fc); }},
      {"matmul logits forward", 0, 0,
       [=, &k] { k.matmul(dlogits, x, table, {.transpose_b = true}); }},
      {"matmul logits weight gradient", 0, 0,
       [=, &k] { k.matmul(dtable, logits, x, {.transpose_a = true, .accumulate = true}); }},
      {"matmul logits input gradient", 0, 0, [=, &k] { k.matmul(z, logits, table); }},
      {"large fill_rows", matrix_elements * size, 0, [=, &k] { k.fill_rows(mm, bias); }},
  };
  // The optimizer goes over all parameters: as many passes over the large arrays as they hold.
  const auto over_parameters = [](const std::function<void()>& run) {
    for (std::int64_t done = 0; done < parameters; done += large) {
      run();
    }
  };
  const std::vector<Row> step_rows = rows;
  const auto adamw = large_rows[0].run;
  const auto norm = large_rows[2].run;
  rows.push_back({"step", 0, 0, [=] {
                    for (const Row& row : step_rows) {
                      for (int i = 0; i < row.per_step; ++i) {
                        row.run();
                      }
                    }
                    over_parameters(adamw);
                    over_parameters(norm);
                  }});
  rows.insert(rows.end(), large_rows.begin(), large_rows.end());
  return rows;
}

}  // namespace
}  // namespace ringworld

int main(int argc, char** argv) {
  using namespace ringworld;
  benchmark::Initialize(&argc, argv);
  const auto backend = make_cpu_backend(Device::create({}), 1);
  const double bound = triad_bandwidth();
  benchmark::AddCustomContext("instruction_set", available_instruction_sets().front());
  benchmark::AddCustomContext("triad", std::to_string(bound / 1e9) + " GB/s");
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Row& row : Kernels(*backend).rows(dtype)) {
      const std::string name = std::string(name_of(dtype)) + " " + row.name;
      benchmark::RegisterBenchmark(name.c_str(), [row, bound](benchmark::State& state) {
        row.run();
        const std::clock_t start = std::clock();
        for (auto _ : state) {
          row.run();
        }
        // Processor time: one thread, and others may be using the machine.
        const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
        if (row.bytes > 0) {
          const auto bytes = static_cast<double>(row.bytes * state.iterations());
          state.counters["GB_per_s"] = bytes / seconds / 1e9;
          state.counters["of_bound"] = bytes / seconds / bound;
        }
      })->Unit(benchmark::kMicrosecond);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
}
