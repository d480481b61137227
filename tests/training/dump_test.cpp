// Dumps and their comparison: layouts that compute the same are equal, and what was planted is
// found first, where it was planted.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/dumps.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "training/dump_comparison.h"

namespace ringworld {
namespace {

namespace fs = std::filesystem;

DumpComparison compare(const TemporaryDirectory& directory, const std::string& a,
                       const std::string& b, double bound = 1e-12) {
  return compare_dumps(Dump(directory.path(a)), Dump(directory.path(b)), bound);
}

void expect_equal(const DumpComparison& comparison) {
  EXPECT_TRUE(comparison.only_in_a.empty());
  EXPECT_TRUE(comparison.only_in_b.empty());
  for (const TensorDifference& t : comparison.tensors) {
    EXPECT_TRUE(comparison.holds(t)) << describe(t.kind, t.name) << " " << t.relative_error;
  }
}

TEST(Dump, LayoutsThatComputeTheSameAreEqual) {
  const TemporaryDirectory directory;
  dump_step(directory.path("one"), {.micro_batch = 4});
  dump_step(directory.path("ddp"), {.ranks = 2});
  dump_step(directory.path("fsdp"), {.ranks = 2, .strategy = "fsdp", .micro_batch = 2});
  dump_step(directory.path("zero1"), {.ranks = 4, .strategy = "zero1"});
  for (const char* a : {"ddp", "fsdp", "zero1"}) {
    for (const char* b : {"one", "ddp"}) {
      const DumpComparison comparison = compare(directory, a, b);
      expect_equal(comparison);
      EXPECT_TRUE(comparison.equal());
      // Four units forward, three of them hand a gradient down; 28 parameters; loss and norm.
      EXPECT_EQ(comparison.tensors.size(), 4u + 3 + 2 * 28 + 2);
    }
  }
}

TEST(Dump, HoldsWhatWasComputedInOrder) {
  const TemporaryDirectory directory;
  dump_step(directory.path("d"), {.ranks = 2});
  const Dump dump(directory.path("d"));
  EXPECT_EQ(dump.front().strategy, "ddp");
  EXPECT_EQ(dump.front().step, 2);
  ASSERT_EQ(dump.ranks().size(), 2u);
  for (const DumpIndex& index : dump.ranks()) {
    // Two micro-batches of one sequence; the step's four are 4 to 7, and ranks take turns.
    std::vector<std::string> seen;
    for (const DumpEntry& e : index.entries) {
      EXPECT_EQ(e.order, static_cast<std::int64_t>(seen.size()));
      seen.push_back(describe(e.kind, e.name));
      if (e.sequences > 0) {
        EXPECT_EQ(e.sequences, 1);
        EXPECT_EQ(e.first_sequence, 4 + index.rank + (seen.size() > 7 ? 2 : 0)) << seen.back();
      }
    }
    const std::vector<std::string> of_a_micro_batch = {"output of embedding",
                                                       "output of h.0",
                                                       "output of h.1",
                                                       "output of head",
                                                       "gradient passed down by head",
                                                       "gradient passed down by h.1",
                                                       "gradient passed down by h.0"};
    ASSERT_EQ(seen.size(), index.rank == 0 ? 14u + 2 * 28 + 2 : 14u);
    for (std::size_t i = 0; i < 14; ++i) {
      EXPECT_EQ(seen[i], of_a_micro_batch[i % 7]);
    }
    if (index.rank == 0) {
      EXPECT_EQ(seen[14], "loss");
      EXPECT_EQ(seen[15], "gradient of ln_f.bias");
      EXPECT_EQ(seen.back(), "parameter ln_f.bias");
    }
  }
  // The loss is the mean of the tokens' losses, of all sequences.
  double sum = 0;
  double loss = 0;
  for (const DumpIndex& index : dump.ranks()) {
    for (const DumpEntry& e : index.entries) {
      const std::vector<double> values = dump.read(index.rank, e, 0, e.elements());
      if (e.kind == DumpKind::forward && e.name == "head") {
        for (const double x : values) {
          sum += x;
        }
      }
      loss = e.kind == DumpKind::loss ? values.front() : loss;
    }
  }
  EXPECT_NEAR(loss, sum / 24, 1e-12);
}

TEST(Dump, EveryPrecisionIsEqualUpToItsBound) {
  for (const DType precision : {DType::f32, DType::bf16, DType::f16}) {
    const TemporaryDirectory directory;
    const double scale = precision == DType::f16 ? 1024 : 1;
    dump_step(directory.path("a"), {.ranks = 2, .precision = precision, .loss_scale = scale});
    dump_step(directory.path("b"),
              {.precision = precision, .micro_batch = 2, .loss_scale = 2 * scale});
    const Dump a(directory.path("a"));
    const Dump b(directory.path("b"));
    SCOPED_TRACE(name_of(precision));
    expect_equal(compare_dumps(a, b, default_dump_bound(a, b)));
  }
}

TEST(Dump, FindsAPlantedGradientFirstOnItsRankWithItsRatio) {
  const std::string wrong = "h.1.mlp.c_fc.weight";
  for (const char* strategy : {"ddp", "fsdp"}) {
    for (const int rank : {0, 1}) {
      SCOPED_TRACE(testing::Message() << strategy << " " << rank);
      const TemporaryDirectory directory;
      dump_step(directory.path("control"), {});
      DumpedStep spoilt{.ranks = 2, .strategy = strategy};
      // FSDP cuts the block between the ranks: each holds some of these.
      const std::string name = std::string(strategy) == "ddp" ? wrong
                               : rank == 0                    ? "h.1.attn.c_attn.weight"
                                                              : "h.1.mlp.c_proj.weight";
      spoilt.after_gradients = multiply_gradient(rank, name, 2);
      dump_step(directory.path("spoilt"), spoilt);
      const DumpComparison comparison = compare(directory, "spoilt", "control");
      const TensorDifference* first = comparison.first_different();
      ASSERT_NE(first, nullptr);
      EXPECT_FALSE(comparison.equal());
      EXPECT_EQ(describe(first->kind, first->name), "gradient of " + name);
      EXPECT_NEAR(first->ratio, 2, 1e-9);
      EXPECT_EQ(first->ranks_a, std::vector{rank});
      EXPECT_EQ(first->ranks_b, std::vector{0});
      EXPECT_EQ(first->sequence, -1);
      // The other way round it is half, on the same rank.
      const DumpComparison reverse = compare(directory, "control", "spoilt");
      ASSERT_NE(reverse.first_different(), nullptr);
      EXPECT_NEAR(reverse.first_different()->ratio, 0.5, 1e-9);
      EXPECT_EQ(reverse.first_different()->ranks_b, std::vector{rank});
    }
  }
}

// Backward goes down from the last unit, and so does the search.
TEST(Dump, OfSeveralGradientsTheLastUnitsIsFirst) {
  const TemporaryDirectory directory;
  dump_step(directory.path("control"), {});
  DumpedStep spoilt{};
  spoilt.after_gradients = [](int rank, Backend& backend, Strategy& strategy) {
    for (const char* name : {"h.0.ln_1.bias", "h.1.ln_1.bias"}) {
      multiply_gradient(0, name, 2)(rank, backend, strategy);
    }
  };
  dump_step(directory.path("spoilt"), spoilt);
  const DumpComparison comparison = compare(directory, "spoilt", "control");
  ASSERT_NE(comparison.first_different(), nullptr);
  EXPECT_EQ(comparison.first_different()->name, "h.1.ln_1.bias");
}

// Where a parameter is cut between two ranks, the ratio is of the part that is wrong.
TEST(Dump, TheRatioIsOfTheShardThatIsWrong) {
  const TemporaryDirectory directory;
  dump_step(directory.path("control"), {});
  DumpedStep spoilt{.ranks = 2, .strategy = "fsdp"};
  spoilt.after_gradients = multiply_gradient(1, "wte.weight", 3);
  dump_step(directory.path("spoilt"), spoilt);
  const DumpComparison comparison = compare(directory, "spoilt", "control");
  ASSERT_NE(comparison.first_different(), nullptr);
  EXPECT_EQ(comparison.first_different()->name, "wte.weight");
  EXPECT_NEAR(comparison.first_different()->ratio, 3, 1e-9);
  EXPECT_EQ(comparison.first_different()->ranks_a, std::vector{1});
}

// A wrong weight on one rank: its sequences show it, from that unit on.
TEST(Dump, FindsTheFirstUnitTheSequencesAndTheRank) {
  const TemporaryDirectory directory;
  dump_step(directory.path("control"), {.micro_batch = 4});
  DumpedStep spoilt{.ranks = 2, .micro_batch = 1};
  spoilt.before = [](int rank, Backend& backend, Model& model) {
    for (const auto& p : model.parameters()) {
      if (rank == 1 && p->name == "h.1.ln_1.weight") {
        backend.scale(p->value, 1.5);
      }
    }
  };
  dump_step(directory.path("spoilt"), spoilt);
  const DumpComparison comparison = compare(directory, "spoilt", "control");
  const TensorDifference* first = comparison.first_different();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(describe(first->kind, first->name), "output of h.1");
  EXPECT_EQ(first->sequences, (std::vector<std::int64_t>{5, 7}));
  EXPECT_EQ(first->ranks_a, std::vector{1});
  EXPECT_EQ(first->ranks_b, std::vector{0});
  EXPECT_TRUE(first->sequence == 5 || first->sequence == 7);
}

TEST(Dump, ANumberThatIsNoneIsADifference) {
  const TemporaryDirectory directory;
  dump_step(directory.path("control"), {});
  DumpedStep spoilt{};
  spoilt.after_gradients =
      multiply_gradient(0, "ln_f.bias", std::numeric_limits<double>::quiet_NaN());
  dump_step(directory.path("spoilt"), spoilt);
  for (const auto& [a, b] : {std::pair{"spoilt", "control"}, std::pair{"control", "spoilt"}}) {
    const DumpComparison comparison = compare(directory, a, b);
    ASSERT_NE(comparison.first_different(), nullptr);
    EXPECT_EQ(comparison.first_different()->name, "ln_f.bias");
    EXPECT_TRUE(std::isinf(comparison.first_different()->relative_error));
  }
  // The same bits are equal, whatever they are.
  EXPECT_TRUE(compare(directory, "spoilt", "spoilt", 0).equal());
}

TEST(Dump, SaysWhatOnlyOneOfThemHas) {
  const TemporaryDirectory directory;
  dump_step(directory.path("four"), {.step = 1});
  dump_step(directory.path("two"), {.global_batch = 2, .step = 1});
  const DumpComparison comparison = compare(directory, "four", "two");
  EXPECT_FALSE(comparison.equal());
  ASSERT_EQ(comparison.only_in_a.size(), 7u);
  EXPECT_EQ(comparison.only_in_a[0].name, "embedding");
  EXPECT_EQ(comparison.only_in_a[0].sequences, (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(comparison.only_in_b.empty());
  EXPECT_EQ(comparison.first_different()->kind, DumpKind::loss);  // outputs they share are equal
}

TEST(Dump, DamagedOrForeignFilesAreOneClearError) {
  const TemporaryDirectory directory;
  const std::string good = directory.path("good");
  dump_step(good, {.ranks = 2});
  const auto copy = [&](const std::string& name) {
    fs::remove_all(directory.path(name));
    fs::copy(good, directory.path(name));
    return directory.path(name);
  };
  const std::string bad = copy("bad");
  fs::resize_file(bad + "/rank-0001.bin", fs::file_size(bad + "/rank-0001.bin") - 8);
  expect_error<DataError>([&] { Dump{bad}; }, {"rank-0001.bin", "bytes"});
  copy("bad");
  fs::remove(bad + "/rank-0001.bin");
  expect_error<DataError>([&] { Dump{bad}; }, {"rank-0001.bin", "cannot be read"});
  copy("bad");
  fs::remove(bad + "/rank-0001.json");
  expect_error<DataError>([&] { Dump{bad}; }, {"rank-0001.json", "missing", "2 ranks"});
  copy("bad");
  fs::resize_file(bad + "/rank-0000.json", 100);
  expect_error<DataError>([&] { Dump{bad}; }, {"rank-0000.json", "index"});
  directory.write("bad/rank-0000.json", R"({"schema": "ringworld.metrics", "version": 1})");
  expect_error<DataError>([&] { Dump{bad}; }, {"rank-0000.json", "schema"});
  fs::create_directory(directory.path("empty"));
  for (const char* name : {"empty", "none"}) {
    expect_error<DataError>([&] { Dump{directory.path(name)}; }, {name, "holds no dump"});
  }
  // A file of another dump among them.
  dump_step(directory.path("later"), {.ranks = 2, .step = 3});
  copy("bad");
  fs::copy(directory.path("later/rank-0001.json"), bad + "/rank-0001.json",
           fs::copy_options::overwrite_existing);
  expect_error<DataError>([&] { Dump{bad}; }, {"rank-0001.json", "step 3", "step 2"});

  expect_error<DataError>([&] { compare(directory, "good", "later"); }, {"step 2", "step 3"});
  DumpedStep other{};
  other.model.layers = 1;
  dump_step(directory.path("other"), other);
  expect_error<DataError>([&] { compare(directory, "good", "other"); },
                          {"gpt2-tiny", "same model"});
  // As many parameters in other shapes.
  DumpedStep wide{};
  wide.model.vocabulary = 12;
  DumpedStep longer{};
  longer.model.context = 7;
  dump_step(directory.path("wide"), wide);
  dump_step(directory.path("longer"), longer);
  expect_error<DataError>([&] { compare(directory, "wide", "longer"); },
                          {"another shape", "(6, 8)", "(7, 8)"});
}

TEST(Dump, WhatCannotBeWrittenIsOneClearError) {
  const TemporaryDirectory directory;
  const std::string there = directory.path("there");
  dump_step(there, {});
  expect_error<DataError>([&] { dump_step(there, {}); }, {"there", "holds a dump already"});
  directory.write("file", "");
  expect_error<DataError>([&] { dump_step(directory.path("file/below"), {}); },
                          {"file/below", "step 2", "cannot be written"});
#ifdef __linux__
  // A disk without room.
  const std::string full = directory.path("full");
  fs::create_directory(full);
  fs::create_symlink("/dev/full", full + "/rank-0000.bin.partial");
  expect_error<DataError>([&] { dump_step(full, {}); }, {"rank-0000.bin", "No space left"});
  EXPECT_TRUE(fs::is_empty(full));
#endif
}

TEST(Dump, WhatIsNotFinishedLeavesNothing) {
  const TemporaryDirectory directory;
  DumpedStep run{};
  run.after_gradients = [](int, Backend&, Strategy&) { throw DataError("something else"); };
  expect_error<DataError>([&] { dump_step(directory.path("d"), run); }, {"something else"});
  EXPECT_TRUE(fs::is_empty(directory.path("d")));
  dump_step(directory.path("d"), {});  // and is in nobody's way
}

TEST(Dump, BoundsFollowThePrecision) {
  EXPECT_EQ(default_dump_bound(DType::f64), 1e-12);
  EXPECT_EQ(default_dump_bound(DType::f32), 1e-5);
  EXPECT_EQ(default_dump_bound(DType::bf16), 1e-2);
  EXPECT_EQ(default_dump_bound(DType::f16), 2e-3);
}

}  // namespace
}  // namespace ringworld
