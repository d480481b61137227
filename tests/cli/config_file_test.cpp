#include "cli/config_file.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

std::vector<ConfigEntry> read(std::string_view content) {
  const TemporaryDirectory directory;
  return read_config(directory.write("c.toml", content));
}

std::vector<std::string> values_of(std::string_view content) {
  const auto entries = read(content);
  return entries.size() == 1 ? entries.front().values : std::vector<std::string>{"not one entry"};
}

TEST(ConfigFile, GivesSectionKeyAndValues) {
  const auto entries = read("a = 1\n[s]\nb_c = [1, 2]\n[t]\nd = x\n");
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].section, "");
  EXPECT_EQ(entries[0].key, "a");
  EXPECT_EQ(entries[1].section, "s");
  EXPECT_EQ(entries[1].key, "b-c");
  EXPECT_EQ(entries[1].values, (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(entries[2].section, "t");
}

TEST(ConfigFile, ValuesComeWithoutQuotesAndComments) {
  using Values = std::vector<std::string>;
  EXPECT_EQ(values_of("key = 5 # five"), Values{"5"});
  EXPECT_EQ(values_of("key = \"a # b\" # c"), Values{"a # b"});
  EXPECT_EQ(values_of("key = 'x, y'"), Values{"x, y"});
  EXPECT_EQ(values_of("key = -0.5"), Values{"-0.5"});
  EXPECT_EQ(values_of("key = \"a=b\""), Values{"a=b"});
  EXPECT_EQ(values_of("key = [ \"a, b\", 'c' ]"), (Values{"a, b", "c"}));
  EXPECT_EQ(values_of("key = [  # several\n  \"a\",  # one\n  \"b\"\n]\n"), (Values{"a", "b"}));
  EXPECT_EQ(values_of("key = [\"a\", \"b\",]"), (Values{"a", "b"}));
}

TEST(ConfigFile, BlankLinesAndCommentsAreNothing) {
  EXPECT_TRUE(read("").empty());
  EXPECT_TRUE(read("\n# only = a comment\n   \n").empty());
}

}  // namespace
}  // namespace ringworld
