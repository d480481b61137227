// Files that a command writes at its end: whole, or as they were.
#include "cli/output_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

std::string text_in(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::size_t files_in(const TemporaryDirectory& directory) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(directory.path()), {}));
}

TEST(OutputFile, IsReplacedByWhatIsWritten) {
  const TemporaryDirectory directory;
  const std::string path = directory.write("rows.json", "what was there, and longer");
  check_writable("--json", path);
  EXPECT_EQ(text_in(path), "what was there, and longer");
  write_file("--json", path, "new");
  EXPECT_EQ(text_in(path), "new");
  EXPECT_EQ(files_in(directory), 1u);
}

TEST(OutputFile, IsNotThereBeforeItIsWritten) {
  const TemporaryDirectory directory;
  check_writable("--json", directory.path("rows.json"));
  EXPECT_EQ(files_in(directory), 0u);
  write_file("--json", directory.path("rows.json"), "new");
  EXPECT_EQ(text_in(directory.path("rows.json")), "new");
}

TEST(OutputFile, KeepsItsModeAndItsOtherNames) {
  const TemporaryDirectory directory;
  const std::string path = directory.write("rows.json", "what was there, and longer");
  std::filesystem::permissions(
      path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::create_hard_link(path, directory.path("other.json"));
  write_file("--json", path, "new");
  EXPECT_EQ(text_in(directory.path("other.json")), "new");
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST(OutputFile, GoesThroughALinkToNothing) {
  const TemporaryDirectory directory;
  const std::string link = directory.path("link.json");
  std::filesystem::create_symlink(directory.path("rows.json"), link);
  check_writable("--json", link);
  write_file("--json", link, "new");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(text_in(directory.path("rows.json")), "new");
}

TEST(OutputFile, GoesThroughALink) {
  const TemporaryDirectory directory;
  const std::string path = directory.write("rows.json", "old");
  std::filesystem::create_symlink(path, directory.path("link.json"));
  write_file("--json", directory.path("link.json"), "new");
  EXPECT_EQ(text_in(path), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(directory.path("link.json")));
}

TEST(OutputFile, ThatCannotBeWrittenIsRefusedByItsOption) {
  const TemporaryDirectory directory;
  const std::string nowhere = directory.path("none/rows.json");
  expect_error<DataError>([&] { check_writable("--json", nowhere); }, {"--json", nowhere});
  expect_error<DataError>([&] { write_file("--tune", nowhere, "x"); }, {"--tune", nowhere});
  expect_error<DataError>([&] { write_file("--csv", "/dev/full", "x"); }, {"--csv", "/dev/full"});
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

}  // namespace
}  // namespace ringworld
