// Embedding and cross-entropy over a vocabulary in parts, as ranks of a tensor group hold it: what
// the parts make together is what one tensor makes.
#include "tests/runtime/cpu_support.h"

namespace ringworld {
namespace {

constexpr std::int64_t vocabulary = 23;
// First entries of the parts: uneven, one of a single entry, one at the end.
constexpr std::int64_t firsts[] = {0, 9, 10, 17, vocabulary};
constexpr std::int64_t count_of_parts = std::size(firsts) - 1;

Tensor columns_of(Backend& backend, const Tensor& x, std::int64_t first, std::int64_t count) {
  const Values all = backend.download_values(x);
  const std::int64_t width = x.shape()[-1];
  Values part;
  for (std::int64_t row = 0; row < x.shape().rows(); ++row) {
    const auto begin = all.begin() + row * width + first;
    part.insert(part.end(), begin, begin + count);
  }
  return tensor_of(backend, x.dtype(), Shape{x.shape().rows(), count}, part);
}

// --- Embedding ----------------------------------------------------------------------------------

TEST(CpuSplitEmbedding, RowsOfThePartsAddUpToThoseOfTheWhole) {
  for_each_gradient_configuration([](Backend& backend, DType dtype, DType gradient) {
    constexpr std::int64_t batch = 3, length = 11, width = 65;
    Values tokens;
    for (std::int64_t i = 0; i < batch * length; ++i) {
      tokens.push_back(static_cast<double>(i * 7 % vocabulary));
    }
    const Shape shape{batch, length, width};
    const Tensor token = tensor_of(backend, DType::i32, Shape{batch, length}, tokens);
    const Tensor table = random_tensor(backend, dtype, Shape{vocabulary, width}, 1);
    const Tensor positions = random_tensor(backend, dtype, Shape{length, width}, 2);
    const Tensor dy = random_tensor(backend, dtype, shape, 3);
    const Tensor whole = backend.empty(dtype, shape, Category::activations);
    backend.embedding_forward(whole, token, table, Tensor());
    const Tensor dtable = backend.zeros(gradient, table.shape(), Category::gradients);
    backend.embedding_backward(dtable, Tensor(), dy, token);

    const Tensor sum = backend.zeros(dtype, shape, Category::activations);
    Values dparts;
    for (std::int64_t part = 0; part < count_of_parts; ++part) {
      const std::int64_t first = firsts[part];
      const std::int64_t rows = firsts[part + 1] - first;
      const Tensor y = backend.empty(dtype, shape, Category::activations);
      backend.embedding_forward(y, token, table.rows(first, rows), Tensor(), first);
      backend.add(sum, sum, y);
      const Tensor dpart = backend.zeros(gradient, Shape{rows, width}, Category::gradients);
      backend.embedding_backward(dpart, Tensor(), dy, token, first);
      const Values values = backend.download_values(dpart);
      dparts.insert(dparts.end(), values.begin(), values.end());
    }
    EXPECT_EQ(backend.download_values(sum), backend.download_values(whole));
    EXPECT_EQ(dparts, backend.download_values(dtable));

    // A token that is not there leaves its position.
    const Tensor y = backend.empty(dtype, shape, Category::activations);
    const Tensor elsewhere = table.rows(0, 1);
    backend.embedding_forward(y, token, elsewhere, positions, 1000);
    const Values position_rows = backend.download_values(positions);
    const Values first_sequence = backend.download_values(y);
    EXPECT_TRUE(std::equal(position_rows.begin(), position_rows.end(), first_sequence.begin()));
  });
}

TEST(CpuSplitEmbedding, RefusesNegativeTokens) {
  const auto backend = poisoned_backend(1);
  const Tensor y = backend->zeros(DType::f32, Shape{1, 1, 4}, Category::activations);
  const Tensor table = backend->zeros(DType::f32, Shape{5, 4}, Category::activations);
  const Tensor token = tensor_of(*backend, DType::i32, Shape{1, 1}, {-1});
  EXPECT_THROW(backend->embedding_forward(y, token, table, Tensor(), 0), std::invalid_argument);
  EXPECT_THROW(backend->embedding_backward(table, Tensor(), y, token, 0), std::invalid_argument);
}

// --- Cross-entropy ------------------------------------------------------------------------------

TEST(CpuSplitCrossEntropy, PartsMakeTheLossAndTheGradientOfTheWhole) {
  for_each_configuration([](Backend& backend, DType dtype) {
    constexpr std::int64_t rows = 24;
    constexpr double factor = 0.37;
    const DType wide = wide_dtype(dtype);
    const Tensor logits = random_tensor(backend, dtype, Shape{rows, vocabulary}, 1, 4);
    Values targets;
    for (std::int64_t row = 0; row < rows; ++row) {
      targets.push_back(row == 5 ? -1 : static_cast<double>(row * 5 % vocabulary));
    }
    const Tensor target = tensor_of(backend, DType::i32, Shape{rows}, targets);
    const auto statistics = [&] { return backend.empty(wide, Shape{rows}, Category::activations); };
    const Tensor losses = statistics();
    const Tensor log_sum_exp = statistics();
    backend.cross_entropy_forward(losses, log_sum_exp, logits, target);
    const Values whole_losses = backend.download_values(losses);
    const Values whole_sums = backend.download_values(log_sum_exp);
    const Tensor dlogits = backend.empty(dtype, logits.shape(), Category::activations);
    backend.cross_entropy_backward(dlogits, logits, target, log_sum_exp, factor);

    const Tensor parts = backend.empty(wide, Shape{count_of_parts, rows}, Category::activations);
    std::vector<Tensor> part_logits, part_losses;
    for (std::int64_t part = 0; part < count_of_parts; ++part) {
      const std::int64_t classes = firsts[part + 1] - firsts[part];
      part_logits.push_back(columns_of(backend, logits, firsts[part], classes));
      part_losses.push_back(statistics());
      backend.cross_entropy_forward(part_losses.back(), parts.rows(part, 1).view(Shape{rows}),
                                    part_logits.back(), target, firsts[part]);
    }
    Values sum(static_cast<std::size_t>(rows));
    Values joined;
    for (std::int64_t part = 0; part < count_of_parts; ++part) {
      const std::int64_t classes = firsts[part + 1] - firsts[part];
      const auto p = static_cast<std::size_t>(part);
      const Tensor joined_sums = statistics();
      backend.cross_entropy_join(part_losses[p], joined_sums, parts, part, target, firsts[part],
                                 classes);
      const Values values = backend.download_values(joined_sums);
      EXPECT_TRUE(joined.empty() || joined == values) << "the same bits for every part";
      joined = values;
      const Values of_part = backend.download_values(part_losses[p]);
      for (std::size_t row = 0; row < sum.size(); ++row) {
        const bool holds = targets[row] >= static_cast<double>(firsts[part]) &&
                           targets[row] < static_cast<double>(firsts[part + 1]);
        EXPECT_TRUE(holds || of_part[row] == 0) << "row " << row << " costs in one part only";
        sum[row] += of_part[row];
      }

      const Tensor expected = columns_of(backend, dlogits, firsts[part], classes);
      backend.cross_entropy_backward(part_logits[p], part_logits[p], target, joined_sums, factor,
                                     firsts[part]);
      // Both are within one rounding of the true value, and an error of log_sum_exp is one of p.
      const Values whole = backend.download_values(expected);
      const Values split = backend.download_values(part_logits[p]);
      for (std::size_t i = 0; i < whole.size(); ++i) {
        const double bound = 2 * rounding_of(dtype) * std::abs(whole[i]) +
                             64 * rounding_of(wide) * factor + 4 * smallest_rounding_of(dtype);
        ASSERT_TRUE(std::abs(split[i] - whole[i]) <= bound)
            << "part " << part << "[" << i << "]: " << split[i] << ", whole " << whole[i];
      }
    }
    for (std::size_t row = 0; row < sum.size(); ++row) {
      const double bound = 8 * rounding_of(wide) * (std::abs(whole_sums[row]) + 20);
      EXPECT_NEAR(sum[row], whole_losses[row], bound) << row;
      if (targets[row] >= 0) {
        EXPECT_NEAR(joined[row], whole_sums[row], bound) << row;
      }
    }
    EXPECT_EQ(sum[5], 0) << "not trained";
  });
}

// The logarithms are joined as they are, so that no part's exponentials overflow.
TEST(CpuSplitCrossEntropy, JoinsWhatIsFarApart) {
  for_each_backend([](Backend& backend) {
    const double infinity = std::numeric_limits<double>::infinity();
    const Tensor parts = tensor_of(backend, DType::f32, Shape{3, 4},
                                   {1e4, 1, -infinity, 0,      //
                                    -1e4, 1, 2, std::nan(""),  //
                                    3, 1, 2, 0});
    const Tensor losses = backend.zeros(DType::f32, Shape{4}, Category::activations);
    const Tensor joined = backend.empty(DType::f32, Shape{4}, Category::activations);
    const Tensor targets = tensor_of(backend, DType::i32, Shape{4}, {5, 5, 4, 5});
    backend.cross_entropy_join(losses, joined, parts, 1, targets, 5, 2);
    const Values sums = backend.download_values(joined);
    EXPECT_EQ(sums[0], 1e4);
    EXPECT_NEAR(sums[1], 1 + std::log(3), 1e-6);
    EXPECT_NEAR(sums[2], 2 + std::log(2), 1e-6);
    EXPECT_TRUE(std::isnan(sums[3]));
    const Values values = backend.download_values(losses);
    EXPECT_EQ(values[0], 2e4);
    EXPECT_NEAR(values[1], std::log(3), 1e-6);
    EXPECT_EQ(values[2], 0) << "another part's target";
  });
}

TEST(CpuSplitCrossEntropy, Misfits) {
  const auto backend = poisoned_backend(1);
  const auto f32 = [&](Shape shape) {
    return backend->zeros(DType::f32, shape, Category::activations);
  };
  const Tensor rows = f32(Shape{2});
  const Tensor parts = f32(Shape{3, 2});
  const Tensor targets = backend->zeros(DType::i32, Shape{2}, Category::activations);
  EXPECT_THROW(backend->cross_entropy_join(rows, rows, parts, 3, targets, 0, 1),
               std::invalid_argument);
  EXPECT_THROW(backend->cross_entropy_join(rows, rows, f32(Shape{2, 3}), 0, targets, 0, 1),
               std::invalid_argument);
  EXPECT_THROW(backend->cross_entropy_join(rows, f32(Shape{3}), parts, 0, targets, 0, 1),
               std::invalid_argument);
}

}  // namespace
}  // namespace ringworld
