#include "training/data.h"

#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

using Tokens = std::vector<std::int32_t>;

// A file of the bytes 0, 1, 2, ...
std::string counting(const TemporaryDirectory& directory, std::size_t bytes) {
  std::string content(bytes, '\0');
  std::iota(content.begin(), content.end(), '\0');
  return directory.write("counting", content);
}

Datasets open_counting(std::size_t bytes, double validation_fraction, std::int64_t length) {
  const TemporaryDirectory directory;
  return open_datasets({{counting(directory, bytes)}, "", validation_fraction, length}, 256);
}

// First token and last target of each sample.
std::vector<std::pair<int, int>> ends(const TokenDataset& dataset) {
  std::vector<std::pair<int, int>> result;
  for (std::int64_t i = 0; i < dataset.samples(); ++i) {
    Tokens tokens(static_cast<std::size_t>(dataset.sequence_length()));
    Tokens targets(tokens.size());
    dataset.read(i, tokens, targets);
    for (std::size_t t = 0; t < tokens.size(); ++t)
      EXPECT_EQ(targets[t], tokens[t] + 1);
    result.emplace_back(tokens.front(), targets.back());
  }
  return result;
}

TEST(Data, SamplesCoverEveryTokenOnceWithTargetsShiftedByOne) {
  using Ends = std::vector<std::pair<int, int>>;
  EXPECT_EQ(ends(open_counting(13, 0, 4).train), (Ends{{0, 4}, {4, 8}, {8, 12}}));
  EXPECT_EQ(ends(open_counting(12, 0, 4).train), (Ends{{0, 4}, {4, 8}}));  // one target is missing
  EXPECT_EQ(ends(open_counting(2, 0, 1).train), (Ends{{0, 1}}));
}

TEST(Data, TheLastSequencesAreForValidation) {
  using Ends = std::vector<std::pair<int, int>>;
  const Datasets data = open_counting(21, 0.4, 4);
  EXPECT_EQ(ends(data.train), (Ends{{0, 4}, {4, 8}, {8, 12}}));
  EXPECT_EQ(ends(data.validation), (Ends{{12, 16}, {16, 20}}));
  // At least one sequence on either side.
  EXPECT_EQ(open_counting(21, 0.01, 4).validation.samples(), 1);
  EXPECT_EQ(open_counting(21, 0.99, 4).train.samples(), 1);
  EXPECT_EQ(open_counting(21, 0, 4).validation.samples(), 0);
}

TEST(Data, ValidationDataOfItsOwnLeavesTheOtherWhole) {
  const TemporaryDirectory directory;
  const Datasets data = open_datasets(
      {{counting(directory, 21)}, directory.write("validation", "abcdefghi"), 0.4, 4}, 256);
  EXPECT_EQ(data.train.samples(), 5);
  EXPECT_EQ(data.validation.samples(), 2);
}

TEST(Data, TooFewTokensSayHowManyAreNeeded) {
  const TemporaryDirectory directory;
  const std::string path = counting(directory, 64);
  const auto open = [&](double fraction, std::int64_t length) {
    return open_datasets({{path}, "", fraction, length}, 256);
  };
  expect_error<DataError>([&] { open(0, 64); },
                          {path, "64 tokens", "needs 65", "--sequence-length"});
  EXPECT_EQ(open(0, 63).train.samples(), 1);
  expect_error<DataError>([&] { open(0.1, 63); },
                          {path, "64 tokens", "127", "--validation-fraction 0"});
  expect_error<UsageError>([&] { open(0, 0); }, {"sequence length is 0"});
}

TEST(Data, TokensOutsideTheVocabularyAreRefusedWhenOpened) {
  const TemporaryDirectory directory;
  const std::string path = counting(directory, 64);
  expect_error<DataError>(
      [&] {
        open_datasets({{path}, "", 0, 8}, 40);
      },
      {path, "token 63", "vocabulary of 40"});
  const std::string fine = directory.write("fine", std::string(64, '\x01'));
  expect_error<DataError>([&] { open_datasets({{fine}, path, 0, 8}, 40); }, {path, "token 63"});
}

TEST(Data, ABatchHoldsOneSamplePerRow) {
  const TokenDataset data = open_counting(13, 0, 4).train;
  const HostBatch batch = read_batch(data, std::vector<std::int64_t>{2, -1, 0});
  EXPECT_EQ(batch.micro_batch, 3);
  EXPECT_EQ(batch.sequence_length, 4);
  EXPECT_EQ(batch.tokens, (Tokens{8, 9, 10, 11, 0, 0, 0, 0, 0, 1, 2, 3}));
  EXPECT_EQ(batch.targets, (Tokens{9, 10, 11, 12, -1, -1, -1, -1, 1, 2, 3, 4}));
  EXPECT_THROW(read_batch(data, std::vector<std::int64_t>{3}), std::out_of_range);
}

TEST(Data, UploadChargesTheBatchToActivations) {
  const auto device = Device::create({});
  const auto backend = make_cpu_backend(device, 1);
  const HostBatch host{1, 3, {1, 2, 3}, {2, 3, -1}};
  const Batch batch = upload(*backend, host);
  EXPECT_EQ(batch.tokens.shape(), (Shape{1, 3}));
  EXPECT_EQ(batch.tokens.dtype(), DType::i32);
  EXPECT_EQ(backend->download_values(batch.tokens), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(backend->download_values(batch.targets), (std::vector<double>{2, 3, -1}));
  EXPECT_EQ(device->ledger().held_in(Category::activations), Bytes(24));
}

}  // namespace
}  // namespace ringworld
