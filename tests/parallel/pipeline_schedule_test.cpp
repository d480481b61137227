// Pipeline schedules: proved for many shapes, wrong ones refuted, timed against closed forms,
// with published times.
#include "parallel/pipeline_schedule.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/pipeline_proof.h"
#include "parallel/pipeline_simulation.h"
#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

constexpr auto F = PipelineWork::forward;
constexpr auto B = PipelineWork::backward;
constexpr auto I = PipelineWork::backward_input;
constexpr auto W = PipelineWork::backward_weight;

PipelineSchedule emit(std::string_view name, int stages, int micro_batches, int chunks = 1) {
  return emit_pipeline(find_pipeline(name), {stages, micro_batches, chunks});
}

// body(kind, shape) for all shapes that the kind serves, of 1 to 8 stages, 1 to 16 micro-batches
// and 1 to 3 chunks.
template <typename Body>
void for_every_shape(Body body) {
  for (const PipelineKind& kind : pipeline_kinds()) {
    int served = 0;
    for (int stages = 1; stages <= 8; ++stages) {
      for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
        for (int chunks = 1; chunks <= 3; ++chunks) {
          const PipelineShape shape{stages, micro_batches, chunks};
          if (kind.refuses(shape).empty()) {
            SCOPED_TRACE(fmt::format("{}, {} stages, {} micro-batches, {} chunks", kind.name,
                                     stages, micro_batches, chunks));
            body(kind, shape);
            ++served;
          }
        }
      }
    }
    EXPECT_EQ(served, kind.name == "interleaved-1f1b" ? 2 * 42 : 8 * 16) << kind.name;
  }
}

// --- The proof ----------------------------------------------------------------------------------

TEST(PipelineProof, EveryScheduleIsRight) {
  for_every_shape([](const PipelineKind& kind, const PipelineShape& shape) {
    EXPECT_EQ(refute(kind, shape).value_or("right"), "right");
  });
}

TEST(PipelineProof, GradientsAddUpInTheOrderOfTheMicroBatches) {
  for_every_shape([](const PipelineKind& kind, const PipelineShape& shape) {
    const PipelineSchedule schedule = emit_pipeline(kind, shape);
    for (const std::vector<PipelineAction>& actions : schedule.actions) {
      std::vector<int> next(static_cast<std::size_t>(shape.chunks));
      for (const PipelineAction& action : actions) {
        if (action.work == B || action.work == W) {
          EXPECT_EQ(action.micro_batch, next[action.chunk]++);
        }
      }
    }
  });
}

// Strict rendezvous is enough for the first three; the others need to go on once while an output
// is on offer, as soon as there are stages and micro-batches for it.
TEST(PipelineProof, HowManyOutputsMustBeOnOffer) {
  for_every_shape([](const PipelineKind& kind, const PipelineShape& shape) {
    const int offered = needs_of(emit_pipeline(kind, shape)).offered;
    if (kind.name == "zb-h2" || kind.name == "interleaved-1f1b") {
      EXPECT_LE(offered, 1);
    } else {
      EXPECT_EQ(offered, 0);
    }
  });
  EXPECT_EQ(needs_of(emit("zb-h2", 4, 8)).offered, 1);
  EXPECT_EQ(needs_of(emit("interleaved-1f1b", 4, 8, 2)).offered, 1);
}

std::vector<int> held(const PipelineSchedule& schedule) {
  std::vector<int> held;
  for (const PipelinePeak& peak : needs_of(schedule).peaks) {
    held.push_back(peak.held);
  }
  return held;
}

TEST(PipelineProof, LiveMicroBatches) {
  EXPECT_EQ(held(emit("fill-drain", 4, 8)), (std::vector{8, 8, 8, 8}));
  EXPECT_EQ(held(emit("1f1b", 4, 8)), (std::vector{4, 3, 2, 1}));
  EXPECT_EQ(held(emit("1f1b", 4, 2)), (std::vector{2, 2, 2, 1}));
  EXPECT_EQ(held(emit("interleaved-1f1b", 4, 8, 2)), (std::vector{11, 9, 7, 5}));
  // Qi et al., section 2: p - i + 1 whole ones and i - 1 weight halves in H1, 2 p - 2 i + 1 and
  // 2 i - 2 in H2, on worker i from 1.
  const PipelineNeeds h1 = needs_of(emit("zb-h1", 4, 8));
  EXPECT_EQ(h1.peaks, (std::vector<PipelinePeak>{{4, 4}, {4, 3}, {4, 2}, {4, 1}}));
  const PipelineNeeds h2 = needs_of(emit("zb-h2", 4, 8));
  EXPECT_EQ(h2.peaks, (std::vector<PipelinePeak>{{7, 7}, {7, 5}, {7, 3}, {7, 1}}));
}

// A change to a right schedule, and what the proof must say of it.
void expect_refuted(PipelineSchedule schedule, const std::function<void(PipelineSchedule&)>& change,
                    std::initializer_list<std::string_view> facts) {
  ASSERT_EQ(refute(schedule).value_or("right"), "right");
  change(schedule);
  const std::string found = refute(schedule).value_or("right");
  for (const std::string_view fact : facts) {
    EXPECT_NE(found.find(fact), found.npos) << "no \"" << fact << "\" in: " << found;
  }
  expect_error<std::invalid_argument>([&] { needs_of(schedule); }, {found});
}

TEST(PipelineProof, WrongOrdersOfOneStage) {
  // 1F1B on stage 0 of 2: F0 F1 B0 F2 B1 B2.
  const PipelineSchedule right = emit("1f1b", 2, 3);
  expect_refuted(right, [](auto& s) { s.actions[0].pop_back(); },
                 {"stage 0, backward of micro-batch 2: never runs"});
  expect_refuted(right, [](auto& s) { s.actions[0].erase(s.actions[0].begin()); },
                 {"stage 0, backward of micro-batch 0: its forward has not run yet"});
  expect_refuted(right,
                 [](auto& s) {
                   s.actions[1].push_back({F, 1});
                 },
                 {"stage 1, forward of micro-batch 1: runs a second time"});
  expect_refuted(right,
                 [](auto& s) {
                   s.actions[1].push_back({B, 1});
                 },
                 {"stage 1, backward of micro-batch 1: runs a second time"});
  expect_refuted(right,
                 [](auto& s) {
                   s.actions[0].push_back({W, 2});
                 },
                 {"stage 0, backward_weight of micro-batch 2: runs a second time"});
  expect_refuted(right, [](auto& s) { s.actions[0][0].micro_batch = 3; },
                 {"stage 0, forward of micro-batch 3: there are micro-batches 0 to 2"});
  expect_refuted(right, [](auto& s) { s.actions[0][0].chunk = 1; },
                 {"stage 0, forward of micro-batch 0: in chunk 1; there are chunks 0 to 0"});
  expect_refuted(right, [](auto& s) { s.actions.pop_back(); },
                 {"1 stages have an order, there are 2"});
  expect_refuted(right, [](auto& s) { s.shape.micro_batches = 4; },
                 {"stage 0, forward of micro-batch 3: never runs"});
}

TEST(PipelineProof, WrongHalvesOfBackward) {
  // H1 on stage 1 of 2: F0 I0 F1 I1 W0 W1.
  const PipelineSchedule right = emit("zb-h1", 2, 2);
  ASSERT_EQ(right.actions[1],
            (std::vector<PipelineAction>{{F, 0}, {I, 0}, {F, 1}, {I, 1}, {W, 0}, {W, 1}}));
  expect_refuted(right, [](auto& s) { std::swap(s.actions[1][3], s.actions[1][5]); },
                 {"stage 1, backward_weight of micro-batch 1: its backward_input has not run yet"});
  expect_refuted(right, [](auto& s) { s.actions[1].pop_back(); },
                 {"stage 1, backward_weight of micro-batch 1: never runs"});
  expect_refuted(right, [](auto& s) { s.actions[1][3].work = B; },
                 {"stage 1, backward_weight of micro-batch 1: runs a second time"});
}

TEST(PipelineProof, WrongParts) {
  const PipelineSchedule right = emit("interleaved-1f1b", 2, 2, 2);
  expect_refuted(right, [](auto& s) { s.parts[1][0] = 2; },
                 {"stage 1, chunk 0: is part 2", "stage 0"});
  expect_refuted(right, [](auto& s) { s.parts[1][1] = 4; },
                 {"stage 1, chunk 1: is part 4", "0 to 3"});
  expect_refuted(right, [](auto& s) { s.parts[1].pop_back(); }, {"stage 1 holds 1 chunks"});
  // The chain goes down and up again, and the order does not know.
  expect_refuted(right,
                 [](auto& s) {
                   s.parts = {{0, 3}, {1, 2}};
                 },
                 {"stage 0", "stage 1", "micro-batch"});
  // Both chunks on one stage: the second one first.
  expect_refuted(
      emit("interleaved-1f1b", 1, 1, 2),
      [](auto& s) { std::swap(s.actions[0][0], s.actions[0][1]); },
      {"stage 0, forward of micro-batch 0, chunk 1: its input, from chunk 0 of the same stage"});
}

TEST(PipelineProof, MessagesThatMeetTheWrongOne) {
  // Stage 1 wants micro-batch 1 first; each stage by itself is right.
  expect_refuted(
      emit("fill-drain", 2, 2), [](auto& s) { std::swap(s.actions[1][0], s.actions[1][1]); },
      {"stage 1, forward of micro-batch 1: would receive the output of stage 0, forward of "
       "micro-batch 0"});
  expect_refuted(
      emit("fill-drain", 2, 2), [](auto& s) { std::swap(s.actions[1][2], s.actions[1][3]); },
      {"stage 0, backward of micro-batch 0: would receive the output of stage 1, backward of "
       "micro-batch 1"});
}

TEST(PipelineProof, Deadlock) {
  // Stage 0 waits for the gradient of micro-batch 0 before it gives micro-batch 1, which stage 1
  // wants before that: no number of offers helps.
  expect_refuted(
      emit("1f1b", 2, 2),
      [](auto& s) {
        s.actions[0] = {{F, 0}, {B, 0}, {F, 1}, {B, 1}};
        s.actions[1] = {{F, 0}, {F, 1}, {B, 0}, {B, 1}};
      },
      {"deadlock, each waits for the next: stage 0, backward of micro-batch 0 for its input from "
       "stage 1; stage 1, forward of micro-batch 1 for its input from stage 0"});
}

// With k offers stage 1 gets as far as forward k, stage 0 as far as forward 2 k + 2; only after
// its forward 5 does stage 0 take what stage 1 offers.
TEST(PipelineProof, CountsTheOffersThatAreNeeded) {
  PipelineSchedule schedule = emit("interleaved-1f1b", 2, 6, 2);
  for (int stage = 0; stage < 2; ++stage) {  // all of chunk 0, then all of chunk 1
    schedule.actions[stage].clear();
    for (int chunk = 0; chunk < 2; ++chunk) {
      for (int i = 0; i < 6; ++i) {
        schedule.actions[stage].push_back({F, i, chunk});
      }
    }
    for (int chunk = 1; chunk >= 0; --chunk) {
      for (int i = 0; i < 6; ++i) {
        schedule.actions[stage].push_back({B, i, chunk});
      }
    }
  }
  EXPECT_EQ(refute(schedule).value_or("right"), "right");
  EXPECT_EQ(needs_of(schedule).offered, 2);
}

TEST(PipelineProof, RowsAreHeldAgainstTheirClosedForm) {
  PipelineKind kind = find_pipeline("1f1b");
  kind.live.value = [](const PipelineShape& shape, int) { return shape.stages; };
  const std::string found = refute(kind, {4, 8, 1}).value_or("right");
  EXPECT_EQ(found,
            "1f1b, 4 stages, 8 micro-batches, 1 chunks: stage 1 holds 3 micro-batches at its peak, "
            "the closed form says 4");
  kind.emit = [](const PipelineShape& shape) {
    PipelineSchedule schedule = find_pipeline("1f1b").emit(shape);
    schedule.actions[2].pop_back();
    return schedule;
  };
  EXPECT_EQ(refute(kind, {4, 8, 1}).value_or("right"),
            "1f1b, 4 stages, 8 micro-batches, 1 chunks: stage 2, backward of micro-batch 7: never "
            "runs");
}

// --- The table ----------------------------------------------------------------------------------

TEST(PipelineTable, WhatAKindCannotServeIsRefusedWithTheNumbers) {
  expect_error<UsageError>([] { emit("1f1b", 4, 8, 2); }, {"1f1b", "2 chunks", "interleaved-1f1b"});
  expect_error<UsageError>([] { emit("interleaved-1f1b", 4, 8, 1); }, {"1 chunk", "use 1f1b"});
  expect_error<UsageError>([] { emit("interleaved-1f1b", 4, 10, 2); },
                           {"4 stages", "10 micro-batches", "use 8 or 12"});
  expect_error<UsageError>([] { emit("interleaved-1f1b", 4, 3, 2); },
                           {"4 stages", "3 micro-batches", "use 4 micro-batches"});
  expect_error<UsageError>([] { find_pipeline("zb-h3"); },
                           {"zb-h3", "did you mean zb-h1?", "1f1b"});
  expect_error<std::invalid_argument>([] { emit("1f1b", 0, 8); }, {"0 stages"});
  expect_error<std::invalid_argument>([] { register_pipeline(find_pipeline("1f1b")); }, {"1f1b"});
}

TEST(PipelineTable, ARowCanBeAdded) {
  PipelineKind kind = find_pipeline("1f1b");
  kind.name = "of a user";
  const PipelineKind& added = register_pipeline(kind);
  EXPECT_EQ(&added, &find_pipeline("of a user"));
  EXPECT_EQ(pipeline_names().back(), "of a user");
}

// --- The simulation -----------------------------------------------------------------------------

// Times whose sums are exact, so that equality can be asked for: a whole stage's are multiples of
// 6, which 1 to 3 chunks divide.
constexpr PipelineTimes exact_times[] = {
    {6, 6, 6}, {12, 18, 6}, {6, 12, 6}, {30, 6, 18}, {18, 24, 18}};

TEST(PipelineSimulation, BubblesFollowTheirClosedForms) {
  int held_against = 0;
  for_every_shape([&](const PipelineKind& kind, const PipelineShape& shape) {
    for (const PipelineTimes& times : exact_times) {
      if (const std::optional<double> bubble = kind.bubble.value(shape, times)) {
        EXPECT_EQ(simulate(emit_pipeline(kind, shape), times).idle_of_longest_stage().time,
                  *bubble);
        ++held_against;
      }
    }
  });
  EXPECT_GT(held_against, 1000);
}

// Whoever forgets the condition of H1 and H2 gets another value.
TEST(PipelineSimulation, ClosedFormsOfZeroBubbleNeedTheirConditions) {
  const auto bubble = [](std::string_view name, int m, const PipelineTimes& times) {
    return simulate(emit(name, 4, m), times).idle_of_longest_stage().time;
  };
  EXPECT_EQ(bubble("zb-h1", 4, {6, 6, 6}), 3 * 6);
  EXPECT_NE(bubble("zb-h1", 3, {6, 6, 6}), 3 * 6);
  EXPECT_EQ(bubble("zb-h2", 7, {12, 18, 6}), 3 * 18);
  EXPECT_NE(bubble("zb-h2", 6, {12, 18, 6}), 3 * 18);
  EXPECT_FALSE(find_pipeline("zb-h1").bubble.value({4, 3, 1}, {}));
  EXPECT_FALSE(find_pipeline("zb-h2").bubble.value({4, 6, 1}, {}));
  EXPECT_FALSE(find_pipeline("zb-h2").bubble.value({4, 8, 1}, {6, 6, 8}));
}

TEST(PipelineSimulation, FewerMicroBatchesThanStages) {
  const double percent[] = {75, 60, 50, 42.9, 37.5};
  for (const char* name : {"fill-drain", "1f1b"}) {
    for (int m = 1; m <= 5; ++m) {
      for (const PipelineTimes& times : exact_times) {
        const PipelineTimeline timeline = simulate(emit(name, 4, m), times);
        EXPECT_DOUBLE_EQ(timeline.idle().of_total, 3.0 / (m + 3));
        EXPECT_DOUBLE_EQ(timeline.idle().over_ideal, 3.0 / m);
        EXPECT_EQ(std::round(1000 * timeline.idle().of_total) / 10, percent[m - 1]);
      }
    }
  }
}

TEST(PipelineSimulation, EightMicroBatchesOnFourStages) {
  const auto percent = [](const PipelineSchedule& schedule) {
    return std::round(1000 * simulate(schedule, {6, 6, 6}).idle().of_total) / 10;
  };
  EXPECT_EQ(percent(emit("1f1b", 4, 8)), 27.3);
  EXPECT_EQ(percent(emit("interleaved-1f1b", 4, 8, 2)), 15.8);
}

// Table 6 of Qi et al., in microseconds, without communication.
struct Profile {
  int stages;
  int micro_batches;
  PipelineTimes times;
};
constexpr Profile profiles[] = {
    {8, 24, {18522, 18086, 9337}},    // 1.5B
    {8, 64, {29935, 29621, 19388}},   // 6.2B
    {16, 48, {11347, 11248, 8132}},   // 14.6B
    {32, 128, {10408, 10204, 7703}},  // 28.3B
};

TEST(PipelineSimulation, ZeroBubbleWithMeasuredTimes) {
  for (const auto& [p, m, times] : profiles) {
    const auto idle = [&, p = p, m = m, times = times](const char* name) {
      return simulate(emit(name, p, m), times).idle_of_longest_stage().time;
    };
    const double tf = times.forward;
    const double tb = times.backward_input;
    const double tw = times.backward_weight;
    EXPECT_EQ(idle("1f1b"), (p - 1) * (tf + tb + tw));
    EXPECT_EQ(idle("zb-h1"), (p - 1) * (tf + tb - tw));
    EXPECT_EQ(idle("zb-h2"), (p - 1) * (tf + tb - 2 * tw));
  }
}

// With the times of the first row of Table 6, communication among them: the 1.5B model on 8 stages
// with 24 micro-batches.
TEST(PipelineSimulation, BubbleRatesWithCommunication) {
  const auto rate = [](const char* name) {
    const Idle idle =
        simulate(emit(name, 8, 24), {18.522, 18.086, 9.337, 0.601}).idle_of_longest_stage();
    return fmt::format("{:.4f}", idle.of_total);
  };
  EXPECT_EQ(rate("1f1b"), "0.2431");
  EXPECT_EQ(rate("zb-h1"), "0.1585");
  EXPECT_EQ(rate("zb-h2"), "0.1083");
}

// With equal times H2 has no bubble within a stage, and the stages begin one after the other.
TEST(PipelineSimulation, StagesThatEndLaterDoNotIdle) {
  const PipelineTimeline timeline = simulate(emit("zb-h2", 4, 8), {6, 6, 6});
  EXPECT_EQ(timeline.idle_of_longest_stage().time, 0);
  EXPECT_EQ(timeline.idle().time, 3 * 6);
}

TEST(PipelineSimulation, EveryActionStandsWhereItBelongs) {
  const PipelineTimeline timeline = simulate(emit("1f1b", 2, 2), {1, 1, 1, 1});
  ASSERT_EQ(timeline.stages.size(), 2u);
  const auto expect = [&](int stage, std::vector<std::pair<double, double>> times) {
    ASSERT_EQ(timeline.stages[stage].size(), times.size());
    for (std::size_t i = 0; i < times.size(); ++i) {
      EXPECT_EQ(std::pair(timeline.stages[stage][i].start, timeline.stages[stage][i].end), times[i])
          << "stage " << stage << ", action " << i;
    }
  };
  expect(0, {{0, 1}, {1, 2}, {6, 8}, {9, 11}});  // F0 F1 B0 B1
  expect(1, {{2, 3}, {3, 5}, {5, 6}, {6, 8}});   // F0 B0 F1 B1
  EXPECT_EQ(timeline.total, 11);
  EXPECT_EQ(timeline.work, 6);
  ASSERT_EQ(timeline.messages.size(), 4u);
  const PipelineMessage& gradient = timeline.messages[0];  // stage 0 receives only these
  EXPECT_TRUE(gradient.gradient);
  EXPECT_EQ(gradient.micro_batch, 0);
  EXPECT_EQ(gradient.from, (PipelinePlace{1, 0}));
  EXPECT_EQ(gradient.to, (PipelinePlace{0, 0}));
  EXPECT_EQ(gradient.begun, 3);
  EXPECT_EQ(gradient.sent, 5);
  EXPECT_EQ(gradient.arrived, 6);
  EXPECT_EQ(gradient.used, 6);
  EXPECT_EQ(timeline.messages[3].arrived, 3);  // micro-batch 1 waits for B0 of stage 1
  EXPECT_EQ(timeline.messages[3].used, 5);
}

// What one stage gives another cannot come before it is there, in any schedule.
TEST(PipelineSimulation, NothingRunsBeforeItsInput) {
  const PipelineTimes times{6, 12, 6, 3};
  for_every_shape([&](const PipelineKind& kind, const PipelineShape& shape) {
    const PipelineSchedule schedule = emit_pipeline(kind, shape);
    const PipelineTimeline timeline = simulate(schedule, times);
    for (const PipelineMessage& message : timeline.messages) {
      const auto& actions = timeline.stages[message.to.stage];
      const auto user = std::ranges::find_if(actions, [&](const TimedAction& timed) {
        return timed.action.micro_batch == message.micro_batch &&
               timed.action.chunk == message.to.chunk && timed.action.work != W &&
               (timed.action.work != F) == message.gradient;
      });
      ASSERT_NE(user, actions.end());
      EXPECT_EQ(user->start, message.used);
      EXPECT_GE(message.used, message.arrived);
      EXPECT_EQ(message.arrived, message.sent + times.communication);
    }
    if (shape.stages == 1) {
      EXPECT_EQ(timeline.total, timeline.work);  // between its own chunks nothing travels
    }
    double busy = 0;
    for (const TimedAction& timed : timeline.stages.back()) {
      EXPECT_GE(timed.start, busy);  // the end of the one before
      busy = timed.end;
    }
    const auto boundaries = static_cast<std::size_t>(
        shape.stages == 1 ? 0 : 2 * (shape.parts() - 1) * shape.micro_batches);
    EXPECT_EQ(timeline.messages.size(), boundaries);
  });
}

TEST(PipelineSimulation, WhatNeverEndsIsRefused) {
  PipelineSchedule schedule = emit("1f1b", 2, 2);
  schedule.actions[1] = {{F, 0}, {F, 1}, {B, 0}, {B, 1}};
  schedule.actions[0] = {{F, 0}, {B, 0}, {F, 1}, {B, 1}};
  expect_error<std::invalid_argument>([&] { simulate(schedule, {}); },
                                      {"stage 0, backward of micro-batch 0 never gets its input"});
}

}  // namespace
}  // namespace ringworld
