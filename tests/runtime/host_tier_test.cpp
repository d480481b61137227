#include "runtime/host_tier.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

std::vector<double> counting(std::int64_t n) {
  std::vector<double> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

class HostTierTest : public ::testing::Test {
 protected:
  Tensor on_device(DType dtype, std::int64_t n) {
    const Tensor x = device_->empty(dtype, Shape{n}, Category::parameters);
    device_->upload_values(x, counting(n));
    return x;
  }

  std::unique_ptr<Backend> device_ = make_cpu_backend(Device::create({.poison = true}), 1);
  HostTier host_{make_cpu_backend(make_host_device(Bytes(1000)), 1)};
};

TEST_F(HostTierTest, ABlockKeepsWhatWasStored) {
  for (const std::int64_t n : {0, 1, 7, 100}) {
    const Tensor x = on_device(DType::f32, n);
    const auto block = host_.reserve(x.bytes(), Category::parameters);
    host_.store(block, *device_, x).wait();
    device_->fill(x, 0);
    host_.fetch(*device_, x, block).wait();
    EXPECT_EQ(device_->download_values(x), counting(n));
  }
}

TEST_F(HostTierTest, ItsBudgetAndLedgerAreItsOwn) {
  const Ledger device_before = device_->device().ledger();
  const auto block = host_.reserve(Bytes(600), Category::optimizer);
  EXPECT_EQ(host_.ledger().held_in(Category::optimizer), Bytes(600));
  EXPECT_EQ(device_->device().ledger().total_held, device_before.total_held);
  const std::string message = expect_error<OutOfDeviceMemory>(
      [&] { host_.reserve(Bytes(500), Category::parameters); },
      {"out of host memory", "500 B of parameters", "1000 B", "optimizer 600 B", "--host-memory"});
  EXPECT_EQ(message.find("device"), std::string::npos) << message;
  EXPECT_EQ(host_.ledger().total_held, Bytes(600));
}

TEST_F(HostTierTest, BytesAreCountedByDirection) {
  const Tensor x = on_device(DType::bf16, 100);
  const auto block = host_.reserve(x.bytes(), Category::parameters);
  host_.store(block, *device_, x).wait();
  host_.fetch(*device_, x, block).wait();
  host_.fetch(*device_, x, block).wait();
  EXPECT_EQ(host_.traffic().down, Bytes(200));
  EXPECT_EQ(host_.traffic().up, Bytes(400));
}

TEST_F(HostTierTest, CopiesPartsBetweenTensors) {
  const Tensor x = on_device(DType::f64, 10);
  const Tensor y = host_.backend().zeros(DType::f64, Shape{3}, Category::workspace);
  host_.copy_down(y, *device_, x.slice(4, 3)).wait();
  EXPECT_EQ(host_.backend().download_values(y), (std::vector<double>{5, 6, 7}));
  host_.copy_up(*device_, x.slice(0, 3), y).wait();
  EXPECT_EQ(device_->download_values(x), (std::vector<double>{5, 6, 7, 4, 5, 6, 7, 8, 9, 10}));
}

TEST_F(HostTierTest, WhatIsInHostMemoryCrossesNoLink) {
  const Tensor x = on_device(DType::f32, 3);
  const Tensor a = host_.backend().zeros(DType::f32, Shape{3}, Category::workspace);
  const Tensor b = host_.backend().zeros(DType::f32, Shape{3}, Category::workspace);
  EXPECT_FALSE(host_.holds(x));
  EXPECT_FALSE(host_.holds(Tensor()));
  EXPECT_TRUE(host_.holds(a.slice(1, 1)));
  host_.backend().fill(a, 2);
  host_.copy_down(b, *device_, a).wait();
  EXPECT_EQ(host_.backend().download_values(b), (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(host_.traffic().down, Bytes(0));
}

TEST_F(HostTierTest, RefusesWhatIsNotAlike) {
  const Tensor x = on_device(DType::f32, 4);
  const Tensor y = host_.backend().zeros(DType::f64, Shape{4}, Category::workspace);
  EXPECT_THROW((void)host_.copy_down(y, *device_, x), std::invalid_argument);
  EXPECT_THROW((void)host_.copy_up(*device_, x, y), std::invalid_argument);
  const auto block = host_.reserve(Bytes(8), Category::parameters);
  EXPECT_THROW((void)host_.store(block, *device_, x), std::invalid_argument);
}

}  // namespace
}  // namespace ringworld
