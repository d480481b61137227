// The main of tests in one process. --file=NAME runs the tests that stand in the file of that name,
// so that an executable of many files has an entry of ctest for each.
#include <cstdio>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace {

// The names of the tests in `file`, as GoogleTest's filter takes them.
std::string tests_in(std::string_view file) {
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  std::string names;
  for (int i = 0; i < tests.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *tests.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      const std::string_view path = test.file();
      if (path.substr(path.rfind('/') + 1) == file) {
        names += std::string(suite.name()) + "." + test.name() + ":";
      }
    }
  }
  return names;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view option = "--file=";
  for (int i = 1; i < argc; ++i) {
    std::string_view argument = argv[i];
    if (!argument.starts_with(option)) {
      std::fprintf(stderr, "'%s' is no option: --file=NAME or GoogleTest's\n", argv[i]);
      return 1;
    }
    argument.remove_prefix(option.size());
    const std::string names = tests_in(argument);
    if (names.empty()) {
      std::fprintf(stderr, "no test stands in a file named '%s', which is a name without folders\n",
                   argv[i] + option.size());
      return 1;
    }
    GTEST_FLAG_SET(filter, names);
  }
  return RUN_ALL_TESTS();
}
