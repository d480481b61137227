#include <algorithm>

#include "tests/runtime/cpu_support.h"

namespace ringworld {
namespace {

struct Case {
  std::int64_t batch, length, depth;  // depth: of a head
  int heads, kv_heads;

  std::int64_t width() const { return heads * depth; }
  std::int64_t qkv_width() const { return (heads + 2 * kv_heads) * depth; }
};

// Nothing, one token, odd sizes, and more than one tile of scores; keys and values for every query,
// for groups of them, and for all.
constexpr Case cases[] = {{0, 3, 2, 2, 2},   {1, 1, 1, 1, 1}, {2, 3, 3, 2, 2}, {3, 7, 5, 3, 3},
                          {1, 300, 5, 2, 2}, {2, 7, 3, 6, 2}, {3, 5, 2, 4, 1}, {2, 300, 5, 4, 2}};

// Attention by its definition, one query after the other.
struct Reference {
  Values y, y_magnitude;                // (B, T, heads D)
  Values log_sum_exp, score_magnitude;  // (B, heads, T)
  Values dqkv, dqkv_magnitude;          // (B, T, (heads + 2 kv_heads) D)
};

Reference reference(const Case& c, const Values& qkv, const Values& dy) {
  const std::int64_t depth = c.depth;
  const double scale = 1 / std::sqrt(static_cast<double>(depth));
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  Reference r;
  r.y.resize(size(c.batch * c.length * c.width()));
  r.y_magnitude.resize(r.y.size());
  r.dqkv.resize(size(c.batch * c.length * c.qkv_width()));
  r.dqkv_magnitude.resize(r.dqkv.size());
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t head = 0; head < c.heads; ++head) {
      // Where this head's query (part 0), key (1) and value (2) stand among the heads of a row.
      const std::int64_t shared = head / (c.heads / c.kv_heads);
      const std::int64_t heads_of_row[] = {head, c.heads + shared, c.heads + c.kv_heads + shared};
      // Element `i` of one of them at position t.
      const auto in = [&](std::int64_t part, std::int64_t t, std::int64_t i) {
        return size((b * c.length + t) * c.qkv_width() + heads_of_row[part] * depth + i);
      };
      const auto out = [&](std::int64_t t, std::int64_t i) {
        return size((b * c.length + t) * c.width() + head * depth + i);
      };
      for (std::int64_t t = 0; t < c.length; ++t) {
        const std::size_t seen = size(t + 1);
        Values p(seen), dp(seen);
        double sum = 0, largest = 0;
        for (std::int64_t s = 0; s <= t; ++s) {
          double score = 0, magnitude = 0;
          for (std::int64_t i = 0; i < depth; ++i) {
            score += scale * qkv[in(0, t, i)] * qkv[in(1, s, i)];
            magnitude += scale * std::abs(qkv[in(0, t, i)] * qkv[in(1, s, i)]);
          }
          largest = std::max(largest, magnitude);
          p[size(s)] = std::exp(score);
          sum += p[size(s)];
        }
        r.log_sum_exp.push_back(std::log(sum));
        r.score_magnitude.push_back(std::abs(std::log(sum)) + largest + 1);
        // An error of a score is one of its probability, relative.
        const double sensitivity = largest + 1;
        double delta = 0, dp_magnitude = 0;
        for (std::int64_t s = 0; s <= t; ++s) {
          p[size(s)] /= sum;
          double magnitude = 0;
          for (std::int64_t i = 0; i < depth; ++i) {
            const double v = qkv[in(2, s, i)];
            r.y[out(t, i)] += p[size(s)] * v;
            r.y_magnitude[out(t, i)] += sensitivity * p[size(s)] * std::abs(v);
            dp[size(s)] += dy[out(t, i)] * v;
            magnitude += std::abs(dy[out(t, i)] * v);
          }
          delta += p[size(s)] * dp[size(s)];
          dp_magnitude = std::max(dp_magnitude, magnitude);
        }
        for (std::int64_t s = 0; s <= t; ++s) {
          const double ds = scale * p[size(s)] * (dp[size(s)] - delta);
          const double ds_magnitude = scale * p[size(s)] * 2 * dp_magnitude * sensitivity;
          for (std::int64_t i = 0; i < depth; ++i) {
            r.dqkv[in(0, t, i)] += ds * qkv[in(1, s, i)];
            r.dqkv[in(1, s, i)] += ds * qkv[in(0, t, i)];
            r.dqkv[in(2, s, i)] += p[size(s)] * dy[out(t, i)];
            r.dqkv_magnitude[in(0, t, i)] += ds_magnitude * std::abs(qkv[in(1, s, i)]);
            r.dqkv_magnitude[in(1, s, i)] += ds_magnitude * std::abs(qkv[in(0, t, i)]);
            r.dqkv_magnitude[in(2, s, i)] += sensitivity * p[size(s)] * std::abs(dy[out(t, i)]);
          }
        }
      }
    }
  }
  return r;
}

TEST(CpuAttention, ForwardAndBackward) {
  for_each_configuration([](Backend& backend, DType dtype) {
    for (const Case& c : cases) {
      SCOPED_TRACE(testing::Message() << c.batch << " x " << c.length << " x " << c.depth << ", "
                                      << c.heads << " heads, " << c.kv_heads);
      const Tensor qkv = random_tensor(backend, dtype, Shape{c.batch, c.length, c.qkv_width()}, 1);
      const Tensor dy = random_tensor(backend, dtype, Shape{c.batch, c.length, c.width()}, 2);
      const Tensor y = backend.empty(dtype, dy.shape(), Category::activations);
      const Tensor log_sum_exp = backend.empty(wide_dtype(dtype), Shape{c.batch, c.heads, c.length},
                                               Category::activations);
      backend.attention_forward(y, log_sum_exp, qkv, c.heads, c.kv_heads);
      const Reference r = reference(c, backend.download_values(qkv), backend.download_values(dy));
      const auto roundings =
          static_cast<double>((c.length + c.width()) * (c.heads / c.kv_heads)) + 32;
      expect_close(backend, y, r.y, r.y_magnitude, roundings, "y");
      expect_close(backend, log_sum_exp, r.log_sum_exp, r.score_magnitude, roundings,
                   "log_sum_exp");
      const Tensor dqkv = backend.empty(dtype, qkv.shape(), Category::activations);
      backend.attention_backward(dqkv, dy, y, log_sum_exp, qkv, c.heads, c.kv_heads);
      // delta comes from y as it is stored, so a 16-bit y's rounding adds to the gradient's.
      const double stored = rounding_of(dtype) / rounding_of(wide_dtype(dtype));
      expect_close(backend, dqkv, r.dqkv, r.dqkv_magnitude, roundings + stored, "dqkv");
    }
  });
}

TEST(CpuAttention, BackwardIsTheDerivativeOfForward) {
  const auto backend = poisoned_backend(1);
  constexpr int heads = 4;
  for (const int kv_heads : {4, 2, 1}) {
    const Shape wide{2, 4, (heads + 2 * kv_heads) * 2};
    const Shape narrow{2, 4, heads * 2};
    const Values x = backend->download_values(random_tensor(*backend, DType::f64, wide, 1));
    const Values dy = backend->download_values(random_tensor(*backend, DType::f64, narrow, 2));
    const Tensor y = backend->empty(DType::f64, narrow, Category::activations);
    const Tensor log_sum_exp =
        backend->empty(DType::f64, Shape{2, heads, 4}, Category::activations);
    const auto loss = [&](const Values& v) {
      backend->attention_forward(y, log_sum_exp, tensor_of(*backend, DType::f64, wide, v), heads,
                                 kv_heads);
      return dot(backend->download_values(y), dy);
    };
    loss(x);
    const Tensor dx = backend->empty(DType::f64, wide, Category::activations);
    backend->attention_backward(dx, tensor_of(*backend, DType::f64, narrow, dy), y, log_sum_exp,
                                tensor_of(*backend, DType::f64, wide, x), heads, kv_heads);
    const Values dxv = backend->download_values(dx);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(dxv[i], central_difference(loss, x, i), 1e-7) << i;
    }
  }
}

// A group's gradients add up in the order of its queries, whatever the threads.
TEST(CpuAttention, ThreadsDoNotChangeTheBits) {
  const auto gradient = [](int threads) {
    const auto backend = poisoned_backend(threads);
    const Tensor qkv = random_tensor(*backend, DType::f32, Shape{1, 150, 32}, 1);
    const Tensor dy = random_tensor(*backend, DType::f32, Shape{1, 150, 16}, 2);
    const Tensor y = backend->empty(DType::f32, dy.shape(), Category::activations);
    const Tensor dqkv = backend->empty(DType::f32, qkv.shape(), Category::activations);
    const Tensor log_sum_exp = backend->empty(DType::f32, Shape{1, 4, 150}, Category::activations);
    backend->attention_forward(y, log_sum_exp, qkv, 4, 2);
    backend->attention_backward(dqkv, dy, y, log_sum_exp, qkv, 4, 2);
    return backend->download_values(dqkv);
  };
  EXPECT_EQ(gradient(2), gradient(1));
  EXPECT_EQ(gradient(3), gradient(1));
}

TEST(CpuAttention, TheFutureDoesNotShow) {
  const auto backend = poisoned_backend(1);
  const Tensor qkv = random_tensor(*backend, DType::f32, Shape{1, 200, 12}, 1);
  const Tensor y = backend->empty(DType::f32, Shape{1, 200, 4}, Category::activations);
  const Tensor log_sum_exp = backend->empty(DType::f32, Shape{1, 1, 200}, Category::activations);
  backend->attention_forward(y, log_sum_exp, qkv, 1, 1);
  Values before = backend->download_values(y);
  // Another last token changes the last output and no other.
  backend->copy(qkv.slice(199 * 12, 12), random_tensor(*backend, DType::f32, Shape{12}, 9));
  backend->attention_forward(y, log_sum_exp, qkv, 1, 1);
  Values after = backend->download_values(y);
  EXPECT_NE(Values(before.end() - 4, before.end()), Values(after.end() - 4, after.end()));
  before.resize(199 * 4);
  after.resize(199 * 4);
  EXPECT_EQ(before, after);
}

TEST(CpuAttention, MemoryGrowsWithTheLengthNotItsSquare) {
  const auto backend = poisoned_backend(1);
  const auto workspace_at = [&](std::int64_t length) {
    const Tensor qkv = backend->zeros(DType::f32, Shape{1, length, 12}, Category::activations);
    const Tensor y = backend->empty(DType::f32, Shape{1, length, 4}, Category::activations);
    const Tensor log_sum_exp =
        backend->empty(DType::f32, Shape{1, 1, length}, Category::activations);
    backend->device().reset_peaks();
    backend->attention_forward(y, log_sum_exp, qkv, 1, 1);
    backend->attention_backward(qkv, y, y, log_sum_exp,
                                backend->zeros(DType::f32, qkv.shape(), Category::activations), 1,
                                1);
    return backend->device().ledger().peak_in(Category::workspace).value;
  };
  const auto at_1024 = workspace_at(1024);
  EXPECT_GT(at_1024, 0);
  EXPECT_LE(workspace_at(2048), 2 * at_1024);
}

TEST(CpuAttention, Misfits) {
  const auto backend = poisoned_backend(1);
  const auto f32 = [&](Shape shape) {
    return backend->zeros(DType::f32, shape, Category::activations);
  };
  const Tensor qkv = f32(Shape{2, 3, 12});
  const Tensor y = f32(Shape{2, 3, 4});
  const Tensor log_sum_exp = f32(Shape{2, 2, 3});
  EXPECT_THROW(backend->attention_forward(y, log_sum_exp, qkv, 3, 3), std::invalid_argument);
  EXPECT_THROW(backend->attention_forward(y, log_sum_exp, qkv, 0, 0), std::invalid_argument);
  EXPECT_THROW(backend->attention_forward(y, log_sum_exp, qkv, 1, 1), std::invalid_argument);
  EXPECT_THROW(backend->attention_forward(y, log_sum_exp, qkv, 2, 1), std::invalid_argument);
  EXPECT_THROW(backend->attention_forward(y, log_sum_exp, qkv, 2, 0), std::invalid_argument);
  EXPECT_THROW(backend->attention_forward(f32(Shape{2, 3, 6}), f32(Shape{2, 3, 3}),
                                          f32(Shape{2, 3, 14}), 3, 2),
               std::invalid_argument);
  EXPECT_THROW(backend->attention_forward(f32(Shape{3, 2, 4}), log_sum_exp, qkv, 2, 2),
               std::invalid_argument);
  EXPECT_THROW(backend->attention_forward(f32(Shape{2, 3, 6}), log_sum_exp, qkv, 2, 2),
               std::invalid_argument);
  EXPECT_THROW(backend->attention_backward(f32(Shape{2, 3, 6}), y, y, log_sum_exp, qkv, 2, 2),
               std::invalid_argument);
}

}  // namespace
}  // namespace ringworld
