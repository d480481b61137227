// What is said when a call fails: which call, and what every other rank is doing instead.
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/communicator_call.h"

namespace ringworld {
namespace {

// How long a rank that has failed waits for what the others say.
constexpr std::chrono::milliseconds patience{1000};

// "rank 3", "ranks 0, 1 and 5"
std::string list_of(const std::vector<int>& ranks) {
  if (ranks.size() == 1) {
    return fmt::format("rank {}", ranks[0]);
  }
  return fmt::format("ranks {} and {}", fmt::join(ranks.begin(), ranks.end() - 1, ", "),
                     ranks.back());
}

}  // namespace

std::string CallRecord::describe() const {
  if (sequence == 0) {
    return "nothing yet";
  }
  if (const std::string verb = algorithm.text(); verb == "send" || verb == "receive") {
    return fmt::format("{} \"{}\" (message {}: {} elements of {}, from rank {})", verb,
                       label.text(), sequence, elements, name_of(dtype), root);
  }
  std::string text =
      fmt::format("{} \"{}\" (call {}: ", name_of(operation), label.text(), sequence);
  if (elements == 0 && uneven) {
    text += "counts of its own";
  } else {
    text += fmt::format("{} element{}{}", elements, elements == 1 ? "" : "s",
                        uneven ? " in uneven blocks" : "");
  }
  text += fmt::format(" of {}", name_of(dtype));
  if (reduces(operation)) {
    text += fmt::format(", {}", name_of(op));
  }
  if (has_root(operation)) {
    text += fmt::format(", root {}", root);
  }
  return text + fmt::format(", {})", algorithm.text());
}

namespace {

// A record's words: sequence, elements, signature, terms, algorithm, label.
constexpr std::size_t algorithm_word = 4;
constexpr std::size_t label_word = algorithm_word + decltype(CallRecord::algorithm)::length;
constexpr std::size_t record_words = label_word + decltype(CallRecord::label)::length;
static_assert(2 * record_words + 1 <= std::tuple_size_v<Statement>);

// Bits of the board's last word: twice the number of calls begun, and whether one is under way.
std::uint64_t state_of(const Statement& statement) {
  return statement.back();
}

}  // namespace

void begin_call(Board& board, const CallRecord& record) {
  const std::uint64_t begun = board.back().load(std::memory_order_relaxed) / 2 + 1;
  std::atomic<std::uint64_t>* place = board.data() + begun % 2 * record_words;
  const auto say = [&](std::uint64_t word) { (place++)->store(word, std::memory_order_relaxed); };
  say(static_cast<std::uint64_t>(record.sequence));
  say(static_cast<std::uint64_t>(record.elements));
  say(record.signature);
  say(terms_word(record.root, record.operation, record.dtype, record.op, record.uneven));
  std::ranges::for_each(record.algorithm.words(), say);
  std::ranges::for_each(record.label.words(), say);
  board.back().store(2 * begun + 1, std::memory_order_relaxed);
}

void end_call(Board& board) {
  board.back().store(board.back().load(std::memory_order_relaxed) & ~std::uint64_t{1},
                     std::memory_order_relaxed);
}

CallStatement call_statement(const Statement& statement) {
  const std::uint64_t begun = state_of(statement) / 2;
  const bool in_call = state_of(statement) % 2 != 0;
  const auto record_of = [&](std::uint64_t call) {
    const std::uint64_t* words = statement.data() + call % 2 * record_words;
    const std::uint64_t terms = words[3];
    return CallRecord{.sequence = static_cast<std::int64_t>(words[0]),
                      .elements = static_cast<std::int64_t>(words[1]),
                      .signature = words[2],
                      .root = static_cast<std::int32_t>(terms >> 32),
                      .operation = static_cast<Operation>(terms >> 24 & 0xff),
                      .dtype = static_cast<DType>(terms >> 16 & 0xff),
                      .op = static_cast<ReduceOp>(terms >> 8 & 0xff),
                      .uneven = (terms & 1) != 0,
                      .algorithm = CutText<3>(words + algorithm_word),
                      .label = CutText<6>(words + label_word)};
  };
  CallStatement said;
  if (in_call) {
    said.current = record_of(begun);
    said.finished = begun > 1 ? record_of(begun - 1) : CallRecord();
  } else if (begun > 0) {
    said.finished = record_of(begun);
  }
  return said;
}

std::string Communicator::explain(const CallRecord& record, std::string_view failure) {
  const std::vector<std::optional<Said>> statements = transport_.statements(patience);
  const std::vector<int> gone = transport_.ended();
  std::vector<int> missing;
  std::vector<int> silent;
  std::map<std::string, std::vector<int>> ended;      // by what they were in
  std::map<std::string, std::vector<int>> behind;     // by the call they are in
  std::map<std::string, std::vector<int>> ahead;      // likewise
  std::map<std::string, std::vector<int>> elsewhere;  // likewise
  std::map<std::string, std::vector<int>> finished;   // by the call they finished last
  for (const int rank : ranks_) {
    const auto& heard = statements[static_cast<std::size_t>(rank)];
    const bool has_ended = std::ranges::find(gone, rank) != gone.end();
    if (!heard) {
      (has_ended ? ended[""] : silent).push_back(rank);
      continue;
    }
    const CallStatement said = call_statement(heard->statement);
    if (has_ended) {
      ended[said.current.sequence == 0 ? ", in no call" : ", in " + said.current.describe()]
          .push_back(rank);
    } else if (rank != transport_.rank() && said.current.sequence == 0) {
      missing.push_back(rank);
    } else if (said.current.sequence < record.sequence || !heard->waits) {
      behind[said.current.describe()].push_back(rank);
    } else if (said.current.sequence > record.sequence) {
      ahead[said.current.describe()].push_back(rank);
    } else if (said.current.signature != record.signature) {
      elsewhere[said.current.describe()].push_back(rank);
    }
    finished[said.finished.describe()].push_back(rank);
  }
  std::string text = fmt::format("{} failed: {}", record.describe(), failure);
  for (const auto& [call, ranks] : elsewhere) {
    text += fmt::format("\n  {} called {} instead", list_of(ranks), call);
  }
  for (const auto& [call, ranks] : ended) {
    text += fmt::format("\n  ended: {}{}", list_of(ranks), call);
  }
  for (const auto& [call, ranks] : behind) {
    text += fmt::format("\n  missing: {}, stuck in {}", list_of(ranks), call);
  }
  for (const auto& [call, ranks] : ahead) {
    text += fmt::format("\n  {} had done its part and waited in {}", list_of(ranks), call);
  }
  if (!missing.empty()) {
    text += fmt::format("\n  missing: {}, in no call", list_of(missing));
  }
  if (!silent.empty()) {
    text += fmt::format("\n  missing: {}, without an answer", list_of(silent));
  }
  // What holds this group up may be in another one.
  std::map<std::string, std::vector<int>> outside;
  for (int rank = 0; rank < static_cast<int>(statements.size()); ++rank) {
    if (std::ranges::find(ranks_, rank) == ranks_.end()) {
      const auto& heard = statements[static_cast<std::size_t>(rank)];
      const CallStatement said = heard ? call_statement(heard->statement) : CallStatement();
      outside[!heard                       ? "without an answer"
              : said.current.sequence == 0 ? "in no call"
              : !heard->waits              ? "not waiting, in " + said.current.describe()
                                           : "in " + said.current.describe()]
          .push_back(rank);
    }
  }
  for (const auto& [state, ranks] : outside) {
    text += fmt::format("\n  of other groups: {}, {}", list_of(ranks), state);
  }
  for (const auto& [call, ranks] : finished) {
    text += fmt::format("\n  last finished by {}: {}", list_of(ranks), call);
  }
  if (!gone.empty()) {
    return text;
  }
  return text + fmt::format(
                    "\n  Every rank must make the same calls in the same order, with the same "
                    "count, dtype, reduction, root and label; a rank may be late by the timeout "
                    "of {} s",
                    static_cast<double>(options_.timeout.count()) / 1000);
}

}  // namespace ringworld
