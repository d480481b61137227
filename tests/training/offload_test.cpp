#include "training/offload.h"

#include <csignal>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "training/optimizer.h"

namespace ringworld {
namespace {

enum class Place { host, file };

std::vector<std::vector<std::byte>> values_of(Backend& backend, const std::vector<Shard>& shards) {
  std::vector<std::vector<std::byte>> all;
  for (const Shard& shard : shards) {
    all.emplace_back(static_cast<std::size_t>(shard.value.bytes().value));
    backend.download(all.back(), shard.value);
  }
  return all;
}

// A device with shards of odd sizes; two of the same seed hold the same.
struct Rank {
  Rank(DType dtype, const std::vector<std::int64_t>& sizes) : parameters(sizes.size()) {
    const bool half = size_of(dtype) == Bytes(2);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      parameters[i].decay = i % 2 == 0;
      Shard shard{&parameters[i], 0, backend->empty(dtype, Shape{sizes[i]}, Category::parameters),
                  backend->empty(half ? DType::f32 : dtype, Shape{sizes[i]}, Category::gradients)};
      backend->normal(shard.value, {.seed = 1, .stream = static_cast<std::uint32_t>(i)}, 0, 0, 1);
      shards.push_back(shard);
    }
  }

  void new_gradients(std::uint64_t step) {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      backend->normal(shards[i].gradient,
                      {.seed = 2 + step, .stream = static_cast<std::uint32_t>(i)}, 0, 0, 0.1);
    }
  }

  std::vector<std::vector<std::byte>> values() const { return values_of(*backend, shards); }

  std::unique_ptr<Backend> backend = make_cpu_backend(Device::create({.poison = true}), 1);
  std::vector<Parameter> parameters;
  std::vector<Shard> shards;
};

struct TestTiers {
  explicit TestTiers(Place place, Bytes host_budget = Bytes(0), Bytes file_budget = Bytes(0))
      : host(make_cpu_backend(make_host_device(host_budget), 1)) {
    if (place == Place::file) {
      file = std::make_unique<FileTier>(
          FileTierOptions{.directory = directory.path(), .budget = file_budget}, host);
    }
  }
  OffloadOptions options(OffloadLevel level, Bytes block = Bytes(1 << 20)) {
    return {.level = level, .host = &host, .file = file.get(), .block = block};
  }
  Bytes held(Category category) const {
    return (file != nullptr ? file->ledger() : host.ledger()).held_in(category);
  }

  TemporaryDirectory directory;
  HostTier host;
  std::unique_ptr<FileTier> file;
};

struct Rule {
  OptimizerOptions options;
  std::string name;
};
const Rule rules[] = {{{}, "adamw"},
                      {{.kind = OptimizerKind::sgd, .momentum = 0.9}, "sgd with momentum"},
                      {{.kind = OptimizerKind::sgd, .momentum = 0}, "sgd"}};

// body(place, level) for all there are.
template <typename Body>
void for_each_placement(const Body& body) {
  for (const Place place : {Place::host, Place::file}) {
    for (const OffloadLevel level : {OffloadLevel::optimizer, OffloadLevel::master}) {
      SCOPED_TRACE((place == Place::host ? "host, " : "file, ") + std::string(name_of(level)));
      body(place, level);
    }
  }
}

class OffloadTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, OffloadTest,
                         ::testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

// Every placement steps beside the resident optimizer.
void expect_same_as_resident(DType dtype, const std::vector<std::int64_t>& sizes, Bytes block,
                             int steps) {
  for (const Rule& rule : rules) {
    SCOPED_TRACE(rule.name);
    Rank resident(dtype, sizes);
    const auto control = make_optimizer(rule.options, resident.shards, *resident.backend);
    struct Offloaded {
      std::vector<Shard> shards;
      std::unique_ptr<TestTiers> tiers;
      std::unique_ptr<Optimizer> optimizer;
    };
    std::vector<std::unique_ptr<Offloaded>> all;
    for_each_placement([&](Place place, OffloadLevel level) {
      auto offloaded = std::make_unique<Offloaded>();
      offloaded->tiers = std::make_unique<TestTiers>(place);
      offloaded->shards = resident.shards;  // the same gradients, values of their own
      for (Shard& shard : offloaded->shards) {
        const Tensor value =
            resident.backend->empty(dtype, shard.value.shape(), Category::parameters);
        resident.backend->copy(value, shard.value);
        shard.value = value;
      }
      offloaded->optimizer = make_optimizer(rule.options, offloaded->shards, *resident.backend,
                                            offloaded->tiers->options(level, block));
      all.push_back(std::move(offloaded));
    });
    for (int step = 1; step <= steps; ++step) {
      resident.new_gradients(static_cast<std::uint64_t>(step));
      control->step(0.01 / step, 0.5);
      std::size_t i = 0;
      for_each_placement([&](Place, OffloadLevel) {
        all[i]->optimizer->step(0.01 / step, 0.5);
        ASSERT_TRUE(values_of(*resident.backend, all[i]->shards) == resident.values())
            << "step " << step;
        ++i;
      });
    }
  }
}

TEST_P(OffloadTest, SameBitsAsResident) {
  expect_same_as_resident(GetParam(), {0, 1, 7, 1'000'003}, Bytes(1 << 20), 2);
}

// Shards that share blocks, and more blocks than are in host memory at once.
TEST_P(OffloadTest, SameBitsInSmallBlocks) {
  expect_same_as_resident(GetParam(), {0, 1, 7, 1003, 64, 0, 5000, 1}, Bytes(2000), 4);
  expect_same_as_resident(GetParam(), {5, 3}, Bytes(1), 3);  // an element each
}

TEST_P(OffloadTest, NoShardsAndNoElements) {
  expect_same_as_resident(GetParam(), {}, Bytes(1000), 1);
  expect_same_as_resident(GetParam(), {0, 0}, Bytes(1000), 1);
}

// Bytes moved in a step, and where state is charged, for every level as training/offload.h says.
TEST_P(OffloadTest, MovesAndChargesWhatTheTableSays) {
  const std::vector<std::int64_t> sizes{1, 7, 1003, 5000};
  const std::int64_t n = 6011;
  for (const Rule& rule : rules) {
    SCOPED_TRACE(rule.name);
    for_each_placement([&](Place place, OffloadLevel level) {
      Rank rank(GetParam(), sizes);
      TestTiers tiers(place);
      const bool mixed = size_of(GetParam()) == Bytes(2);
      const Bytes g = mixed ? Bytes(4) : size_of(GetParam());
      const std::int64_t s =
          rule.options.kind == OptimizerKind::adamw ? 2 : (rule.options.momentum != 0 ? 1 : 0);
      const bool master = level == OffloadLevel::master;
      const Bytes state = (s + (master ? 1 : 0)) * n * g;

      const Bytes device_before = rank.backend->device().ledger().held_in(Category::optimizer);
      const auto optimizer = make_optimizer(rule.options, rank.shards, *rank.backend,
                                            tiers.options(level, Bytes(65536)));
      EXPECT_EQ(rank.backend->device().ledger().held_in(Category::optimizer) - device_before,
                mixed && !master ? n * g : Bytes(0));
      const Bytes pages((state.value + 4095) / 4096 * 4096);
      EXPECT_EQ(tiers.held(Category::optimizer), place == Place::file ? pages : state);
      EXPECT_EQ(optimizer->traffic().to_host, master ? n * size_of(GetParam()) : Bytes(0));
      EXPECT_EQ(optimizer->traffic().to_device, Bytes(0));
      EXPECT_EQ(optimizer->traffic().file_written, place == Place::file ? state : Bytes(0));

      rank.new_gradients(1);
      const OffloadTraffic before = optimizer->traffic();
      const LinkTraffic host_before = tiers.host.traffic();
      const Ledger host_ledger = tiers.host.ledger();
      optimizer->step(0.1);
      const OffloadTraffic moved = optimizer->traffic() - before;
      EXPECT_EQ(moved.to_host, (master ? 1 : 2) * n * g);
      EXPECT_EQ(moved.to_device, n * (master ? size_of(GetParam()) : g));
      EXPECT_EQ(moved.file_read, place == Place::file ? state : Bytes(0));
      EXPECT_EQ(moved.file_written, place == Place::file ? state : Bytes(0));
      EXPECT_GE(moved.seconds_waited, 0);
      EXPECT_EQ((tiers.host.traffic() - host_before).down, moved.to_host);
      EXPECT_EQ((tiers.host.traffic() - host_before).up, moved.to_device);
      // A step takes no more memory than the optimizer took at first.
      EXPECT_EQ(tiers.host.ledger().total_peak, host_ledger.total_peak);
      EXPECT_EQ(tiers.host.ledger().total_held, host_ledger.total_held);
    });
  }
}

// 1 - 0.1 * 0.1 * 1 - 0.1 * 1 / (1 + 1e-8)
TEST(Offload, FirstStepOfAdamWByHand) {
  for (const Place place : {Place::host, Place::file}) {
    for (const OffloadLevel level : all_offload_levels) {
      Rank rank(DType::f64, {1});
      TestTiers tiers(place);
      rank.backend->fill(rank.shards[0].value, 1);
      rank.backend->fill(rank.shards[0].gradient, 1);
      const auto optimizer =
          make_optimizer({.weight_decay = 0.1}, rank.shards, *rank.backend, tiers.options(level));
      optimizer->step(0.1);
      EXPECT_NEAR(rank.backend->download_values(rank.shards[0].value)[0], 0.890000001, 1e-15);
    }
  }
}

// Shards that are in host memory themselves are updated there, and nothing crosses the link.
TEST_P(OffloadTest, ShardsInHostMemoryStayThere) {
  for_each_placement([&](Place place, OffloadLevel level) {
    const OptimizerOptions options;
    Rank resident(GetParam(), {7, 1003});
    Rank offloaded(GetParam(), {7, 1003});
    TestTiers tiers(place);
    Backend& host = tiers.host.backend();
    resident.new_gradients(1);
    offloaded.new_gradients(1);
    for (Shard& shard : offloaded.shards) {
      for (Tensor* tensor : {&shard.value, &shard.gradient}) {
        const Tensor moved = host.empty(tensor->dtype(), tensor->shape(), Category::parameters);
        host.copy(moved, *tensor);
        *tensor = moved;
      }
    }
    const auto a = make_optimizer(options, resident.shards, *resident.backend);
    // Masters of level optimizer, which would be the device's, are here in host memory as well.
    const auto b = make_optimizer(options, offloaded.shards, host, tiers.options(level));
    for (int step = 0; step < 2; ++step) {
      a->step(0.01);
      b->step(0.01);
      ASSERT_TRUE(resident.values() == offloaded.values());
    }
    EXPECT_EQ(b->traffic().to_host, Bytes(0));
    EXPECT_EQ(b->traffic().to_device, Bytes(0));
  });
}

TEST(Offload, BudgetsAreEnforcedInTheTiersOwnWords) {
  Rank rank(DType::f32, {10'000});
  {
    TestTiers tiers(Place::host, Bytes(150'000));  // 80,000 of moments, 80,000 on their way
    expect_error<OutOfDeviceMemory>(
        [&] {
          make_optimizer({}, rank.shards, *rank.backend, tiers.options(OffloadLevel::optimizer));
        },
        {"out of host memory", "of optimizer", "--host-memory"});
    EXPECT_EQ(tiers.host.ledger().total_held, Bytes(0));
  }
  {
    TestTiers tiers(Place::file, Bytes(0), Bytes(81'919));
    expect_error<OutOfDeviceMemory>(
        [&] {
          make_optimizer({}, rank.shards, *rank.backend, tiers.options(OffloadLevel::optimizer));
        },
        {"out of file memory", "of optimizer", "--file-memory"});
    EXPECT_EQ(tiers.file->ledger().total_held, Bytes(0));
  }
  TestTiers tiers(Place::file, Bytes(0), Bytes(81'920));
  EXPECT_NO_THROW(
      make_optimizer({}, rank.shards, *rank.backend, tiers.options(OffloadLevel::optimizer)));
}

// Host memory beside a file holds three blocks, however much state there is.
TEST(Offload, StateInAFileNeedsLittleHostMemory) {
  const auto peak = [](std::int64_t elements) {
    Rank rank(DType::f32, {elements});
    TestTiers tiers(Place::file);
    make_optimizer({}, rank.shards, *rank.backend, tiers.options(OffloadLevel::master, Bytes(4000)))
        ->step(0.1);
    return tiers.host.ledger().total_peak;
  };
  EXPECT_EQ(peak(3000), peak(50'000));
  // a gradient of 4000 bytes and a state of three times that in whole pages and one more, thrice
  EXPECT_EQ(peak(3000), Bytes(3 * (4000 + 4 * 4096)));
}

// Writes fail in the middle of a step, or only at its end: the step says so, and so does the next.
TEST(Offload, AStateThatCannotBeWrittenEndsTheRun) {
  for (const Bytes block : {Bytes(16384), Bytes(1 << 20)}) {
    Rank rank(DType::f32, {50'000});
    TestTiers tiers(Place::file);
    const auto optimizer = make_optimizer({}, rank.shards, *rank.backend,
                                          tiers.options(OffloadLevel::optimizer, block));
    rank.new_gradients(1);
    optimizer->step(0.1);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit limit{.rlim_cur = 204'800, .rlim_max = before.rlim_max};
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    expect_error<DataError>([&] { optimizer->step(0.1); },
                            {"--offload-path", "could not be written", "File too large"});
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    for (const double value : rank.backend->download_values(rank.shards[0].value)) {
      ASSERT_TRUE(std::abs(value) < 10);  // the weights are weights still
    }
    expect_error<DataError>([&] { optimizer->step(0.1); },
                            {"--offload-path", "could not be written"});
  }
}

TEST(Offload, RefusesWhatItWasNotMadeFor) {
  Rank rank(DType::f32, {3, 4});
  EXPECT_THROW(make_optimizer({}, rank.shards, *rank.backend, {.level = OffloadLevel::optimizer}),
               std::invalid_argument);
  TestTiers tiers(Place::host);
  rank.shards[1].value = rank.backend->zeros(DType::bf16, {4}, Category::parameters);
  EXPECT_THROW(
      make_optimizer({}, rank.shards, *rank.backend, tiers.options(OffloadLevel::optimizer)),
      std::invalid_argument);
}

TEST(Offload, LevelsHaveNames) {
  EXPECT_EQ(name_of(OffloadLevel::none), "none");
  EXPECT_EQ(name_of(OffloadLevel::optimizer), "optimizer");
  EXPECT_EQ(name_of(OffloadLevel::master), "master");
}

}  // namespace
}  // namespace ringworld
