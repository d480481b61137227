#include "training/token_stream.h"

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

std::vector<std::int32_t> all_tokens(const TokenStream& stream) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(stream.tokens()));
  stream.read(0, tokens);
  return tokens;
}

std::string text_of(const TokenStream& stream) {
  std::string text;
  for (const std::int32_t token : all_tokens(stream))
    text += static_cast<char>(token);
  return text;
}

// A token file whose header may lie.
std::string token_file(const std::vector<std::uint16_t>& tokens, std::int32_t magic = 20240520,
                       std::int32_t version = 1, std::int64_t count = -1) {
  std::int32_t header[256] = {
      magic, version,
      static_cast<std::int32_t>(count < 0 ? static_cast<std::int64_t>(tokens.size()) : count)};
  std::string file(reinterpret_cast<const char*>(header), sizeof header);
  file.append(reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size());
  return file;
}

TEST(TokenStream, ReadsAnyFileAsBytes) {
  const TemporaryDirectory directory;
  const std::string content("A\0\xff\n", 4);
  const auto stream = TokenStream::open({directory.write("data.txt", content)});
  EXPECT_EQ(all_tokens(*stream), (std::vector<std::int32_t>{65, 0, 255, 10}));
}

TEST(TokenStream, ReadsDirectoriesSortedWithoutHiddenOrEmptyFiles) {
  const TemporaryDirectory directory;
  directory.write("b.txt", "2");
  directory.write("a/z.txt", "1");
  directory.write("c/nested/deep.md", "3");
  directory.write("c/nothing", "");
  directory.write(".hidden", "x");
  directory.write(".git/config", "x");
  directory.write("c/.cache/file", "x");
  const auto stream = TokenStream::open({directory.path()});
  EXPECT_EQ(text_of(*stream), "123");
  EXPECT_NE(stream->description().find("(4 files)"), std::string::npos) << stream->description();
}

TEST(TokenStream, ConcatenatesPathsInTheOrderGiven) {
  const TemporaryDirectory directory;
  const std::string a = directory.write("a", "hello ");
  const std::string b = directory.write("b", "world");
  EXPECT_EQ(text_of(*TokenStream::open({b, a, b})), "worldhello world");
}

TEST(TokenStream, ReadsAcrossFilesFromEveryPosition) {
  const TemporaryDirectory directory;
  std::string whole;
  for (const char* part : {"a", "bcd", "", "efghi", "j"}) {
    directory.write(fmt::format("f{}{}", whole.size(), part), part);
    whole += part;
  }
  const auto stream = TokenStream::open({directory.path()});
  for (std::size_t first = 0; first <= whole.size(); ++first) {
    for (std::size_t count = 0; first + count <= whole.size(); ++count) {
      std::vector<std::int32_t> tokens(count);
      stream->read(static_cast<std::int64_t>(first), tokens);
      EXPECT_EQ(std::string(tokens.begin(), tokens.end()), whole.substr(first, count));
    }
  }
  std::vector<std::int32_t> one(1);
  EXPECT_THROW(stream->read(static_cast<std::int64_t>(whole.size()), one), std::out_of_range);
  EXPECT_THROW(stream->read(-1, one), std::out_of_range);
}

TEST(TokenStream, LargeFilesAreMappedWithTheSameResult) {
  const TemporaryDirectory directory;
  std::string large((3 << 20) + 17, '\0');
  for (std::size_t i = 0; i < large.size(); ++i)
    large[i] = static_cast<char>(i * 2654435761u >> 9);
  const auto stream =
      TokenStream::open({directory.write("small", "ab"), directory.write("large", large)});
  EXPECT_EQ(text_of(*stream).substr(0, 2), "ab");
  EXPECT_EQ(text_of(*stream).substr(2), large);
}

TEST(TokenStream, ReadsTokenFilesAndJoinsThem) {
  const TemporaryDirectory directory;
  const auto stream = TokenStream::open({directory.write("0.bin", token_file({50256, 1, 65535})),
                                         directory.write("1.bin", token_file({7}))});
  EXPECT_EQ(all_tokens(*stream), (std::vector<std::int32_t>{50256, 1, 65535, 7}));
}

TEST(TokenStream, RefusesTokenFilesThatAreNotWhatTheySay) {
  const TemporaryDirectory directory;
  const auto refuse = [&](const std::string& content,
                          std::initializer_list<std::string_view> facts) {
    const std::string path = directory.write("x.bin", content);
    EXPECT_NE(expect_error<DataError>([&] { TokenStream::open({path}); }, facts).find(path),
              std::string::npos);
  };
  refuse(token_file({1}, 20240521), {"magic", "20240521", "20240520"});
  refuse(token_file({1}, 20240520, 2), {"version is 2", "expected 1"});
  refuse(token_file({1, 2, 3}, 20240520, 1, 5), {"1030", "1034", "5 tokens"});
  refuse(token_file({1, 2, 3}) + "x", {"1031", "1030"});
  refuse("short", {"1024", "5"});
  refuse(token_file({}), {"holds no data"});
}

TEST(TokenStream, RefusesWhatCannotBeRead) {
  const TemporaryDirectory directory;
  expect_error<DataError>([&] { TokenStream::open({directory.path("none")}); },
                          {directory.path("none"), "No such file"});
  expect_error<DataError>([&] { TokenStream::open({directory.write("empty", "")}); },
                          {directory.path("empty"), "holds no data"});
  std::filesystem::create_directory(directory.path("bare"));
  expect_error<DataError>([&] { TokenStream::open({directory.path("bare")}); },
                          {directory.path("bare"), "0 files"});
  expect_error<DataError>([&] { TokenStream::open({"/dev/null"}); },
                          {"/dev/null", "not a regular file"});
  expect_error<DataError>(
      [&] {
        TokenStream::open(
            {directory.write("text", "x"), directory.write("t.bin", token_file({1}))});
      },
      {"mixed", directory.path("text"), directory.path("t.bin")});
}

TEST(TokenStream, ChecksTheVocabulary) {
  const TemporaryDirectory directory;
  const auto text =
      TokenStream::open({directory.write("empty_first", "a"), directory.write("text", "aaz")});
  EXPECT_NO_THROW(text->check_vocabulary(256));
  EXPECT_NO_THROW(text->check_vocabulary('z' + 1));
  expect_error<DataError>(
      [&] { text->check_vocabulary('z'); },
      {directory.path("text"), "token 122", "position 2", "vocabulary of 122", "--vocabulary 256"});

  std::vector<std::uint16_t> many(100'000, 5);
  many[99'998] = 50256;
  const auto tokens = TokenStream::open({directory.write("t.bin", token_file(many))});
  EXPECT_NO_THROW(tokens->check_vocabulary(50257));
  expect_error<DataError>([&] { tokens->check_vocabulary(256); },
                          {"token 50256", "position 99998", "256", "--vocabulary 50257"});
}

TEST(TokenStream, SyntheticTokensAreAFunctionOfTheSeed) {
  const auto tokens = [](std::int64_t vocabulary, std::uint64_t seed) {
    return all_tokens(*TokenStream::synthetic(vocabulary, 1000, seed));
  };
  EXPECT_EQ(tokens(11, 1), tokens(11, 1));
  EXPECT_NE(tokens(11, 1), tokens(11, 2));
  std::vector<int> seen(11);
  for (const std::int32_t token : tokens(11, 1))
    ++seen.at(static_cast<std::size_t>(token));
  for (const int count : seen)
    EXPECT_GT(count, 0);
  EXPECT_NO_THROW(TokenStream::synthetic(11, 1000, 1)->check_vocabulary(11));
}

}  // namespace
}  // namespace ringworld
