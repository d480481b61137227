#include "runtime/file_tier.h"

#include <csignal>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "runtime/async_io.h"
#include "runtime/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

constexpr std::int64_t page = 4096;

std::unique_ptr<Backend> device_backend() {
  return make_cpu_backend(Device::create({.poison = true}), 1);
}

// A tensor of bytes that a generator of random numbers gave.
Tensor random_bytes(Backend& backend, std::int64_t n, std::uint32_t seed) {
  std::vector<std::byte> data(static_cast<std::size_t>(n));
  std::uint32_t state = seed + 1;
  for (std::byte& byte : data) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24);
  }
  const Tensor x = backend.empty(DType::i8, Shape{n}, Category::parameters);
  backend.upload(x, data);
  return x;
}

std::vector<std::byte> bytes_of(Backend& backend, const Tensor& x) {
  std::vector<std::byte> data(static_cast<std::size_t>(x.bytes().value));
  backend.download(data, x);
  return data;
}

class FileTierTest : public ::testing::Test {
 protected:
  FileTierOptions options(Bytes budget = Bytes(0)) const {
    return {.directory = directory_.path(), .budget = budget};
  }
  // body(tier) for every way to the file that there is here.
  void for_each_way(const std::function<void(FileTier&)>& body) {
    for (const bool direct : {true, false}) {
      for (const bool uring : {true, false}) {
        FileTierOptions o = options();
        o.allow_direct = direct;
        o.allow_io_uring = uring;
        FileTier tier(o, host_);
        SCOPED_TRACE(tier.description());
        body(tier);
      }
    }
  }

  const TemporaryDirectory directory_;
  const std::unique_ptr<Backend> device_ = device_backend();
  HostTier host_{make_cpu_backend(make_host_device(Bytes(0)), 1)};
};

TEST_F(FileTierTest, ReadsBackWhatWasWritten) {
  const Tensor large = random_bytes(*device_, 50'000'000, 9);
  const auto expected = bytes_of(*device_, large);
  const Tensor back = device_->empty(DType::i8, large.shape(), Category::parameters);
  for_each_way([&](FileTier& tier) {
    for (const std::int64_t n : {0, 1, 511, 512, 513, 4096, 4097, 1'048'577, 50'000'000}) {
      SCOPED_TRACE(n);
      const auto block = tier.reserve(Bytes(n), Category::optimizer);
      EXPECT_EQ(block->bytes(), Bytes(n));
      tier.store(block, *device_, large.slice(0, n)).wait();
      device_->fill(back, 1);
      tier.fetch(*device_, back.slice(0, n), block).wait();
      auto read = bytes_of(*device_, back.slice(0, n));
      EXPECT_TRUE(std::equal(read.begin(), read.end(), expected.begin()));
      // and not a byte more
      const std::int64_t rest = std::min<std::int64_t>(50'000'000 - n, 2 * page);
      for (const std::byte byte : bytes_of(*device_, back.slice(n, rest))) {
        ASSERT_EQ(byte, std::byte{1});
      }
    }
  });
}

TEST_F(FileTierTest, BlocksKeepTheirOwn) {
  for_each_way([&](FileTier& tier) {
    std::vector<Tensor> tensors;
    std::vector<std::shared_ptr<const TierBlock>> blocks;
    std::vector<Work> works;
    for (std::uint32_t i = 0; i < 40; ++i) {
      tensors.push_back(random_bytes(*device_, 1000 * i % 7777, i));
      blocks.push_back(tier.reserve(tensors.back().bytes(), Category::optimizer));
      works.push_back(tier.store(blocks.back(), *device_, tensors.back()));
    }
    for (Work& work : works) {
      work.wait();
    }
    // Blocks that were given back are used again, and nobody else's are.
    for (std::size_t i = 0; i < 40; i += 3) {
      blocks[i] = nullptr;
      tensors[i] = random_bytes(*device_, 100 * static_cast<std::int64_t>(i), 77);
      blocks[i] = tier.reserve(tensors[i].bytes(), Category::optimizer);
      tier.store(blocks[i], *device_, tensors[i]).wait();
    }
    works.clear();
    std::vector<Tensor> back;
    for (std::size_t i = 0; i < 40; ++i) {
      back.push_back(device_->zeros(DType::i8, tensors[i].shape(), Category::parameters));
      works.push_back(tier.fetch(*device_, back[i], blocks[i]));
    }
    for (std::size_t i = 40; i-- > 0;) {
      works[i].wait();
      EXPECT_EQ(bytes_of(*device_, back[i]), bytes_of(*device_, tensors[i])) << i;
    }
  });
}

TEST_F(FileTierTest, StagedTensorsGoWithoutACopy) {
  for_each_way([&](FileTier& tier) {
    const Ledger before = host_.ledger();
    const Tensor staged = tier.staging(DType::f32, 1500);
    EXPECT_EQ(host_.ledger().held_in(Category::workspace) - before.held_in(Category::workspace),
              Bytes(2 * page + page));
    const auto block = tier.reserve(Bytes(5000), Category::optimizer);
    host_.backend().fill(staged, 3);
    tier.write(block, staged.slice(0, 1250)).wait();
    host_.backend().fill(staged, 4);
    tier.read(staged.slice(0, 1250), block).wait();
    const auto values = host_.backend().download_values(staged);
    EXPECT_EQ(values[0], 3);
    EXPECT_EQ(values[1249], 3);
    EXPECT_EQ(host_.traffic().down, Bytes(0));
    EXPECT_THROW((void)tier.write(block, staged.slice(1, 1250)), std::invalid_argument);
    EXPECT_THROW((void)tier.write(block, staged.slice(0, 1249)), std::invalid_argument);
    const Tensor tight = host_.backend().zeros(DType::f32, Shape{1250}, Category::workspace);
    EXPECT_THROW((void)tier.write(block, tight), std::invalid_argument);
  });
}

TEST_F(FileTierTest, BytesAreCountedByTierAndDirection) {
  FileTier tier(options(), host_);
  const Tensor x = random_bytes(*device_, 1001, 1);
  const auto block = tier.reserve(x.bytes(), Category::parameters);
  tier.store(block, *device_, x).wait();
  tier.fetch(*device_, x, block).wait();
  tier.fetch(*device_, x, block).wait();
  EXPECT_EQ(tier.traffic().down, Bytes(1001));
  EXPECT_EQ(tier.traffic().up, Bytes(2002));
  EXPECT_EQ(host_.traffic().down, Bytes(1001));
  EXPECT_EQ(host_.traffic().up, Bytes(2002));
}

// A work that nobody waits for is over before its memory goes.
TEST_F(FileTierTest, DroppedWorksAreWaitedFor) {
  for_each_way([&](FileTier& tier) {
    const Tensor x = random_bytes(*device_, 300'001, 1);
    const auto block = tier.reserve(x.bytes(), Category::parameters);
    (void)tier.store(block, *device_, x);
    const Tensor back = device_->zeros(DType::i8, x.shape(), Category::parameters);
    (void)tier.fetch(*device_, back, block);
    tier.fetch(*device_, back, block).wait();
    EXPECT_EQ(bytes_of(*device_, back), bytes_of(*device_, x));
    EXPECT_EQ(host_.ledger().total_held, Bytes(0));
  });
}

TEST_F(FileTierTest, TheBudgetCountsWholePages) {
  FileTier tier(options(Bytes(4 * page)), host_);
  const auto a = tier.reserve(Bytes(page + 1), Category::optimizer);
  auto b = tier.reserve(Bytes(1), Category::parameters);
  EXPECT_EQ(tier.ledger().held_in(Category::optimizer), Bytes(2 * page));
  const std::string message =
      expect_error<OutOfDeviceMemory>([&] { tier.reserve(Bytes(page + 1), Category::optimizer); },
                                      {"out of file memory", "8.00 KiB of optimizer", "16.00 KiB",
                                       "parameters 4.00 KiB", "--file-memory"});
  EXPECT_EQ(message.find("device"), std::string::npos) << message;
  b = nullptr;
  EXPECT_NO_THROW(b = tier.reserve(Bytes(page + 1), Category::optimizer));
  EXPECT_EQ(tier.ledger().total_held, Bytes(4 * page));
}

TEST_F(FileTierTest, SaysHowItGetsAtTheFile) {
  std::string why_not;
  const bool has_uring = make_uring_io(why_not) != nullptr;
  FileTierOptions o = options();
  EXPECT_NE(FileTier(o, host_).description().find(has_uring ? "io_uring" : "threads"),
            std::string::npos);
  o.allow_direct = false;
  o.allow_io_uring = false;
  EXPECT_EQ(FileTier(o, host_).description(),
            "file in " + directory_.path() + " (threads, buffered)");
}

TEST_F(FileTierTest, NothingIsLeftInTheDirectory) {
  FileTier tier(options(), host_);
  const auto block = tier.reserve(Bytes(10 * page), Category::optimizer);
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));  // so neither after a kill
}

TEST_F(FileTierTest, ADirectoryThatCannotBeUsedIsSaidAtOnce) {
  FileTierOptions o = options();
  for (const std::string& path :
       {directory_.path("missing"), directory_.write("file", "text"), std::string("/proc")}) {
    o.directory = path;
    expect_error<DataError>([&] { FileTier(o, host_); },
                            {"--offload-path " + path, "name a directory"});
  }
}

TEST_F(FileTierTest, AFullDiskIsSaidBeforeAnythingIsWritten) {
  FileTier tier(options(), host_);
  const auto kept = tier.reserve(Bytes(page), Category::optimizer);
  expect_error<DataError>(
      [&] { tier.reserve(Bytes(std::int64_t{1} << 60), Category::optimizer); },
      {"--offload-path " + directory_.path(), "1024.00 PiB more are needed", "free", "make room"});
  EXPECT_EQ(tier.ledger().total_held, Bytes(page));
  EXPECT_NO_THROW(tier.reserve(Bytes(page), Category::optimizer));
}

// While it lives, files of this process may be so long at most, and a longer one is an error, no
// signal.
class LimitedFiles {
 public:
  explicit LimitedFiles(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~LimitedFiles() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  LimitedFiles(const LimitedFiles&) = delete;
  LimitedFiles& operator=(const LimitedFiles&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_F(FileTierTest, ALimitOnFilesIsSaidBeforeTheSystemKills) {
  FileTier tier(options(), host_);
  std::shared_ptr<const TierBlock> first;
  {
    const LimitedFiles limit(10 * page);
    std::signal(SIGXFSZ, SIG_DFL);  // which would end this process
    first = tier.reserve(Bytes(6 * page), Category::optimizer);
    expect_error<DataError>([&] { tier.reserve(Bytes(5 * page), Category::optimizer); },
                            {"44.00 KiB", "40.00 KiB", "ulimit -f"});
    EXPECT_NO_THROW(tier.reserve(Bytes(4 * page), Category::optimizer));
  }
  EXPECT_EQ(tier.ledger().total_held, Bytes(6 * page));
}

// The disk takes no more writes in the middle of a run.
TEST_F(FileTierTest, AFailedWriteIsSaidAndTheTierRefusesWhatFollows) {
  for_each_way([&](FileTier& tier) {
    const Tensor x = random_bytes(*device_, 100'000, 1);
    const auto first = tier.reserve(x.bytes(), Category::optimizer);
    const auto second = tier.reserve(x.bytes(), Category::optimizer);
    tier.store(first, *device_, x).wait();
    tier.store(second, *device_, x).wait();
    {
      const LimitedFiles limit(26 * page);    // within the second block, which has 25 as well
      tier.store(first, *device_, x).wait();  // below the limit
      Work work = tier.store(second, *device_, x);
      const std::string message = expect_error<DataError>(
          [&] { work.wait(); },
          {"--offload-path " + directory_.path(), "could not be written", "File too large"});
    }
    expect_error<DataError>([&] { (void)tier.fetch(*device_, x, first); },
                            {"could not be written"});
  });
}

// The same when nobody waited for the write.
TEST_F(FileTierTest, AFailedWriteIsNotForgottenWithItsWork) {
  for_each_way([&](FileTier& tier) {
    const Tensor x = random_bytes(*device_, 100'000, 1);
    const auto block = tier.reserve(x.bytes(), Category::optimizer);
    {
      const LimitedFiles limit(page);
      (void)tier.store(block, *device_, x);
    }
    expect_error<DataError>([&] { (void)tier.fetch(*device_, x, block); },
                            {"could not be written"});
  });
}

// Addresses that nobody may touch.
class Untouchable final : public MemorySource {
 public:
  std::byte* allocate(Bytes) override { return reinterpret_cast<std::byte*>(64); }
  void release(std::byte*, Bytes) override {}
};

TEST_F(FileTierTest, ADryRunCountsTheSameAndTouchesNothing) {
  const auto run = [&](HostTier& host, Backend& device, const std::string& directory) {
    FileTier tier({.directory = directory, .budget = Bytes(100'000)}, host);
    const auto block = tier.reserve(Bytes(12'000), Category::optimizer);
    const Tensor x = device.empty(DType::f32, Shape{3000}, Category::parameters);
    tier.store(block, device, x).wait();
    tier.fetch(device, x, block).wait();
    const Tensor staged = tier.staging(DType::f32, 5000);
    tier.read(staged.slice(0, 3000), block).wait();
    return std::vector<std::int64_t>{tier.ledger().total_peak.value, host.ledger().total_peak.value,
                                     tier.traffic().down.value,      tier.traffic().up.value,
                                     host.traffic().down.value,      host.traffic().up.value};
  };
  const auto device =
      make_cpu_backend(Device::create({.poison = false}, std::make_unique<Untouchable>()), 1);
  HostTier host(
      make_cpu_backend(Device::create({.poison = false}, std::make_unique<Untouchable>()), 1),
      {.dry_run = true});
  const auto counted = run(host, *device, "nowhere");
  EXPECT_EQ(counted, run(host_, *device_, directory_.path()));
  EXPECT_EQ(counted[0], 3 * page);
  EXPECT_EQ(counted[3], 24'000);
}

}  // namespace
}  // namespace ringworld
