#include "runtime/nearest.h"

#include <vector>

#include <gtest/gtest.h>

namespace ringworld {
namespace {

TEST(Nearest, TakesTheFewestEdits) {
  const std::vector<std::string> options = {"micro-batch", "global-batch", "model", "seed"};
  EXPECT_EQ(nearest("micro_batch", options), "micro-batch");   // replaced
  EXPECT_EQ(nearest("globalbatch", options), "global-batch");  // left out
  EXPECT_EQ(nearest("modell", options), "model");              // doubled
  EXPECT_EQ(nearest("speed", options), "seed");
  EXPECT_EQ(nearest("seed", options), "seed");
}

// Each against an earlier candidate that is two edits away.
TEST(Nearest, CountsEveryKindOfEditOnce) {
  EXPECT_EQ(nearest("abcd", std::vector<std::string>{"abxx", "abc"}), "abc");      // deleted
  EXPECT_EQ(nearest("abcd", std::vector<std::string>{"abxx", "abcde"}), "abcde");  // inserted
  EXPECT_EQ(nearest("abcd", std::vector<std::string>{"abcdef", "xbcd"}), "xbcd");  // replaced
  EXPECT_EQ(nearest("abcd", std::vector<std::string>{"abxx", "abdc"}), "abdc");    // exchanged
  EXPECT_EQ(nearest("fdsp", std::vector<std::string>{"ddp", "fsdp"}), "fsdp");
}

TEST(Nearest, TakesTheEarlierOfTwoAsNear) {
  const std::vector<std::string> options = {"ab", "ac"};
  EXPECT_EQ(nearest("a", options), "ab");
}

TEST(Nearest, HandlesEmptyInput) {
  const std::vector<std::string> options = {"abc", "a"};
  EXPECT_EQ(nearest("", options), "a");
  EXPECT_EQ(nearest("a", {}), "");
}

}  // namespace
}  // namespace ringworld
