#include "runtime/device.h"

#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "runtime/raw.h"

namespace ringworld {
namespace {

// Counts what the device takes from the machine.
class CountingMemory : public MemorySource {
 public:
  explicit CountingMemory(Bytes& taken) : taken_(taken) {}
  std::byte* allocate(Bytes bytes) override {
    taken_ += bytes;
    return memory_->allocate(bytes);
  }
  void release(std::byte* address, Bytes bytes) override {
    taken_ -= bytes;
    memory_->release(address, bytes);
  }

 private:
  Bytes& taken_;
  std::unique_ptr<MemorySource> memory_ = make_host_memory();
};

TEST(Device, ChargesAndReturnsByCategory) {
  const auto device = Device::create({});
  auto weights = device->allocate(Bytes(1000), Category::parameters);
  {
    const auto a = device->allocate(Bytes(300), Category::activations);
    const auto b = device->allocate(Bytes(200), Category::activations);
    EXPECT_EQ(device->ledger().held_in(Category::activations), Bytes(500));
    EXPECT_EQ(device->ledger().total_held, Bytes(1500));
  }
  const auto more = device->allocate(Bytes(100), Category::gradients);
  const Ledger ledger = device->ledger();
  EXPECT_EQ(ledger.held_in(Category::activations), Bytes(0));
  EXPECT_EQ(ledger.peak_in(Category::activations), Bytes(500));
  EXPECT_EQ(ledger.total_held, Bytes(1100));
  EXPECT_EQ(ledger.total_peak, Bytes(1500));
  device->reset_peaks();
  EXPECT_EQ(device->ledger().total_peak, Bytes(1100));
  EXPECT_EQ(device->ledger().peak_in(Category::activations), Bytes(0));
}

// Remembers what it was told.
class Listener : public DeviceObserver {
 public:
  void changed(const Ledger& ledger) noexcept override { told.push_back(ledger); }
  std::vector<Ledger> told;
};

TEST(Device, TellsAnObserverOfEveryAllocationAndReturn) {
  const auto device = Device::create({.budget = Bytes(1000)});
  auto weights = device->allocate(Bytes(600), Category::parameters);
  Listener listener;
  device->observe(&listener);
  ASSERT_EQ(listener.told.size(), 1u);  // how things stood
  EXPECT_EQ(listener.told[0].held_in(Category::parameters), Bytes(600));
  {
    const auto x = device->allocate(Bytes(100), Category::activations);
    EXPECT_THROW(device->allocate(Bytes(500), Category::activations), OutOfDeviceMemory);
  }
  weights.reset();
  ASSERT_EQ(listener.told.size(), 4u);  // not of what was refused
  EXPECT_EQ(listener.told[1].held_in(Category::activations), Bytes(100));
  EXPECT_EQ(listener.told[1].total_held, Bytes(700));
  EXPECT_EQ(listener.told[2].total_held, Bytes(600));
  EXPECT_EQ(listener.told[3].total_held, Bytes(0));
  device->observe(nullptr);
  device->allocate(Bytes(10), Category::workspace);
  EXPECT_EQ(listener.told.size(), 4u);
}

TEST(Device, RefusesToPassItsBudgetAndSaysWhoHoldsWhat) {
  const auto device = Device::create({.budget = Bytes(1000)});
  const auto weights = device->allocate(Bytes(600), Category::parameters);
  try {
    device->allocate(Bytes(500), Category::optimizer);
    FAIL();
  } catch (const OutOfDeviceMemory& error) {
    const std::string text = error.what();
    for (const char* fact : {"500 B", "optimizer", "1000 B", "parameters 600 B"}) {
      EXPECT_NE(text.find(fact), std::string::npos) << text;
    }
    EXPECT_EQ(error.code(), ExitCode::out_of_memory);
  }
  EXPECT_EQ(device->ledger().total_held, Bytes(600));
  EXPECT_NO_THROW(device->allocate(Bytes(400), Category::optimizer));  // exactly full
}

TEST(Device, SpeaksOfItsMemoryByName) {
  const auto device =
      Device::create({.budget = Bytes(8), .memory = "cupboard", .remedy = "buy a larger one"});
  try {
    device->allocate(Bytes(9), Category::optimizer);
    FAIL();
  } catch (const OutOfDeviceMemory& error) {
    EXPECT_STREQ(error.what(),
                 "out of cupboard: asked for 9 B of optimizer, the budget is 8 B, held: total 0 B; "
                 "buy a larger one");
  }
}

// What the process takes never passes the ledger's peak, and what is asked for again is reused.
TEST(Device, KeepsNoMoreThanItsPeak) {
  Bytes taken;
  {
    const auto device = Device::create({}, std::make_unique<CountingMemory>(taken));
    for (int round = 0; round < 3; ++round) {
      for (const std::int64_t size : {100'000, 70'000, 30'000, 100'000}) {
        const auto a = device->allocate(Bytes(size), Category::activations);
        const auto b = device->allocate(Bytes(size / 2), Category::workspace);
        EXPECT_LE(taken, device->ledger().total_peak);
      }
    }
    const auto first = device->allocate(Bytes(100'000), Category::activations);
    EXPECT_LE(taken, device->ledger().total_peak);
  }
  EXPECT_EQ(taken, Bytes(0));
}

TEST(Device, ReusesABlockOfTheSameSize) {
  const auto device = Device::create({});
  std::byte* address = device->allocate(Bytes(5000), Category::activations)->address();
  EXPECT_EQ(device->allocate(Bytes(5000), Category::gradients)->address(), address);
}

// Peaks are reset for every step's report; what was cached serves the next step all the same.
TEST(Device, ResettingPeaksKeepsTheCache) {
  const auto device = Device::create({});
  std::byte* address = device->allocate(Bytes(5000), Category::activations)->address();
  device->reset_peaks();
  EXPECT_EQ(device->allocate(Bytes(5000), Category::activations)->address(), address);
}

TEST(Device, PoisonFillsFreshAndReusedBlocks) {
  const auto device = Device::create({.poison = true});
  for (int round = 0; round < 2; ++round) {
    const auto block = device->allocate(Bytes(64), Category::workspace);
    for (int i = 0; i < 64; ++i) {
      EXPECT_EQ(block->address()[i], std::byte{0xff});
      block->address()[i] = std::byte{0};
    }
  }
}

TEST(Device, EmptyBlocksAreFree) {
  const auto device = Device::create({.budget = Bytes(8)});
  const auto a = device->allocate(Bytes(0), Category::workspace);
  const auto b = device->allocate(Bytes(0), Category::workspace);
  EXPECT_EQ(device->ledger().total_held, Bytes(0));
}

TEST(Device, ServesSeveralThreads) {
  const auto device = Device::create({});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 1; i < 500; ++i) {
        const auto block = device->allocate(Bytes(64 * (i % 7 + 1)), Category::communication);
        block->address()[0] = std::byte{1};
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(device->ledger().total_held, Bytes(0));
}

}  // namespace
}  // namespace ringworld
