#include <algorithm>

#include "tests/runtime/cpu_support.h"

namespace ringworld {
namespace {

// --- Embedding ----------------------------------------------------------------------------------

struct EmbeddingCase {
  std::int64_t batch, length, width, vocabulary;
};
constexpr EmbeddingCase embeddings[] = {
    {0, 3, 4, 5}, {1, 1, 1, 1}, {2, 3, 7, 5}, {3, 17, 65, 4}, {2, 130, 257, 11}};

Tensor random_tokens(Backend& backend, const EmbeddingCase& c) {
  Values tokens;
  for (std::int64_t i = 0; i < c.batch * c.length; ++i) {
    tokens.push_back(static_cast<double>(random_bits({.seed = 5}, static_cast<std::uint64_t>(i)) %
                                         static_cast<std::uint64_t>(c.vocabulary)));
  }
  return tensor_of(backend, DType::i32, Shape{c.batch, c.length}, tokens);
}

TEST(CpuEmbedding, ForwardWithAndWithoutPositions) {
  for_each_configuration([](Backend& backend, DType dtype) {
    for (const EmbeddingCase& c : embeddings) {
      const Tensor tokens = random_tokens(backend, c);
      const Tensor table = random_tensor(backend, dtype, Shape{c.vocabulary, c.width}, 1);
      const Tensor positions = random_tensor(backend, dtype, Shape{c.length + 2, c.width}, 2);
      const Values token = backend.download_values(tokens);
      const Values tv = backend.download_values(table);
      const Values pv = backend.download_values(positions);
      for (const bool with_positions : {false, true}) {
        Values expected;
        for (std::int64_t row = 0; row < c.batch * c.length; ++row) {
          for (std::int64_t column = 0; column < c.width; ++column) {
            const auto entry = static_cast<std::int64_t>(token[static_cast<std::size_t>(row)]);
            expected.push_back(tv[at(entry, column, c.width)] +
                               (with_positions ? pv[at(row % c.length, column, c.width)] : 0));
          }
        }
        const Tensor y =
            backend.empty(dtype, Shape{c.batch, c.length, c.width}, Category::activations);
        backend.embedding_forward(y, tokens, table, with_positions ? positions : Tensor());
        expect_close(backend, y, expected, expected, 1, "y");
      }
    }
  });
}

TEST(CpuEmbedding, BackwardAddsEveryOccurrenceAndRoundsOnce) {
  for_each_gradient_configuration([](Backend& backend, DType dtype, DType gradient) {
    for (const EmbeddingCase& c : embeddings) {
      const Tensor tokens = random_tokens(backend, c);
      const Tensor dy = random_tensor(backend, dtype, Shape{c.batch, c.length, c.width}, 1);
      const Tensor dtable = random_tensor(backend, gradient, Shape{c.vocabulary, c.width}, 2);
      const Tensor dpositions = random_tensor(backend, gradient, Shape{c.length + 1, c.width}, 3);
      const Values token = backend.download_values(tokens);
      const Values dyv = backend.download_values(dy);
      Values table = backend.download_values(dtable);
      Values positions = backend.download_values(dpositions);
      Values table_magnitude = table;
      Values positions_magnitude = positions;
      for (Values* magnitudes : {&table_magnitude, &positions_magnitude}) {
        for (double& value : *magnitudes) {
          value = std::abs(value);
        }
      }
      for (std::int64_t row = 0; row < c.batch * c.length; ++row) {
        for (std::int64_t column = 0; column < c.width; ++column) {
          const auto entry = static_cast<std::int64_t>(token[static_cast<std::size_t>(row)]);
          const double value = dyv[at(row, column, c.width)];
          table[at(entry, column, c.width)] += value;
          table_magnitude[at(entry, column, c.width)] += std::abs(value);
          positions[at(row % c.length, column, c.width)] += value;
          positions_magnitude[at(row % c.length, column, c.width)] += std::abs(value);
        }
      }
      const auto roundings = static_cast<double>(c.batch * c.length + 1);
      backend.embedding_backward(dtable, dpositions, dy, tokens);
      expect_close(backend, dtable, table, table_magnitude, roundings, "dtable");
      expect_close(backend, dpositions, positions, positions_magnitude, roundings, "dpositions");
      // An undefined output is skipped, the other is not.
      backend.embedding_backward(Tensor(), Tensor(), dy, tokens);
      const Tensor again = backend.zeros(dtype, dtable.shape(), Category::gradients);
      backend.embedding_backward(again, Tensor(), dy, tokens);
      if (dy.elements() > 0) {
        EXPECT_NE(backend.sum_of_squares(again).value(), 0);
      }
    }
  });
}

// --- Layer norm ---------------------------------------------------------------------------------

struct MatrixCase {
  std::int64_t rows, width;
};
constexpr MatrixCase norms[] = {{0, 4}, {1, 1}, {3, 7}, {5, 65}, {2, 768}, {67, 1031}};

struct Norm {
  double mean = 0;
  double inverse_deviation = 0;
};

Norm norm_of(const Values& x, std::int64_t row, std::int64_t width) {
  double mean = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    mean += x[at(row, i, width)] / static_cast<double>(width);
  }
  double variance = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    const double centered = x[at(row, i, width)] - mean;
    variance += centered * centered / static_cast<double>(width);
  }
  return {mean, 1 / std::sqrt(variance + epsilon)};
}

TEST(CpuLayerNorm, ForwardAndBackward) {
  for_each_gradient_configuration([](Backend& backend, DType dtype, DType gradient) {
    for (const MatrixCase& c : norms) {
      SCOPED_TRACE(testing::Message() << c.rows << " x " << c.width);
      const Shape shape{c.rows, c.width};
      const Tensor x = random_tensor(backend, dtype, shape, 1);
      const Tensor weight = random_tensor(backend, dtype, Shape{c.width}, 2);
      const Tensor bias = random_tensor(backend, dtype, Shape{c.width}, 3);
      const Values xv = backend.download_values(x);
      const Values wv = backend.download_values(weight);
      const Values bv = backend.download_values(bias);
      const Tensor y = backend.empty(dtype, shape, Category::activations);
      const Tensor mean = backend.empty(wide_dtype(dtype), Shape{c.rows}, Category::activations);
      const Tensor inverse = backend.empty(wide_dtype(dtype), Shape{c.rows}, Category::activations);
      backend.layer_norm_forward(y, mean, inverse, x, weight, bias, epsilon);

      const auto roundings = static_cast<double>(c.width) + 32;
      Values y_expected, y_magnitude, means, mean_magnitudes, inverses;
      for (std::int64_t row = 0; row < c.rows; ++row) {
        const Norm norm = norm_of(xv, row, c.width);
        means.push_back(norm.mean);
        mean_magnitudes.push_back(1);
        inverses.push_back(norm.inverse_deviation);
        for (std::int64_t i = 0; i < c.width; ++i) {
          const auto column = static_cast<std::size_t>(i);
          const double centered = xv[at(row, i, c.width)] - norm.mean;
          y_expected.push_back(centered * norm.inverse_deviation * wv[column] + bv[column]);
          // x and its mean are around 1, and their errors are divided by the deviation.
          y_magnitude.push_back((2 + std::abs(centered)) * norm.inverse_deviation *
                                    std::abs(wv[column]) +
                                std::abs(bv[column]));
        }
      }
      expect_close(backend, y, y_expected, y_magnitude, roundings, "y");
      expect_close(backend, mean, means, mean_magnitudes, roundings, "mean");
      // One element alone has no deviation: what is left is 1 / sqrt(epsilon).
      expect_close(backend, inverse, inverses, inverses, roundings, "inverse deviation");

      const Tensor dy = random_tensor(backend, dtype, shape, 4);
      const Tensor dx = random_tensor(backend, dtype, shape, 5);
      const Tensor dweight = random_tensor(backend, gradient, Shape{c.width}, 6);
      const Tensor dbias = random_tensor(backend, gradient, Shape{c.width}, 7);
      const Values dyv = backend.download_values(dy);
      Values dx_expected = backend.download_values(dx);
      Values dw_expected = backend.download_values(dweight);
      Values db_expected = backend.download_values(dbias);
      Values dx_magnitude = dx_expected, dw_magnitude = dw_expected, db_magnitude = db_expected;
      for (Values* magnitudes : {&dx_magnitude, &dw_magnitude, &db_magnitude}) {
        for (double& value : *magnitudes) {
          value = std::abs(value);
        }
      }
      for (std::int64_t row = 0; row < c.rows; ++row) {
        const Norm norm = norm_of(xv, row, c.width);
        const auto n = static_cast<double>(c.width);
        double mean_g = 0, mean_gn = 0, largest = 0;
        for (std::int64_t i = 0; i < c.width; ++i) {
          const double normal = (xv[at(row, i, c.width)] - norm.mean) * norm.inverse_deviation;
          const double g = dyv[at(row, i, c.width)] * wv[static_cast<std::size_t>(i)];
          mean_g += g / n;
          mean_gn += g * normal / n;
          largest = std::max(largest, std::abs(g) * (1 + std::abs(normal)));
        }
        for (std::int64_t i = 0; i < c.width; ++i) {
          const auto column = static_cast<std::size_t>(i);
          const double normal = (xv[at(row, i, c.width)] - norm.mean) * norm.inverse_deviation;
          const double d = dyv[at(row, i, c.width)];
          const double g = d * wv[column];
          dx_expected[at(row, i, c.width)] +=
              norm.inverse_deviation * (g - mean_g - normal * mean_gn);
          dx_magnitude[at(row, i, c.width)] +=
              norm.inverse_deviation * largest * (2 + std::abs(normal));
          dw_expected[column] += d * normal;
          dw_magnitude[column] += std::abs(d) * (2 + std::abs(normal));
          db_expected[column] += d;
          db_magnitude[column] += std::abs(d);
        }
      }
      backend.layer_norm_backward(dx, dweight, dbias, dy, x, weight, mean, inverse);
      expect_close(backend, dx, dx_expected, dx_magnitude, roundings, "dx");
      const double sum_roundings = roundings + static_cast<double>(c.rows);
      expect_close(backend, dweight, dw_expected, dw_magnitude, sum_roundings, "dweight");
      expect_close(backend, dbias, db_expected, db_magnitude, static_cast<double>(c.rows) + 1,
                   "dbias");
    }
  });
}

TEST(CpuLayerNorm, BackwardIsTheDerivativeOfForward) {
  const auto backend = poisoned_backend(1);
  const Shape shape{3, 5};
  const Values x = backend->download_values(random_tensor(*backend, DType::f64, shape, 1));
  const Values weight = backend->download_values(random_tensor(*backend, DType::f64, Shape{5}, 2));
  const Values bias = backend->download_values(random_tensor(*backend, DType::f64, Shape{5}, 3));
  const Values dy = backend->download_values(random_tensor(*backend, DType::f64, shape, 4));
  const auto of = [&](Shape s, const Values& v) { return tensor_of(*backend, DType::f64, s, v); };
  const Tensor mean = backend->empty(DType::f64, Shape{3}, Category::activations);
  const Tensor inverse = backend->empty(DType::f64, Shape{3}, Category::activations);
  const auto loss = [&](const Values& xs, const Values& ws, const Values& bs) {
    const Tensor y = backend->empty(DType::f64, shape, Category::activations);
    backend->layer_norm_forward(y, mean, inverse, of(shape, xs), of(Shape{5}, ws), of(Shape{5}, bs),
                                epsilon);
    return dot(backend->download_values(y), dy);
  };
  loss(x, weight, bias);
  const Tensor dx = backend->zeros(DType::f64, shape, Category::gradients);
  const Tensor dweight = backend->zeros(DType::f64, Shape{5}, Category::gradients);
  const Tensor dbias = backend->zeros(DType::f64, Shape{5}, Category::gradients);
  backend->layer_norm_backward(dx, dweight, dbias, of(shape, dy), of(shape, x),
                               of(Shape{5}, weight), mean, inverse);
  const Values dxv = backend->download_values(dx);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto f = [&](const Values& v) { return loss(v, weight, bias); };
    EXPECT_NEAR(dxv[i], central_difference(f, x, i), 1e-7);
  }
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const auto by_weight = [&](const Values& v) { return loss(x, v, bias); };
    const auto by_bias = [&](const Values& v) { return loss(x, weight, v); };
    EXPECT_NEAR(backend->download_values(dweight)[i], central_difference(by_weight, weight, i),
                1e-7);
    EXPECT_NEAR(backend->download_values(dbias)[i], central_difference(by_bias, bias, i), 1e-7);
  }
}

// --- Cross-entropy ------------------------------------------------------------------------------

constexpr MatrixCase classifications[] = {{0, 3}, {1, 1}, {3, 7}, {5, 65}, {7, 50257}};

// Every third row is not trained.
Values some_targets(const MatrixCase& c) {
  Values targets;
  for (std::int64_t row = 0; row < c.rows; ++row) {
    targets.push_back(row % 3 == 2 ? -1 : static_cast<double>((row * 7919) % c.width));
  }
  return targets;
}

TEST(CpuCrossEntropy, ForwardAndBackwardWithMaskedTargets) {
  for_each_configuration([](Backend& backend, DType dtype) {
    for (const MatrixCase& c : classifications) {
      SCOPED_TRACE(testing::Message() << c.rows << " x " << c.width);
      const Shape shape{c.rows, c.width};
      const Tensor logits = random_tensor(backend, dtype, shape, 1, 4);
      const Values targets = some_targets(c);
      const Tensor target = tensor_of(backend, DType::i32, Shape{c.rows}, targets);
      const Values x = backend.download_values(logits);
      const DType wide = wide_dtype(dtype);
      const Tensor losses = backend.empty(wide, Shape{c.rows}, Category::activations);
      const Tensor log_sum_exp = backend.empty(wide, Shape{c.rows}, Category::activations);
      backend.cross_entropy_forward(losses, log_sum_exp, logits, target);
      const double factor = 0.37;
      Values loss_expected, loss_magnitude, gradient, gradient_magnitude;
      for (std::int64_t row = 0; row < c.rows; ++row) {
        double sum = 0, largest = -1e300, farthest = 0;
        for (std::int64_t i = 0; i < c.width; ++i) {
          sum += std::exp(x[at(row, i, c.width)]);
          largest = std::max(largest, x[at(row, i, c.width)]);
          farthest = std::max(farthest, std::abs(x[at(row, i, c.width)]));
        }
        const double total = std::log(sum);
        const auto label = static_cast<std::int64_t>(targets[static_cast<std::size_t>(row)]);
        loss_expected.push_back(label < 0 ? 0 : total - x[at(row, label, c.width)]);
        loss_magnitude.push_back(label < 0 ? 0 : std::abs(total) + farthest + 1);
        for (std::int64_t i = 0; i < c.width; ++i) {
          const double p = std::exp(x[at(row, i, c.width)] - total);
          gradient.push_back(label < 0 ? 0 : factor * (p - (i == label ? 1 : 0)));
          // An error of x - log_sum_exp is one of p, relative.
          gradient_magnitude.push_back(label < 0 ? 0
                                                 : factor * p * (std::abs(total) + farthest + 2) +
                                                       (i == label ? 1e-2 : 0));
        }
      }
      // Exponentials add up in 64 partial sums or more, each of up to 50257 / 64 terms, except on
      // the baseline with its 4.
      const double roundings = 16 + static_cast<double>(c.width) / 4;
      expect_close(backend, losses, loss_expected, loss_magnitude, roundings, "losses");
      const Tensor dlogits = backend.empty(dtype, shape, Category::activations);
      backend.cross_entropy_backward(dlogits, logits, target, log_sum_exp, factor);
      expect_close(backend, dlogits, gradient, gradient_magnitude, roundings, "dlogits");
      const Values apart = backend.download_values(dlogits);
      backend.cross_entropy_backward(logits, logits, target, log_sum_exp, factor);
      EXPECT_EQ(backend.download_values(logits), apart) << "dlogits may be logits";
    }
  });
}

TEST(CpuCrossEntropy, LargeLogitsDoNotOverflowAndNaNShows) {
  for_each_backend([](Backend& backend) {
    const Tensor target = tensor_of(backend, DType::i32, Shape{3}, {0, 1, 2});
    const double nan = std::nan("");
    const Tensor logits =
        tensor_of(backend, DType::f32, Shape{3, 3}, {1e4, 0, -1e4, -3e4, -3e4, -3e4, 1, nan, 2});
    const Tensor losses = backend.empty(DType::f32, Shape{3}, Category::activations);
    const Tensor log_sum_exp = backend.empty(DType::f32, Shape{3}, Category::activations);
    backend.cross_entropy_forward(losses, log_sum_exp, logits, target);
    const Values values = backend.download_values(losses);
    EXPECT_EQ(values[0], 0);
    EXPECT_NEAR(values[1], std::log(3), 3e4 * 0x1p-23);
    EXPECT_TRUE(std::isnan(values[2]));
  });
}

TEST(CpuCrossEntropy, BackwardIsTheDerivativeOfForward) {
  const auto backend = poisoned_backend(1);
  const Shape shape{4, 5};
  const Values x = backend->download_values(random_tensor(*backend, DType::f64, shape, 1, 2));
  const Tensor target = tensor_of(*backend, DType::i32, Shape{4}, {4, -1, 0, 2});
  const Tensor losses = backend->empty(DType::f64, Shape{4}, Category::activations);
  const Tensor log_sum_exp = backend->empty(DType::f64, Shape{4}, Category::activations);
  const auto loss = [&](const Values& v) {
    backend->cross_entropy_forward(losses, log_sum_exp, tensor_of(*backend, DType::f64, shape, v),
                                   target);
    return backend->sum(losses);
  };
  loss(x);
  const Tensor dx = backend->empty(DType::f64, shape, Category::activations);
  backend->cross_entropy_backward(dx, tensor_of(*backend, DType::f64, shape, x), target,
                                  log_sum_exp, 1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(backend->download_values(dx)[i], central_difference(loss, x, i), 1e-8);
  }
}

// --- Misfits ------------------------------------------------------------------------------------

TEST(CpuLayers, Misfits) {
  const auto backend = poisoned_backend(1);
  const auto f32 = [&](Shape shape) {
    return backend->zeros(DType::f32, shape, Category::activations);
  };
  const auto i32 = [&](Shape shape, double value) {
    const Tensor x = backend->empty(DType::i32, shape, Category::activations);
    backend->fill(x, value);
    return x;
  };
  const Tensor y = f32(Shape{2, 3, 4});
  const Tensor table = f32(Shape{5, 4});
  const Tensor tokens = i32(Shape{2, 3}, 1);
  EXPECT_THROW(backend->embedding_forward(y, i32(Shape{2, 3}, 5), table, Tensor()),
               std::invalid_argument);
  EXPECT_THROW(backend->embedding_forward(y, i32(Shape{2, 3}, -1), table, Tensor()),
               std::invalid_argument);
  EXPECT_THROW(backend->embedding_forward(y, i32(Shape{2, 2}, 1), table, Tensor()),
               std::invalid_argument);
  EXPECT_THROW(backend->embedding_forward(y, tokens, f32(Shape{5, 3}), Tensor()),
               std::invalid_argument);
  EXPECT_THROW(backend->embedding_forward(y, tokens, table, f32(Shape{2, 4})),
               std::invalid_argument);
  EXPECT_THROW(backend->embedding_forward(y, f32(Shape{2, 3}), table, Tensor()),
               std::invalid_argument);
  EXPECT_THROW(backend->embedding_backward(f32(Shape{5, 3}), Tensor(), y, tokens),
               std::invalid_argument);
  EXPECT_THROW(backend->embedding_backward(f32(Shape{1, 4}), Tensor(), y, tokens),
               std::invalid_argument);

  const Tensor x = f32(Shape{2, 3});
  const Tensor c = f32(Shape{3});
  const Tensor rows = f32(Shape{2});
  const Tensor wide = backend->zeros(DType::f64, Shape{2}, Category::activations);
  EXPECT_THROW(backend->layer_norm_forward(x, rows, rows, x, rows, c, 1e-5), std::invalid_argument);
  EXPECT_THROW(backend->layer_norm_forward(x, c, rows, x, c, c, 1e-5), std::invalid_argument);
  EXPECT_THROW(backend->layer_norm_forward(x, wide, wide, x, c, c, 1e-5), std::invalid_argument);
  EXPECT_THROW(backend->layer_norm_backward(x, c, rows, x, x, c, rows, rows),
               std::invalid_argument);

  const Tensor targets = i32(Shape{2}, 2);
  EXPECT_THROW(backend->cross_entropy_forward(rows, rows, x, i32(Shape{2}, 3)),
               std::invalid_argument);
  EXPECT_THROW(backend->cross_entropy_forward(rows, rows, x, i32(Shape{3}, 0)),
               std::invalid_argument);
  EXPECT_THROW(backend->cross_entropy_forward(wide, wide, x, targets), std::invalid_argument);
  EXPECT_THROW(backend->cross_entropy_backward(c, x, targets, rows, 1), std::invalid_argument);
}

}  // namespace
}  // namespace ringworld
