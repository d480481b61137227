// The meta backend against the CPU's: the same calls leave the same ledger and the same count of
// floating-point operations, and nothing is ever touched.
#include "runtime/meta_backend.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

constexpr DType floating[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

// Rows of x, and its columns; sequences of them, in heads.
struct Sizes {
  std::int64_t batch;
  std::int64_t length;  // T
  std::int64_t width;   // C
  int heads;
};
// Odd ones, ones that many threads share, and sequences around the height of an attention tile.
constexpr Sizes all_sizes[] = {{1, 1, 1, 1},    {0, 3, 4, 2},   {2, 3, 5, 1},    {3, 7, 6, 3},
                               {1, 127, 12, 2}, {1, 129, 8, 4}, {5, 150, 64, 2}, {1, 5, 9000, 1}};

// What a verb is called with.
struct Tensors {
  Backend& backend;
  DType dtype;
  Sizes s;

  Tensor make(DType its, Shape shape) const {
    return backend.zeros(its, shape, Category::activations);
  }
  Tensor sequence(std::int64_t width) const { return make(dtype, {s.batch, s.length, width}); }
  Tensor matrix(std::int64_t rows, std::int64_t columns) const {
    return make(dtype, {rows, columns});
  }
  Tensor vector(std::int64_t count) const { return make(dtype, {count}); }
  Tensor statistics(std::int64_t count) const {
    return make(dtype == DType::f64 ? DType::f64 : DType::f32, {count});
  }
  Tensor indices() const { return make(DType::i32, {s.batch, s.length}); }
  std::int64_t rows() const { return s.batch * s.length; }
};

struct Verb {
  std::string name;
  std::function<void(const Tensors&)> call;
};

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all = {
      {"upload and download",
       [](const Tensors& t) {
         const Tensor x = t.sequence(t.s.width);
         std::vector<std::byte> host(static_cast<std::size_t>(x.bytes().value));
         t.backend.upload(x, host);
         t.backend.download(host, x);
       }},
      {"fill", [](const Tensors& t) { t.backend.fill(t.sequence(t.s.width), 3); }},
      {"copy",
       [](const Tensors& t) { t.backend.copy(t.sequence(t.s.width), t.sequence(t.s.width)); }},
      {"cast",
       [](const Tensors& t) {
         for (const DType other : floating) {
           t.backend.cast(t.make(other, {t.rows(), t.s.width}), t.sequence(t.s.width));
         }
       }},
      {"normal",
       [](const Tensors& t) { t.backend.normal(t.vector(t.s.width), {.seed = 1}, 5, 0, 1); }},
      {"add",
       [](const Tensors& t) {
         const Tensor x = t.sequence(t.s.width);
         t.backend.add(x, x, t.sequence(t.s.width));
       }},
      {"scale", [](const Tensors& t) { t.backend.scale(t.sequence(t.s.width), 2); }},
      {"combine",
       [](const Tensors& t) {
         for (const ReduceOp op : all_reduce_ops) {
           t.backend.combine(t.sequence(t.s.width), t.sequence(t.s.width), op);
         }
       }},
      {"divide", [](const Tensors& t) { t.backend.divide(t.sequence(t.s.width), 3); }},
      {"sum", [](const Tensors& t) { t.backend.sum(t.sequence(t.s.width)); }},
      {"sum_of_squares", [](const Tensors& t) { t.backend.sum_of_squares(t.sequence(t.s.width)); }},
      {"fingerprint", [](const Tensors& t) { t.backend.fingerprint(t.sequence(t.s.width)); }},
      {"matmul",
       [](const Tensors& t) {
         const Tensor x = t.sequence(t.s.width);        // (B T, C)
         const Tensor weight = t.matrix(t.s.width, 3);  // (C, 3)
         const Tensor y = t.sequence(3);
         t.backend.matmul(y, x, weight);
         t.backend.matmul(x, y, weight, {.transpose_b = true});
         t.backend.matmul(weight, x, y, {.transpose_a = true, .accumulate = true});
         t.backend.matmul(t.matrix(3, t.s.width), y, t.matrix(t.s.width, t.rows()),
                          {.transpose_a = true, .transpose_b = true});
       }},
      {"fill_rows",
       [](const Tensors& t) { t.backend.fill_rows(t.sequence(t.s.width), t.vector(t.s.width)); }},
      {"sum_rows",
       [](const Tensors& t) { t.backend.sum_rows(t.vector(t.s.width), t.sequence(t.s.width)); }},
      {"embedding",
       [](const Tensors& t) {
         const Tensor table = t.matrix(2, t.s.width);
         const Tensor positions = t.matrix(t.s.length, t.s.width);
         const Tensor y = t.sequence(t.s.width);
         t.backend.embedding_forward(y, t.indices(), table, positions);
         t.backend.embedding_backward(table, positions, y, t.indices());
       }},
      {"layer_norm",
       [](const Tensors& t) {
         const Tensor x = t.sequence(t.s.width);
         const Tensor weight = t.vector(t.s.width);
         const Tensor mean = t.statistics(t.rows());
         const Tensor inverse = t.statistics(t.rows());
         t.backend.layer_norm_forward(t.sequence(t.s.width), mean, inverse, x, weight,
                                      t.vector(t.s.width), 1e-5);
         t.backend.layer_norm_backward(t.sequence(t.s.width), t.vector(t.s.width),
                                       t.vector(t.s.width), t.sequence(t.s.width), x, weight, mean,
                                       inverse);
       }},
      {"rms_norm",
       [](const Tensors& t) {
         const Tensor x = t.sequence(t.s.width);
         const Tensor weight = t.vector(t.s.width);
         const Tensor inverse = t.statistics(t.rows());
         t.backend.rms_norm_forward(t.sequence(t.s.width), inverse, x, weight, 1e-5);
         t.backend.rms_norm_backward(t.sequence(t.s.width), t.vector(t.s.width),
                                     t.sequence(t.s.width), x, weight, inverse);
       }},
      {"swiglu",
       [](const Tensors& t) {
         const Tensor x = t.sequence(2 * t.s.width);
         t.backend.swiglu_forward(t.sequence(t.s.width), x);
         t.backend.swiglu_backward(x, t.sequence(t.s.width), x);
       }},
      {"rotary",
       [](const Tensors& t) {
         t.backend.rotary(t.sequence(2 * t.s.width), t.s.heads, 2 * t.s.width / t.s.heads / 2 * 2,
                          1e4, 1);
       }},
      {"gelu",
       [](const Tensors& t) {
         const Tensor x = t.sequence(t.s.width);
         t.backend.gelu_forward(t.sequence(t.s.width), x);
         t.backend.gelu_backward(t.sequence(t.s.width), t.sequence(t.s.width), x);
       }},
      {"attention",
       [](const Tensors& t) {
         const Tensor qkv = t.sequence(3 * t.s.width);
         const Tensor y = t.sequence(t.s.width);
         const Tensor log_sum_exp = t.statistics(t.rows() * t.s.heads);
         t.backend.attention_forward(y, log_sum_exp, qkv, t.s.heads, t.s.heads);
         t.backend.attention_backward(t.sequence(3 * t.s.width), t.sequence(t.s.width), y,
                                      log_sum_exp, qkv, t.s.heads, t.s.heads);
       }},
      {"grouped-query attention",
       [](const Tensors& t) {
         const std::int64_t qkv_width = t.s.width + 2 * t.s.width / t.s.heads;
         const Tensor qkv = t.sequence(qkv_width);
         const Tensor y = t.sequence(t.s.width);
         const Tensor log_sum_exp = t.statistics(t.rows() * t.s.heads);
         t.backend.attention_forward(y, log_sum_exp, qkv, t.s.heads, 1);
         t.backend.attention_backward(t.sequence(qkv_width), t.sequence(t.s.width), y, log_sum_exp,
                                      qkv, t.s.heads, 1);
       }},
      {"cross_entropy",
       [](const Tensors& t) {
         const Tensor logits = t.sequence(t.s.width);
         const Tensor log_sum_exp = t.statistics(t.rows());
         t.backend.cross_entropy_forward(t.statistics(t.rows()), log_sum_exp, logits, t.indices());
         t.backend.cross_entropy_backward(logits, logits, t.indices(), log_sum_exp, 1);
       }},
      {"split vocabulary",
       [](const Tensors& t) {
         const Tensor table = t.matrix(2, t.s.width);
         const Tensor y = t.sequence(t.s.width);
         t.backend.embedding_forward(y, t.indices(), table, Tensor(), 2);
         t.backend.embedding_backward(table, Tensor(), y, t.indices(), 2);
         const Tensor losses = t.statistics(t.rows());
         const Tensor parts = t.make(losses.dtype(), {3, t.rows()});
         t.backend.cross_entropy_forward(losses, t.statistics(t.rows()), y, t.indices(), 5);
         t.backend.cross_entropy_join(losses, t.statistics(t.rows()), parts, 1, t.indices(), 5,
                                      t.s.width);
         t.backend.cross_entropy_backward(y, y, t.indices(), losses, 1, 5);
       }},
      {"optimizers",
       [](const Tensors& t) {
         t.backend.adamw(t.vector(9), t.vector(9), t.vector(9), t.vector(9), {});
         t.backend.sgd(t.vector(9), t.vector(9), t.vector(9), {.momentum = 0.9});
         t.backend.sgd(t.vector(9), Tensor(), t.vector(9), {});
       }},
  };
  return all;
}

// What a verb leaves behind, in a backend of its own.
struct Trace {
  Ledger ledger;
  Flops flops;
};

Trace trace(Backend& backend, const Verb& verb, DType dtype, const Sizes& sizes) {
  verb.call({backend, dtype, sizes});
  return {backend.device().ledger(), backend.flops()};
}

TEST(Meta, EveryVerbLeavesTheLedgerOfTheCpu) {
  for (const Verb& verb : verbs()) {
    for (const DType dtype : floating) {
      for (const int threads : {1, 2, 3}) {
        for (const Sizes& sizes : all_sizes) {
          SCOPED_TRACE(verb.name + " of " + std::string(name_of(dtype)) + ", " +
                       std::to_string(threads) + " threads, T " + std::to_string(sizes.length) +
                       ", C " + std::to_string(sizes.width));
          const auto cpu = make_cpu_backend(Device::create({}), threads);
          const auto meta = make_meta_backend(make_meta_device(Bytes(0)), threads);
          const Trace real = trace(*cpu, verb, dtype, sizes);
          const Trace dry = trace(*meta, verb, dtype, sizes);
          ASSERT_EQ(dry.ledger.peak, real.ledger.peak);
          ASSERT_EQ(dry.ledger.held, real.ledger.held);
          ASSERT_EQ(dry.ledger.total_peak, real.ledger.total_peak);
          ASSERT_EQ(dry.flops.matmul, real.flops.matmul);
          ASSERT_EQ(dry.flops.attention_forward, real.flops.attention_forward);
          ASSERT_EQ(dry.flops.attention_backward, real.flops.attention_backward);
        }
      }
    }
  }
}

TEST(Meta, CountsTheOperationsOfMatrixProducts) {
  const auto backend = make_meta_backend(make_meta_device(Bytes(0)), 1);
  const auto of = [&](std::int64_t rows, std::int64_t columns) {
    return backend->empty(DType::f32, {rows, columns}, Category::activations);
  };
  backend->matmul(of(3, 5), of(3, 7), of(7, 5));
  EXPECT_EQ(backend->flops().matmul, 2 * 3 * 5 * 7);
  backend->matmul(of(3, 5), of(11, 3), of(5, 11), {.transpose_a = true, .transpose_b = true});
  EXPECT_EQ(backend->flops().matmul, 2 * 3 * 5 * (7 + 11));
  EXPECT_EQ(backend->flops().total(), backend->flops().matmul);
}

// Two products of (T, D) and (T, D), over all query heads and sequences: 2 * 2 B T^2 C; backward,
// four. However many heads of keys and values there are.
TEST(Meta, CountsTheOperationsOfAttention) {
  const auto backend = make_meta_backend(make_meta_device(Bytes(0)), 1);
  const auto of = [&](Shape shape) {
    return backend->empty(DType::f32, shape, Category::activations);
  };
  const Tensor qkv = of({2, 10, 3 * 6});
  const Tensor y = of({2, 10, 6});
  const Tensor log_sum_exp = of({2, 3, 10});
  backend->attention_forward(y, log_sum_exp, qkv, 3, 3);
  EXPECT_EQ(backend->flops().attention_forward, 4 * 2 * 10 * 10 * 6);
  EXPECT_EQ(backend->flops().attention_backward, 0);
  backend->attention_backward(qkv, y, y, log_sum_exp, qkv, 3, 3);
  EXPECT_EQ(backend->flops().attention_backward, 8 * 2 * 10 * 10 * 6);
  EXPECT_EQ(backend->flops().total(), 12 * 2 * 10 * 10 * 6);
  const Tensor grouped = of({2, 10, (3 + 2) * 2});
  backend->attention_forward(y, log_sum_exp, grouped, 3, 1);
  backend->attention_backward(grouped, y, y, log_sum_exp, grouped, 3, 1);
  EXPECT_EQ(backend->flops().total(), 2 * 12 * 2 * 10 * 10 * 6);
}

TEST(Meta, ReadsZeros) {
  const auto backend = make_meta_backend(make_meta_device(Bytes(0)), 1);
  const Tensor x = backend->empty(DType::f32, {3}, Category::activations);
  backend->upload_values(x, std::vector<double>{1, 2, 3});
  EXPECT_EQ(backend->download_values(x), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(backend->sum(x), 0);
}

// Far more than any machine has: 8 EiB would be an address space's end, 2 PiB is not.
TEST(Meta, HoldsWhatNoMachineHas) {
  const auto backend = make_meta_backend(make_meta_device(Bytes(0)), 1);
  const std::int64_t elements = std::int64_t{1} << 49;
  const Tensor a = backend->zeros(DType::f32, {elements}, Category::parameters);
  const Tensor b = backend->zeros(DType::f32, {elements}, Category::parameters);
  backend->add(a, a, b);
  EXPECT_EQ(backend->device().ledger().held_in(Category::parameters), Bytes(8 * elements));
}

TEST(Meta, TheBudgetHolds) {
  const auto backend = make_meta_backend(make_meta_device(Bytes(100)), 1);
  const Tensor held = backend->empty(DType::i8, {60}, Category::parameters);
  EXPECT_THROW(backend->empty(DType::i8, {41}, Category::activations), OutOfDeviceMemory);
}

TEST(NoMemory, AddressesAreDistinctAndAligned) {
  const auto memory = make_no_memory();
  std::byte* const first = memory->allocate(Bytes(1));
  std::byte* const second = memory->allocate(Bytes(100));
  std::byte* const third = memory->allocate(Bytes(64));
  EXPECT_NE(first, nullptr);
  EXPECT_GE(second - first, 1);
  EXPECT_GE(third - second, 100);
  for (const std::byte* address : {first, second, third}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % 64, 0u);
  }
}

TEST(NoMemory, IsNotPoisoned) {
  const auto device = Device::create({.poison = true}, make_no_memory());
  EXPECT_NE(device->allocate(Bytes(64), Category::workspace)->address(), nullptr);
}

}  // namespace
}  // namespace ringworld
