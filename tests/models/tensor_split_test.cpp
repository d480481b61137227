// What tensor parallelism does to parameters and products: which elements a device has, that their
// initial values are the whole's, and that the devices' products are the whole product.
#include <algorithm>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "models/layers.h"
#include "runtime/error.h"
#include "tests/models/support.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

// --- Which elements ------------------------------------------------------------------------------

// By definition, for each element of this device's part its index in the whole: of the indices
// along the split axis, those of the device's part of each section, in their order.
std::vector<std::int64_t> own_elements(const Parameter& p, int rank, int size) {
  const std::int64_t rows = p.whole_shape[0];
  const std::int64_t columns = p.whole_shape.axes() == 2 ? p.whole_shape[1] : 1;
  const auto is_own = [&](std::int64_t along) {
    std::int64_t first = 0;
    for (const std::int64_t section : p.sections) {
      if (along < first + section) {
        const std::int64_t in_section = along - first;
        std::int64_t owner = 0;
        for (std::int64_t before = 0; owner < size; ++owner) {
          before += section / size + (owner < section % size ? 1 : 0);
          if (in_section < before) {
            break;
          }
        }
        return owner == rank;
      }
      first += section;
    }
    return false;
  };
  std::vector<std::int64_t> own;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      if (p.split_axis < 0 || is_own(p.split_axis == 0 ? row : column)) {
        own.push_back(row * columns + column);
      }
    }
  }
  return own;
}

struct Layout {
  Shape shape;
  int axis;
  std::vector<std::int64_t> sections;
};

TEST(TensorSplit, RunsAreTheElementsOfTheDefinition) {
  for (const Layout& layout :
       {Layout{{12}, 0, {}}, Layout{{11}, 0, {}}, Layout{{12, 3}, 0, {}}, Layout{{11, 3}, 0, {}},
        Layout{{3, 12}, 1, {}}, Layout{{3, 11}, 1, {}}, Layout{{12, 3}, 0, {4, 4, 4}},
        Layout{{18, 2}, 0, {9, 5, 4}}, Layout{{12}, 0, {4, 4, 4}}, Layout{{2, 14}, 1, {9, 5}},
        Layout{{5, 4}, -1, {}}}) {
    for (const int size : {1, 2, 3, 4}) {
      for (int rank = 0; rank < size; ++rank) {
        SCOPED_TRACE(to_string(layout.shape) + " along axis " + std::to_string(layout.axis) +
                     ", device " + std::to_string(rank) + " of " + std::to_string(size));
        const TensorParallel tensor(rank, size, false);
        Model model("toy", DType::f32, 2, 0, &tensor);
        const Parameter& p = *model.add_parameter({.name = "weight",
                                                   .shape = layout.shape,
                                                   .split_axis = layout.axis,
                                                   .sections = layout.sections});
        Parameter defined = p;
        if (defined.sections.empty() && layout.axis >= 0) {
          defined.sections = {layout.shape[layout.axis]};
        }
        const std::vector<std::int64_t> own = own_elements(defined, rank, size);
        ASSERT_EQ(static_cast<std::int64_t>(own.size()), p.shape.elements());
        // Ranges that begin and end anywhere.
        for (std::int64_t first = 0; first <= p.shape.elements(); ++first) {
          for (std::int64_t end = first; end <= p.shape.elements(); ++end) {
            std::vector<std::int64_t> found(static_cast<std::size_t>(end - first), -1);
            for_each_run(p, first, end - first,
                         [&](std::int64_t in_whole, std::int64_t at, std::int64_t count) {
                           for (std::int64_t i = 0; i < count; ++i) {
                             found.at(static_cast<std::size_t>(at + i)) = in_whole + i;
                           }
                         });
            ASSERT_TRUE(std::equal(found.begin(), found.end(), own.begin() + first))
                << first << " to " << end;
          }
        }
      }
    }
  }
}

TEST(TensorSplit, PartsDifferByOneAtMost) {
  for (const int size : {1, 2, 3, 8}) {
    for (std::int64_t whole = 0; whole < 20; ++whole) {
      std::int64_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Part part = TensorParallel(rank, size, false).part(whole);
        EXPECT_EQ(part.first, next);
        EXPECT_TRUE(part.count == whole / size || part.count == (whole + size - 1) / size);
        next += part.count;
      }
      EXPECT_EQ(next, whole);
    }
  }
}

TEST(TensorSplit, FewerRowsThanDevicesAreRefusedWithBothNumbers) {
  const TensorParallel tensor(0, 4, false);
  Model model("toy", DType::f32, 2, 0, &tensor);
  expect_error<UsageError>(
      [&] {
        model.add_parameter({.name = "table", .shape = {3, 8}, .split_axis = 0});
      },
      {"'table'", "3 rows", "4 tensor ranks", "at most 3"});
}

TEST(TensorSplit, DimensionsThatDoNotDivideAreRefusedWithBothNumbers) {
  const auto refuse = [](ModelOptions options, int size,
                         std::initializer_list<std::string_view> facts) {
    const TensorParallel tensor(0, size, false);
    expect_error<UsageError>([&] { make_model(options, DType::f32, &tensor); }, facts);
  };
  refuse({.layers = 1, .heads = 4, .width = 12}, 3, {"4 heads", "3 tensor ranks"});
  refuse({.name = "llama-tiny", .layers = 1, .heads = 8, .width = 32, .kv_heads = 2}, 4,
         {"2 kv-heads", "4 tensor ranks"});
  refuse({.name = "llama-tiny", .layers = 1, .heads = 4, .width = 16, .hidden = 18, .kv_heads = 4},
         4, {"18 hidden", "4 tensor ranks"});
  refuse({.name = "mlp", .layers = 1, .width = 8, .hidden = 9}, 2, {"9 hidden", "2 tensor ranks"});
}

// --- Initial values ------------------------------------------------------------------------------

TEST(TensorSplit, InitialValuesAreTheWholesForEveryLayout) {
  const auto backend = make_test_backend();
  for (const std::string name : {"gpt2-tiny", "llama-tiny", "mlp"}) {
    ModelOptions options{.name = name, .layers = 2, .width = 16, .vocabulary = 13};
    if (name != "mlp") {
      options.heads = 4;
      options.context = 6;
    }
    if (name == "llama-tiny") {
      options.kv_heads = 4;
      options.hidden = 20;
    }
    const auto whole = make_model(options, DType::f64);
    bind(*backend, *whole, 7);
    for (const int size : {2, 4}) {
      std::vector<std::set<std::vector<double>>> slices(whole->parameters().size());
      for (int rank = 0; rank < size; ++rank) {
        const TensorParallel tensor(rank, size, false);
        const auto slice = make_model(options, DType::f64, &tensor);
        ASSERT_EQ(slice->parameters().size(), whole->parameters().size());
        bind(*backend, *slice, 7);
        for (std::size_t i = 0; i < slice->parameters().size(); ++i) {
          const Parameter& p = *slice->parameters()[i];
          SCOPED_TRACE(p.name + ", device " + std::to_string(rank) + " of " + std::to_string(size));
          ASSERT_EQ(p.name, whole->parameters()[i]->name);
          const std::vector<double> all = backend->download_values(whole->parameters()[i]->value);
          std::vector<double> expected;
          for (const std::int64_t element : own_elements(p, rank, size)) {
            expected.push_back(all[static_cast<std::size_t>(element)]);
          }
          const std::vector<double> own = backend->download_values(p.value);
          EXPECT_EQ(own, expected);
          if (p.split_axis >= 0 && p.deviation > 0) {
            EXPECT_TRUE(slices[i].insert(own).second) << "another device has the same numbers";
          }
          // A shard of the slice that begins and ends anywhere.
          const std::int64_t first = p.shape.elements() / 3;
          const std::int64_t count = p.shape.elements() / 2;
          const Tensor shard = backend->empty(DType::f64, {count}, Category::workspace);
          initialize(*backend, p, shard, first, 7);
          EXPECT_EQ(backend->download_values(shard),
                    std::vector<double>(own.begin() + first, own.begin() + first + count));
        }
      }
    }
  }
}

// --- Products ------------------------------------------------------------------------------------

// x (rows, side) weight^T of a layer (side, side) without a bias, whole and split over 8 devices.
class SplitProduct {
 public:
  SplitProduct(DType dtype, std::int64_t rows, std::int64_t side, Split split, bool integers)
      : dtype_(dtype), side_(side), split_(split), integers_(integers) {
    x_ = backend_->empty(dtype, {1, rows, side}, Category::workspace);
    backend_->normal(x_, RandomKey{3, Purpose::initial_weights, 1}, 0, 0, 1);
    if (integers) {
      std::vector<double> values = backend_->download_values(x_);
      std::ranges::for_each(values, [](double& v) { v = std::round(v); });
      backend_->upload_values(x_, values);
    }
  }

  std::vector<double> whole() { return backend_->download_values(product(0, 1)); }

  // Side by side where outputs are split, added up in f64 where inputs are.
  std::vector<double> in_parts() {
    const std::int64_t rows = x_.shape().rows();
    std::vector<double> y(static_cast<std::size_t>(rows * side_));
    const std::int64_t each = side_ / 8;
    for (int rank = 0; rank < 8; ++rank) {
      const std::vector<double> own = backend_->download_values(product(rank, 8));
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t columns = split_ == Split::outputs ? each : side_;
        for (std::int64_t column = 0; column < columns; ++column) {
          const std::int64_t first = split_ == Split::outputs ? rank * each : 0;
          y[static_cast<std::size_t>(row * side_ + first + column)] +=
              own[static_cast<std::size_t>(row * columns + column)];
        }
      }
    }
    return y;
  }

 private:
  Tensor product(int rank, int size) {
    const TensorParallel tensor(rank, size, false);
    Model model("toy", dtype_, 2, 0, &tensor);
    const Linear linear =
        add_linear(model, "fc", side_, side_, {.deviation = 1, .split = split_, .bias = false});
    Parameter& weight = *linear.weight;
    weight.value = backend_->empty(dtype_, weight.shape, Category::parameters);
    initialize(*backend_, weight, weight.value, 0, 5);
    if (integers_) {
      std::vector<double> values = backend_->download_values(weight.value);
      std::ranges::for_each(values, [](double& v) { v = std::round(v); });
      backend_->upload_values(weight.value, values);
    }
    const std::int64_t rows = x_.shape().rows();
    Tensor x = x_;
    if (split_ == Split::inputs && size > 1) {
      const Part part = tensor.part(side_);
      const std::vector<double> all = backend_->download_values(x_);
      std::vector<double> own;
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto first = all.begin() + row * side_ + part.first;
        own.insert(own.end(), first, first + part.count);
      }
      x = backend_->empty(dtype_, {1, rows, part.count}, Category::workspace);
      backend_->upload_values(x, own);
    }
    const Tensor y = backend_->empty(dtype_, {1, rows, linear.outputs()}, Category::workspace);
    linear.forward(*backend_, y, x);
    return y;
  }

  std::unique_ptr<Backend> backend_ = make_test_backend();
  DType dtype_;
  std::int64_t side_;
  Split split_;
  bool integers_;
  Tensor x_;
};

// Sums of products of small integers are exact in any order: so column- and row-parallel products
// have the bits of the whole one, whatever the kernels do.
TEST(TensorSplit, ProductsOfIntegersAreTheSameBits) {
  for (const Split split : {Split::outputs, Split::inputs}) {
    for (const std::int64_t rows : {1, 5, 64}) {
      SplitProduct product(DType::f32, rows, 256, split, true);
      EXPECT_EQ(product.in_parts(), product.whole()) << rows << " rows";
    }
  }
}

// Of the same kernel, a column's sum is added in the same order however many columns there are: so
// a product split by columns has the bits of the whole one. It has not where OpenBLAS takes its
// kernel for small products for the parts and the one for large products for the whole, as it does
// for 64 rows and a side of 64: those orders differ, as they do where inputs are split.
//
// An element is a sum of 8192 products of standard normal numbers, whose magnitudes add up to about
// 0.64 * 8192. Rounding errors of either sign make about sqrt(n) epsilon times that (Higham and
// Mary, SIAM Journal on Scientific Computing, 2019), in each of the two sums.
TEST(TensorSplit, ASquareOf8192IsTheWholeWithinRoundingAndByColumnsBitwise) {
  constexpr std::int64_t side = 8192;
  const double rounding = 2 * std::sqrt(side) * std::numeric_limits<float>::epsilon() / 2 * side;
  for (const Split split : {Split::outputs, Split::inputs}) {
    SplitProduct product(DType::f32, 8, side, split, false);
    const std::vector<double> whole = product.whole();
    const std::vector<double> parts = product.in_parts();
    double largest = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      largest = std::max(largest, std::abs(whole[i] - parts[i]));
    }
    EXPECT_LE(largest, split == Split::outputs ? 0 : rounding);
  }
}

}  // namespace
}  // namespace ringworld
