// Memory over time: what the ledger saw, in order, with every peak.
#include "training/memory_timeline.h"

#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "training/gradient_step.h"
#include "training/token_stream.h"

namespace ringworld {
namespace {

void expect_in_order(const MemoryTimeline& timeline) {
  double last = 0;
  for (const MemoryEvent& event : timeline.events()) {
    EXPECT_GE(event.seconds, last);
    last = event.seconds;
    Bytes sum;
    for (const Bytes held : event.held) {
      sum += held;
    }
    EXPECT_EQ(sum, event.total);
  }
  for (std::size_t i = 1; i < timeline.marks().size(); ++i) {
    EXPECT_GE(timeline.marks()[i].seconds, timeline.marks()[i - 1].seconds);
  }
}

void expect_peaks_of(const MemoryTimeline& timeline, const Ledger& ledger) {
  for (std::size_t c = 0; c < category_count; ++c) {
    Bytes peak;
    for (const MemoryEvent& event : timeline.events()) {
      peak = std::max(peak, event.held[c]);
    }
    EXPECT_EQ(peak, ledger.peak[c]) << name_of(static_cast<Category>(c));
  }
  EXPECT_EQ(timeline.peak().total, ledger.total_peak);
}

TEST(MemoryTimeline, HoldsEveryEventBetweenBeginAndEnd) {
  const auto device = Device::create({.budget = Bytes(5000)});
  MemoryTimeline timeline(*device);
  const auto weights = device->allocate(Bytes(1000), Category::parameters);
  timeline.mark("before there is anything to mark");
  timeline.begin();
  timeline.mark("forward");
  auto x = device->allocate(Bytes(300), Category::activations);
  auto y = device->allocate(Bytes(500), Category::workspace);
  timeline.mark("backward");
  x.reset();
  timeline.end();
  y.reset();
  timeline.mark("after the end");

  ASSERT_EQ(timeline.events().size(), 5u);
  const std::int64_t totals[] = {1000, 1300, 1800, 1500, 1500};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(timeline.events()[i].total.value, totals[i]) << i;
  }
  ASSERT_EQ(timeline.marks().size(), 2u);
  EXPECT_EQ(timeline.marks()[1].label, "backward");
  expect_in_order(timeline);
  EXPECT_EQ(timeline.budget(), Bytes(5000));

  timeline.begin();  // another step, from its own start
  timeline.end();
  ASSERT_EQ(timeline.events().size(), 2u);
  EXPECT_EQ(timeline.events()[0].total, Bytes(1000));
  EXPECT_TRUE(timeline.marks().empty());
}

TEST(MemoryTimeline, ItsPeaksAreTheLedgersInARealStep) {
  const auto device = Device::create({});
  const auto backend = make_cpu_backend(device, /*threads=*/1);
  const auto model = make_model(
      {.name = "gpt2-tiny", .layers = 2, .heads = 2, .width = 8, .vocabulary = 11, .context = 6},
      DType::f64);
  const auto strategy = make_single_process(*model, *backend, 1);
  const TokenDataset data = whole_dataset(TokenStream::synthetic(11, 100, 3), 6);
  const std::int64_t samples[] = {0, 1};
  const HostBatch batches[] = {read_batch(data, samples)};
  MemoryTimeline timeline(*device);
  device->reset_peaks();
  timeline.begin();
  compute_gradients(*model, *backend, *strategy, nullptr, batches);
  timeline.end();
  EXPECT_GT(timeline.events().size(), 20u);
  EXPECT_EQ(timeline.events().size(), timeline.recorded());
  expect_in_order(timeline);
  expect_peaks_of(timeline, device->ledger());
}

// Far more events than there is room for, with peaks of each category at odd places.
TEST(MemoryTimeline, ThinsWithoutLosingAPeak) {
  const auto device = Device::create({});
  MemoryTimeline timeline(*device, 64);
  const auto weights = device->allocate(Bytes(7), Category::parameters);
  device->reset_peaks();
  timeline.begin();
  for (int i = 0; i < 5000; ++i) {
    const Category category = static_cast<Category>(i % category_count);
    const Bytes bytes(i * 7919 % 1000 + 1);
    const auto one = device->allocate(bytes, category);
    const auto other = device->allocate(bytes, Category::workspace);
  }
  timeline.end();
  EXPECT_EQ(timeline.recorded(), 20002u);
  EXPECT_LE(timeline.events().size(), 64u);
  EXPECT_GE(timeline.events().size(), 16u);
  EXPECT_EQ(timeline.events().front().total, Bytes(7));
  EXPECT_EQ(timeline.events().back().total, Bytes(7));
  expect_in_order(timeline);
  expect_peaks_of(timeline, device->ledger());
  EXPECT_THROW(MemoryTimeline(*device, 31), std::invalid_argument);
}

TEST(MemoryTimeline, ThreadsMayAllocateAtTheSameTime) {
  const auto device = Device::create({});
  MemoryTimeline timeline(*device, 256);
  timeline.begin();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        device->allocate(Bytes(64), Category::communication);
        timeline.mark("thread");
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  timeline.end();
  EXPECT_EQ(timeline.recorded(), 4002u);
  EXPECT_EQ(timeline.marks().size(), 2000u);
  expect_in_order(timeline);
  expect_peaks_of(timeline, device->ledger());
}

TEST(MemoryTimeline, ATimelineThatGoesIsForgotten) {
  const auto device = Device::create({});
  {
    MemoryTimeline timeline(*device);
    timeline.begin();
  }
  device->allocate(Bytes(8), Category::workspace);  // tells nobody
}

TEST(MemoryTimeline, IsWrittenAsJson) {
  const auto device = Device::create({.budget = Bytes(4096)});
  MemoryTimeline timeline(*device);
  timeline.begin();
  timeline.mark("forward \"h.0\"");
  device->allocate(Bytes(300), Category::activations);
  timeline.end();
  const auto json = nlohmann::json::parse(timeline.json_text({{"ranks", 2}}));
  EXPECT_EQ(json.at("schema"), "ringworld.memory_timeline");
  EXPECT_EQ(json.at("version"), 1);
  EXPECT_EQ(json.at("conditions").at("ranks"), 2);
  EXPECT_EQ(json.at("budget_bytes"), 4096);
  EXPECT_EQ(json.at("peak_bytes").at("activations"), 300);
  EXPECT_EQ(json.at("peak_bytes").at("total"), 300);
  EXPECT_EQ(json.at("marks").at(0).at("label"), "forward \"h.0\"");
  ASSERT_EQ(json.at("events").size(), 4u);
  EXPECT_EQ(json.at("events").at(1).at("activations"), 300);
  EXPECT_EQ(json.at("events").at(1).at("gradients"), 0);
  EXPECT_EQ(json.at("events").at(2).at("total"), 0);
  EXPECT_GE(json.at("events").at(2).at("seconds"), json.at("events").at(1).at("seconds"));

  const auto boundless = Device::create({});
  MemoryTimeline empty(*boundless);
  const auto nothing = nlohmann::json::parse(empty.json_text({}));
  EXPECT_TRUE(nothing.at("budget_bytes").is_null());
  EXPECT_TRUE(nothing.at("events").empty());
}

}  // namespace
}  // namespace ringworld
