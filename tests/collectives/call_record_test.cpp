// What ranks must agree on in a call: how it is told, and how it is hashed.
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "collectives/communicator_call.h"

namespace ringworld {
namespace {

// Other characters at every place, so that words that are put together wrongly show.
std::string text_of(std::size_t length) {
  std::string text;
  for (std::size_t i = 0; i < length; ++i) {
    text += static_cast<char>('!' + i);
  }
  return text;
}

TEST(CallRecord, HoldsAsMuchOfATextAsThereIsRoomFor) {
  for (std::size_t length = 0; length <= 60; ++length) {
    const std::string text = text_of(length);
    EXPECT_EQ(CutText<6>(text).text(), text.substr(0, 48)) << length;
  }
}

TEST(CallRecord, TextsThatDifferHashDifferently) {
  std::set<std::uint64_t> hashes;
  std::size_t texts = 0;
  for (std::size_t length = 0; length <= 40; ++length) {
    const std::string text = text_of(length);
    hashes.insert(mixed(0, text));
    ++texts;
    for (std::size_t i = 0; i < length; ++i) {
      std::string other = text;
      other[i] = '\0';
      hashes.insert(mixed(0, other));
      ++texts;
    }
  }
  EXPECT_EQ(hashes.size(), texts);
}

TEST(CallRecord, IsReadFromABoardAsItWasSaid) {
  Board board{};
  EXPECT_EQ(call_statement(read(board)).finished.sequence, 0);
  const CallRecord first{.sequence = 1,
                         .elements = std::int64_t{1} << 40,
                         .signature = ~Signature{0},
                         .root = 1'000'000,
                         .operation = Operation::scatter,
                         .dtype = DType::i8,
                         .op = ReduceOp::max,
                         .uneven = true,
                         .algorithm = CutText<3>("binomial_tree"),
                         .label = CutText<6>("the first")};
  CallRecord second = first;
  second.sequence = 2;
  second.operation = Operation::reduce;
  second.uneven = false;
  const auto expect_same = [](const CallRecord& a, const CallRecord& b) {
    EXPECT_EQ(a.describe(), b.describe());
    EXPECT_EQ(a.signature, b.signature);
    EXPECT_EQ(a.root, b.root);
  };
  begin_call(board, first);
  expect_same(call_statement(read(board)).current, first);
  end_call(board);
  begin_call(board, second);
  expect_same(call_statement(read(board)).current, second);
  expect_same(call_statement(read(board)).finished, first);
  end_call(board);
  EXPECT_EQ(call_statement(read(board)).current.sequence, 0);
  expect_same(call_statement(read(board)).finished, second);
}

}  // namespace
}  // namespace ringworld
