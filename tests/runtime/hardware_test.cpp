// The hardware table: every row is plausible, and who misspells a name is told the right one.
#include "runtime/hardware.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

// Between what the oldest and the newest have, with a factor of two to either side.
void expect_between(double low, double value, double high, std::string_view name) {
  EXPECT_GE(value, low) << name;
  EXPECT_LE(value, high) << name;
}

TEST(Hardware, EveryRowIsPlausible) {
  std::set<std::string_view> names;
  for (const Accelerator& a : accelerators()) {
    EXPECT_TRUE(names.insert(a.name).second) << a.name << " is there twice";
    EXPECT_FALSE(a.source.empty()) << a.name;
    expect_between(8e9, static_cast<double>(a.memory.value), 400e9, a.name);
    expect_between(150e9, a.memory_bandwidth, 16e12, a.name);
    expect_between(7e9, a.link_bandwidth.value_or(7e9), 1.8e12, a.name);
    expect_between(35, a.power.value_or(35), 2000, a.name);
    // "A100-80GB" has 80 GB: as many times 10^9 or 2^30 bytes.
    const std::size_t dash = a.name.rfind('-');
    const std::int64_t size = std::stoll(std::string(a.name.substr(dash + 1)));
    EXPECT_TRUE(a.memory == Bytes(size * 1'000'000'000) || a.memory == Bytes(size << 30)) << a.name;
    // What is coarser is not slower, and there is a rate to train with.
    EXPECT_TRUE(a.rates.f16 || a.rates.bf16) << a.name;
    double last = 1e12;
    for (const auto& rate :
         {a.rates.f32, a.rates.tf32, a.rates.bf16 ? a.rates.bf16 : a.rates.f16, a.rates.fp8}) {
      if (rate) {
        expect_between(last, *rate, 1e16, a.name);
        last = *rate;
      }
    }
    if (a.rates.bf16 && a.rates.f16) {
      EXPECT_EQ(*a.rates.bf16, *a.rates.f16) << a.name;
    }
  }
  EXPECT_GE(names.size(), 16u);
}

TEST(Hardware, HasTheFactsOfTheDatasheets) {
  const Accelerator& a100 = find_accelerator("A100-80GB");
  EXPECT_EQ(a100.memory, Bytes(80'000'000'000));
  EXPECT_EQ(a100.memory_bandwidth, 2039e9);
  EXPECT_EQ(a100.rates.bf16, 312e12);
  EXPECT_FALSE(a100.rates.fp8.has_value());
  EXPECT_EQ(a100.link_bandwidth, 300e9);
  EXPECT_EQ(find_accelerator("H100-80GB").rates.fp8, 1979e12);
  EXPECT_EQ(find_accelerator("H800-80GB").link_bandwidth, 200e9);
  EXPECT_EQ(find_accelerator("A100-PCIe-80GB").memory_bandwidth, 1935e9);
  EXPECT_EQ(find_accelerator("GB200-186GB").rates.bf16, 2500e12);
  EXPECT_FALSE(find_accelerator("V100-16GB").rates.bf16.has_value());
  EXPECT_EQ(find_accelerator("TPUv4-32GB").memory, Bytes(std::int64_t{32} << 30));
}

TEST(Hardware, FindsWhateverTheCase) {
  EXPECT_EQ(find_accelerator("rtx-4090-24gb").name, "RTX-4090-24GB");
}

TEST(Hardware, NamesTheNearest) {
  expect_error<UsageError>([] { find_accelerator("A100-81GB"); },
                           {"'A100-81GB'", "did you mean A100-80GB?", "TPUv5e-16GB"});
  // Whoever leaves the memory out means that model, not a shorter name.
  expect_error<UsageError>([] { find_accelerator("mi300"); }, {"did you mean MI300X-192GB?"});
  expect_error<UsageError>([] { find_accelerator("H100"); },
                           {"did you mean H100-80GB or H100-96GB or H100-PCIe-80GB?"});
  expect_error<UsageError>([] { find_accelerator("4090"); }, {"did you mean RTX-4090-24GB?"});
}

}  // namespace
}  // namespace ringworld
