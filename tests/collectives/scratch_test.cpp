// The memory that collectives work in, and that calls take none beside it once they have been made.
#include "collectives/scratch.h"

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/collectives/every_call.h"
#include "tests/collectives/on_threads.h"

namespace ringworld {
namespace {

class ScratchTest : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = make_cpu_backend(Device::create({.budget = Bytes(4096)}), 1);

  Bytes held() const { return backend_->device().ledger().held_in(Category::communication); }
  Bytes peak() const { return backend_->device().ledger().peak_in(Category::communication); }
};

bool overlap(const Tensor& a, const Tensor& b) {
  const auto first = [](const Tensor& x) { return (x.first_element() * size_of(x.dtype())).value; };
  return a.storage() == b.storage() && first(a) < first(b) + b.bytes().value &&
         first(b) < first(a) + a.bytes().value;
}

TEST_F(ScratchTest, PiecesOfACallLieApart) {
  Scratch scratch(*backend_);
  for (int call = 0; call < 3; ++call) {  // in pieces of their own, then in one block
    const Tensor a = scratch.take(DType::i8, 3);
    const Tensor b = scratch.take(DType::f64, 5);
    const Tensor c = scratch.take(DType::f32, 1);
    EXPECT_EQ(b.elements(), 5);
    EXPECT_EQ(b.dtype(), DType::f64);
    EXPECT_FALSE(overlap(a, b) || overlap(a, c) || overlap(b, c));
    for (const Tensor& x : {a, b, c}) {
      backend_->fill(x, 1);
    }
    scratch.reset();
  }
}

TEST_F(ScratchTest, IsHeldAndGrowsToTheLargestCall) {
  Scratch scratch(*backend_);
  EXPECT_EQ(held(), Bytes(0));
  scratch.take(DType::i8, 128);
  scratch.take(DType::i8, 64);
  scratch.reset();
  EXPECT_EQ(held(), Bytes(192));
  scratch.take(DType::i8, 100);
  scratch.reset();
  EXPECT_EQ(held(), Bytes(192));
  scratch.take(DType::i8, 128);
  scratch.take(DType::i8, 128);  // no room
  scratch.take(DType::i8, 64);   // room
  scratch.reset();
  EXPECT_EQ(held(), Bytes(320));
  EXPECT_EQ(peak(), Bytes(320));
}

TEST_F(ScratchTest, HoldsWhatItIsMadeWith) {
  {
    Scratch scratch(*backend_, Bytes(100));
    EXPECT_EQ(held(), Bytes(128));
    scratch.take(DType::f32, 32);
    scratch.reset();
    EXPECT_EQ(peak(), Bytes(128));
  }
  EXPECT_EQ(held(), Bytes(0));
}

TEST_F(ScratchTest, WhatIsGivenBackIsTakenAgain) {
  Scratch scratch(*backend_);
  for (int call = 0; call < 2; ++call) {
    const Tensor a = scratch.take(DType::f32, 16);
    const Tensor b = scratch.take(DType::f32, 16);
    scratch.give_back(a);
    const Tensor again = scratch.take(DType::f64, 8);
    EXPECT_TRUE(overlap(a, again));
    EXPECT_FALSE(overlap(b, again));
    EXPECT_FALSE(overlap(again, scratch.take(DType::f64, 8)));
    scratch.reset();
  }
  EXPECT_EQ(held(), Bytes(3 * 64));
}

TEST_F(ScratchTest, TheBudgetHolds) {
  Scratch scratch(*backend_);
  scratch.take(DType::i8, 4096);
  EXPECT_THROW(scratch.take(DType::i8, 1), OutOfDeviceMemory);
}

// --- Calls ---------------------------------------------------------------------------------------

class Memory : public testing::TestWithParam<int> {};  // ranks
INSTANTIATE_TEST_SUITE_P(Worlds, Memory, testing::Values(1, 2, 3, 5, 8));

// What is held after the first round of calls is what later rounds have at most.
TEST_P(Memory, CallsThatWereMadeBeforeAllocateNothing) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    run_communicators(GetParam(), [&](Communicator& communicator) {
      Device& device = communicator.backend().device();
      EveryCall calls(communicator, dtype, 1009);
      calls.make();
      const Ledger first = device.ledger();
      for (int round = 0; round < 3; ++round) {
        device.reset_peaks();
        calls.make();
        EXPECT_EQ(device.ledger().peak, first.held);
        EXPECT_EQ(device.ledger().total_peak, first.total_held);
      }
    });
  }
}

// Groups share it: they make their calls one after the other.
TEST(Memory, IsThatOfTheLargestCallOfAllGroups) {
  run_communicators(4, {.algorithm = "one_shot"}, [](Communicator& communicator) {
    const auto held = [&] {
      return communicator.backend().device().ledger().held_in(Category::communication);
    };
    const Tensor x = filled(communicator, DType::f32, 65'536, 1);
    const auto group = communicator.subgroup(communicator.rank() < 2 ? std::vector<int>{0, 1}
                                                                     : std::vector<int>{2, 3});
    const Bytes before = held();
    communicator.all_reduce(x, x, ReduceOp::sum, "world").wait();
    // A place for what each other rank gives, and on all but the first rank, whose turn comes when
    // the output has been written, one to add up a piece in.
    const Bytes largest = 3 * x.bytes() + Bytes(communicator.rank() == 0 ? 0 : 128 * 1024);
    EXPECT_EQ(held() - before, largest);
    group->all_reduce(x, x, ReduceOp::sum, "group").wait();
    EXPECT_EQ(held() - before, largest);
  });
}

TEST(Memory, ACallThatFindsNoRoomFails) {
  EXPECT_THROW(
      run_on_threads(2,
                     [](Transport& transport) {
                       const auto backend =
                           make_cpu_backend(Device::create({.budget = Bytes(6000)}), 1);
                       Communicator communicator(transport, *backend, {.algorithm = "one_shot"});
                       const Tensor x =
                           backend->zeros(DType::f32, Shape{1024}, Category::communication);
                       communicator.all_reduce(x, x, ReduceOp::sum, "too large").wait();
                     }),
      OutOfDeviceMemory);
}

}  // namespace
}  // namespace ringworld
