// Which algorithm `auto` chooses, the rules' file, and rules from measurements.
#include "collectives/selection.h"

#include <cmath>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace ringworld {
namespace {

using enum Operation;

Selection::Call call(Operation operation, std::int64_t bytes, std::string_view transport = "mpi",
                     int ranks = 2) {
  return {.operation = operation, .transport = transport, .ranks = ranks, .bytes = Bytes(bytes)};
}

std::string chosen(const Selection& selection, const Selection::Call& call) {
  return selection.choose(call).algorithm->name;
}

Selection parsed(const std::string& rules) {
  return Selection::parse(
      R"({"schema": "ringworld.tuning", "version": 1, "rules": [)" + rules + "]}", "tune.json");
}

// --- Choosing ------------------------------------------------------------------------------------

// Every call finds an algorithm that can serve it, alone and behind rules that cannot.
TEST(Selection, TheBuiltInTableServesEveryCall) {
  for (const Operation operation : all_operations) {
    for (const std::string_view transport : {"shared", "mpi", "threads", "null"}) {
      for (int ranks = 1; ranks <= 64; ++ranks) {
        for (const std::int64_t bytes : {0, 8, 4096, 65536, 1 << 20, 1 << 30}) {
          for (const bool equal_counts : {true, false}) {
            for (const bool reproducible : {true, false}) {
              const Algorithm& algorithm = *Selection::built_in()
                                                .choose({.operation = operation,
                                                         .transport = transport,
                                                         .ranks = ranks,
                                                         .bytes = Bytes(bytes),
                                                         .equal_counts = equal_counts,
                                                         .reproducible = reproducible})
                                                .algorithm;
              ASSERT_EQ(algorithm.operation, operation);
              ASSERT_EQ(algorithm.refuses(ranks), "");
              ASSERT_TRUE(equal_counts || !algorithm.equal_chunks);
              ASSERT_TRUE(!reproducible || !reduces(operation) || algorithm.rank_order);
            }
          }
        }
      }
    }
  }
}

TEST(Selection, TheFirstRuleThatFitsDecides) {
  const Selection selection = parsed(R"(
      {"operation": "all_reduce", "transport": "mpi", "ranks": 2, "up_to_bytes": 4096,
       "algorithm": "tree"},
      {"operation": "all_reduce", "ranks": [2, 4], "up_to_bytes": "64KiB", "algorithm": "direct"},
      {"operation": "all_reduce", "algorithm": "double_tree"})");
  EXPECT_EQ(chosen(selection, call(all_reduce, 0)), "tree");
  EXPECT_EQ(chosen(selection, call(all_reduce, 4096)), "tree");
  EXPECT_EQ(chosen(selection, call(all_reduce, 4097)), "direct");
  EXPECT_EQ(chosen(selection, call(all_reduce, 8, "threads")), "direct");
  EXPECT_EQ(chosen(selection, call(all_reduce, 8, "mpi", 4)), "direct");
  EXPECT_EQ(chosen(selection, call(all_reduce, 8, "mpi", 1)), "double_tree");
  EXPECT_EQ(chosen(selection, call(all_reduce, 8, "mpi", 5)), "double_tree");
  EXPECT_EQ(chosen(selection, call(all_reduce, 65537)), "double_tree");
}

TEST(Selection, WhatHasNoRuleIsInTheBuiltInTable) {
  const Selection::Call barrier_call = call(barrier, 0);
  const Selection selection =
      parsed(R"({"operation": "broadcast", "ranks": 7, "algorithm": "ring"})");
  EXPECT_EQ(selection.choose(barrier_call).reason,
            Selection::built_in().choose(barrier_call).reason);
  EXPECT_EQ(Selection().choose(barrier_call).algorithm->name, "dissemination");
}

TEST(Selection, TheReasonNamesTheRule) {
  const Selection selection = parsed(R"(
      {"operation": "broadcast", "algorithm": "ring"},
      {"operation": "all_reduce", "transport": "shared", "ranks": 2, "up_to_bytes": 4096,
       "algorithm": "direct"},
      {"operation": "all_reduce", "ranks": [3, 8], "algorithm": "ring"})");
  EXPECT_EQ(selection.choose(call(broadcast, 8)).reason, "rule 1 of tune.json: broadcast");
  EXPECT_EQ(selection.choose(call(all_reduce, 8, "shared")).reason,
            "rule 2 of tune.json: all_reduce over shared, 2 ranks, up to 4.00 KiB");
  EXPECT_EQ(selection.choose(call(all_reduce, 8, "shared", 3)).reason,
            "rule 3 of tune.json: all_reduce, 3 to 8 ranks");
}

TEST(Selection, RulesThatCannotServeArePassedOver) {
  // Two nodes do not divide three ranks.
  const Selection odd = parsed(R"(
      {"operation": "all_reduce", "algorithm": "hierarchical:2:ring:ring:ring"},
      {"operation": "all_reduce", "algorithm": "tree"})");
  EXPECT_EQ(chosen(odd, call(all_reduce, 8, "mpi", 4)), "hierarchical:2:ring:ring:ring");
  const Selection::Choice choice = odd.choose(call(all_reduce, 8, "mpi", 3));
  EXPECT_EQ(choice.algorithm->name, "tree");
  EXPECT_NE(choice.reason.find("passed over hierarchical:2:ring:ring:ring: 2 nodes"),
            std::string::npos)
      << choice.reason;

  Selection::Call in_order = call(all_reduce, 8);
  in_order.reproducible = true;
  const Selection::Choice ordered =
      parsed(R"({"operation": "all_reduce", "algorithm": "ring"})").choose(in_order);
  EXPECT_TRUE(ordered.algorithm->rank_order) << ordered.algorithm->name;
  EXPECT_NE(ordered.reason.find("passed over ring: does not add in the order of the ranks"),
            std::string::npos)
      << ordered.reason;

  // Reproducible mode is about adding.
  Selection::Call moved = call(broadcast, 8);
  moved.reproducible = true;
  EXPECT_EQ(chosen(parsed(R"({"operation": "broadcast", "algorithm": "ring"})"), moved), "ring");
}

// With counts of their own, ranks have buffers of different sizes and must still choose the same.
TEST(Selection, AllToAllWithCountsIsChosenWithoutTheSize) {
  const Selection selection = parsed(R"(
      {"operation": "all_to_all", "algorithm": "bruck"},
      {"operation": "all_to_all", "up_to_bytes": "1MiB", "algorithm": "direct"},
      {"operation": "all_to_all", "algorithm": "pairwise"})");
  for (const std::int64_t bytes : {0, 8, 2 << 20}) {
    Selection::Call counted = call(all_to_all, bytes);
    counted.equal_counts = false;
    EXPECT_EQ(chosen(selection, counted), "pairwise") << bytes;
    EXPECT_EQ(chosen(selection, call(all_to_all, bytes)), "bruck") << bytes;
  }
}

// --- The file ------------------------------------------------------------------------------------

TEST(SelectionFile, ComesBackAsWritten) {
  Selection selection(
      {{.operation = all_reduce,
        .transport = "shared",
        .ranks_from = 2,
        .ranks_to = 2,
        .up_to = Bytes(4096),
        .algorithm = "direct"},
       {.operation = all_reduce, .ranks_from = 3, .ranks_to = 8, .algorithm = "ring"},
       {.operation = all_gather, .ranks_from = 2, .algorithm = "bruck"},
       {.operation = all_gather, .up_to = Bytes(0), .algorithm = "direct"},
       {.operation = all_reduce, .algorithm = "hierarchical:4:ring:tree:direct"}},
      "memory");
  selection.set_conditions(R"({"ranks":2,"machine":"a \"quoted\" name"})");
  const TemporaryDirectory directory;
  const Selection read = Selection::read(directory.write("tune.json", selection.to_json()));
  EXPECT_EQ(read.rules(), selection.rules());
  EXPECT_EQ(read.conditions(), selection.conditions());
  EXPECT_EQ(read.to_json(), selection.to_json());

  const Selection built_in = Selection::parse(Selection::built_in().to_json(), "copy");
  EXPECT_EQ(built_in.rules(), Selection::built_in().rules());
  EXPECT_EQ(Selection::parse(Selection().to_json(), "copy").rules(), Selection().rules());
}

TEST(SelectionFile, MayHoldComments) {
  const Selection selection = Selection::parse(R"({
    // Measured by hand.
    "schema": "ringworld.tuning", "version": 1,
    "rules": [ /* one */ {"operation": "barrier", "algorithm": "dissemination"}]})",
                                               "tune.json");
  EXPECT_EQ(selection.rules().size(), 1u);
}

TEST(SelectionFile, MistakesAreNamed) {
  const auto refused = [](const std::string& rules, std::initializer_list<std::string_view> facts) {
    const std::string message = expect_error<UsageError>([&] { parsed(rules); }, facts);
    EXPECT_TRUE(message.starts_with("tune.json: rule ")) << message;
    EXPECT_EQ(message.find("tune.json", 1), std::string::npos) << message;
  };
  const std::string good = R"({"operation": "barrier", "algorithm": "dissemination"}, )";
  refused(good + R"({"operation": "barrier", "algoritm": "dissemination"})",
          {"rule 2: ", "\"algoritm\"", "did you mean algorithm?"});
  refused(R"({"operation": "barrier"})", {"rule 1: ", "\"algorithm\" is missing"});
  refused(R"({"algorithm": "ring"})", {"\"operation\" is missing"});
  refused(R"({"operation": "allreduce", "algorithm": "ring"})",
          {"operation: ", "\"allreduce\"", "did you mean all_reduce?"});
  refused(R"({"operation": 3, "algorithm": "ring"})", {"operation: 3 is no text"});
  refused(good + R"({"operation": "all_reduce", "algorithm": "rign"})",
          {"rule 2: algorithm: ", "\"rign\"", "did you mean ring?"});
  refused(R"({"operation": "all_reduce", "algorithm": "hierarchical:0:ring:ring:ring"})",
          {"algorithm: ", "hierarchical:0"});
  refused(R"({"operation": "all_reduce", "algorithm": "ring", "transport": "share"})",
          {"transport: ", "\"share\"", "did you mean shared?"});
  refused(R"({"operation": "all_reduce", "algorithm": "ring", "ranks": 0})", {"ranks: 0 is no"});
  refused(R"({"operation": "all_reduce", "algorithm": "ring", "ranks": 2.5})", {"ranks: 2.5"});
  refused(R"({"operation": "all_reduce", "algorithm": "ring", "ranks": "2"})", {"ranks: \"2\""});
  refused(R"({"operation": "all_reduce", "algorithm": "ring", "ranks": [2]})",
          {"ranks: [2]", "[2, 8]"});
  refused(R"({"operation": "all_reduce", "algorithm": "ring", "ranks": [8, 2]})",
          {"ranks: 8 to 2"});
  refused(R"({"operation": "all_reduce", "algorithm": "ring", "ranks": 3000000000})",
          {"ranks: 3000000000"});
  refused(R"({"operation": "all_reduce", "algorithm": "ring", "up_to_bytes": -1})",
          {"up_to_bytes: -1"});
  refused(R"({"operation": "all_reduce", "algorithm": "ring", "up_to_bytes": 1e3})",
          {"up_to_bytes: 1000.0"});
  refused(R"({"operation": "all_reduce", "algorithm": "ring", "up_to_bytes": "4 cups"})",
          {"up_to_bytes: '4 cups' is not a size"});
  refused(
      R"({"operation": "all_reduce", "algorithm": "ring", "up_to_bytes": 18446744073709551615})",
      {"up_to_bytes: 18446744073709551615"});
  refused(R"("ring")", {"rule 1: \"ring\" is no object"});
}

TEST(SelectionFile, WhatIsNoSuchFileIsRefused) {
  const auto refused = [](const std::string& text, std::initializer_list<std::string_view> facts) {
    const std::string message =
        expect_error<UsageError>([&] { Selection::parse(text, "tune.json"); }, facts);
    EXPECT_TRUE(message.starts_with("tune.json: ")) << message;
  };
  refused("", {"is no JSON"});
  refused("{\n\"schema\": \"ringworld.tuning\",\n\"version\" 1}", {"is no JSON", "line 3"});
  refused("[]", {"[] is no object"});
  refused("{}", {"\"schema\" is missing"});
  refused(R"({"schema": "ringworld.bench", "version": 1, "rules": []})", {"\"ringworld.bench\""});
  refused(R"({"schema": "ringworld.tuning", "version": 2, "rules": []})", {"version: 2"});
  refused(R"({"schema": "ringworld.tuning", "version": 1})", {"\"rules\" is missing"});
  refused(R"({"schema": "ringworld.tuning", "version": 1, "rules": {}})", {"rules: {} is no list"});
  refused(R"({"schema": "ringworld.tuning", "version": 1, "rules": [], "conditions": 1})",
          {"conditions: 1 is no object"});
  refused(R"({"schema": "ringworld.tuning", "version": 1, "rule": []})",
          {"\"rule\"", "did you mean rules?"});

  const TemporaryDirectory directory;
  expect_error<UsageError>([&] { Selection::read(directory.path("none.json")); },
                           {"none.json: cannot be read"});
  expect_error<UsageError>([&] { Selection::read(directory.path()); }, {"cannot be read"});
}

// --- Tuning --------------------------------------------------------------------------------------

Measurement measured(std::int64_t bytes, const std::string& algorithm, double seconds,
                     int ranks = 2) {
  return {.operation = all_reduce,
          .transport = "mpi",
          .ranks = ranks,
          .bytes = Bytes(bytes),
          .algorithm = algorithm,
          .seconds = seconds};
}

SelectionRule tuned_rule(std::optional<Bytes> up_to, const std::string& algorithm, int ranks = 2) {
  return {.operation = all_reduce,
          .transport = "mpi",
          .ranks_from = ranks,
          .ranks_to = ranks,
          .up_to = up_to,
          .algorithm = algorithm};
}

using Rules = std::vector<SelectionRule>;

TEST(Tuning, TheFastestServesUpToTheGeometricMean) {
  const std::vector<Measurement> measurements = {
      measured(1024, "ring", 9),  measured(1024, "tree", 3),   // tree
      measured(4096, "ring", 9),  measured(4096, "tree", 4),   // tree
      measured(65536, "tree", 9), measured(65536, "ring", 5),  // ring: from 4096 * 4 on
  };
  const Selection selection = tuned(measurements, {});
  EXPECT_EQ(selection.rules(), (Rules{tuned_rule(Bytes(16384), "tree"), tuned_rule({}, "ring")}));
  EXPECT_EQ(chosen(selection, call(all_reduce, 1)), "tree");
  EXPECT_EQ(chosen(selection, call(all_reduce, 16384)), "tree");
  EXPECT_EQ(chosen(selection, call(all_reduce, 16385)), "ring");
  EXPECT_EQ(chosen(selection, call(all_reduce, 1 << 30)), "ring");
}

TEST(Tuning, OrderAndRepetitionsDoNotMatter) {
  const std::vector<Measurement> measurements = {
      measured(65536, "ring", 5), measured(1024, "tree", 3), measured(1024, "ring", 8),
      measured(65536, "tree", 6), measured(1024, "tree", 9), measured(1024, "ring", 4),
  };
  EXPECT_EQ(tuned(measurements, {}).rules(),
            (Rules{tuned_rule(Bytes(8192), "tree"), tuned_rule({}, "ring")}));
}

// A winner by 3 % or less makes no rule of its own: neither in the midst of another's sizes nor
// before them.
TEST(Tuning, NarrowWinnersKeepTheNeighboursRule) {
  const auto narrow = [](double ring_seconds) {
    return std::vector<Measurement>{
        measured(1024, "ring", 100), measured(1024, "tree", ring_seconds),
        measured(2048, "ring", 100), measured(2048, "tree", 200),
        measured(4096, "ring", 100), measured(4096, "tree", ring_seconds),
        measured(8192, "ring", 100), measured(8192, "tree", 200),
    };
  };
  EXPECT_EQ(tuned(narrow(98), {}).rules(), (Rules{tuned_rule({}, "ring")}));
  EXPECT_EQ(tuned(narrow(90), {}).rules().size(), 4u);
}

// Of those that are fast enough at all sizes of a rule, the one that is fastest over all of them.
TEST(Tuning, AmongEqualsTheFastestOverall) {
  const std::vector<Measurement> measurements = {
      measured(1024, "ring", 100), measured(1024, "tree", 101), measured(2048, "ring", 102),
      measured(2048, "tree", 100), measured(4096, "ring", 102), measured(4096, "tree", 100),
  };
  EXPECT_EQ(tuned(measurements, {}).rules(), (Rules{tuned_rule({}, "tree")}));
}

TEST(Tuning, AnAlgorithmServesNoSizeItWasNotMeasuredAt) {
  const std::vector<Measurement> measurements = {
      measured(1024, "tree", 1), measured(2048, "ring", 5), measured(4096, "tree", 1)};
  EXPECT_EQ(tuned(measurements, {}).rules(),
            (Rules{tuned_rule(Bytes(1448), "tree"), tuned_rule(Bytes(2896), "ring"),
                   tuned_rule({}, "tree")}));
}

TEST(Tuning, ReplacesTheRulesForWhatWasMeasured) {
  SelectionRule wider = tuned_rule({}, "halving_doubling", 2);
  wider.ranks_to = 8;
  const Selection base({tuned_rule({}, "direct", 2), tuned_rule({}, "direct", 4), wider}, "base");
  const std::vector<Measurement> measurements = {measured(8, "tree", 1, 2),
                                                 measured(8, "ring", 1, 8)};
  EXPECT_EQ(tuned(measurements, base).rules(),
            (Rules{tuned_rule({}, "tree", 2), tuned_rule({}, "ring", 8),
                   tuned_rule({}, "direct", 4), wider}));
}

TEST(Tuning, TimesMustBeTimes) {
  for (const double seconds : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THROW(tuned(std::vector{measured(8, "ring", seconds)}, {}), std::invalid_argument);
  }
  EXPECT_THROW(tuned(std::vector{measured(8, "auto", 1)}, {}), UsageError);
}

}  // namespace
}  // namespace ringworld
