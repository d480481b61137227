#include "runtime/tensor.h"

#include <gtest/gtest.h>

#include "runtime/raw.h"

namespace ringworld {
namespace {

Tensor make(DType dtype, Shape shape) {
  static const auto device = Device::create({});
  return Tensor(dtype, shape,
                device->allocate(shape.elements() * size_of(dtype), Category::workspace));
}

TEST(Shape, CountsElementsAndRows) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape.elements(), 30);
  EXPECT_EQ(shape.rows(), 6);
  EXPECT_EQ(shape[-1], 5);
  EXPECT_EQ(to_string(shape), "(2, 3, 5)");
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{4, 0}).elements(), 0);
  EXPECT_THROW(shape[3], std::out_of_range);
  EXPECT_THROW((Shape{2, -1}), std::invalid_argument);
}

TEST(Tensor, ViewsShareElements) {
  const Tensor t = make(DType::f32, {4, 6});
  EXPECT_EQ(raw<float>(t.slice(7, 3)), raw<float>(t) + 7);
  EXPECT_EQ(raw<float>(t.rows(2, 1)), raw<float>(t) + 12);
  EXPECT_EQ(t.rows(1, 2).shape(), (Shape{2, 6}));
  EXPECT_EQ(raw<float>(t.rows(1, 2).slice(3, 2)), raw<float>(t) + 9);
  EXPECT_TRUE(t.view({24}).same_view(t));
  EXPECT_FALSE(t.slice(0, 23).same_view(t));
  EXPECT_EQ(t.bytes(), Bytes(96));
}

TEST(Tensor, RefusesWhatIsOutside) {
  const Tensor t = make(DType::f64, {4, 6});
  EXPECT_THROW(t.view({25}), std::invalid_argument);
  EXPECT_THROW(t.slice(20, 5), std::invalid_argument);
  EXPECT_THROW(t.slice(-1, 2), std::invalid_argument);
  EXPECT_THROW(t.rows(3, 2), std::invalid_argument);
  EXPECT_NO_THROW(t.slice(24, 0));
  EXPECT_THROW(t.lent(20, 5), std::invalid_argument);
  EXPECT_THROW((Shape{1, 2, 3, 4, 5}), std::invalid_argument);
}

TEST(Tensor, MemoryGoesWithTheLastView) {
  const auto device = Device::create({});
  Tensor view;
  {
    const Tensor whole(DType::f32, {10}, device->allocate(Bytes(40), Category::gradients));
    view = whole.slice(3, 2);
  }
  EXPECT_EQ(device->ledger().total_held, Bytes(40));
  const Tensor lent = view.lent(1, 1);
  EXPECT_TRUE(lent.same_view(view.slice(1, 1)));
  view = Tensor();
  EXPECT_EQ(device->ledger().total_held, Bytes(0));
}

}  // namespace
}  // namespace ringworld
