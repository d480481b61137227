// Taken together, the local actions of a step add the same things in the same order as one by one.
#include "collectives/local_sums.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "collectives/algorithm.h"

namespace ringworld {
namespace {

using Contents = std::map<int, std::string>;  // what chunks hold, written out

Contents one_by_one(const Step& step, Contents contents) {
  for (const LocalAction& action : step.local) {
    std::string& chunk = contents.at(action.chunk);
    const std::string& source = contents.at(action.source);
    chunk = action.verb == Verb::copy ? source : "(" + chunk + "+" + source + ")";
  }
  return contents;
}

// As the executor works on every piece of its chunks.
Contents together(const std::vector<LocalSum>& sums, Contents contents) {
  for (const LocalSum& sum : sums) {
    std::string so_far = contents.at(sum.terms.front());
    for (std::size_t i = 1; i < sum.terms.size(); ++i) {
      const bool last = i + 1 == sum.terms.size();
      so_far = "(" + so_far + "+" + contents.at(sum.terms[i]) + ")";
      contents.at(last || sum.workplace < 0 ? sum.chunk : sum.workplace) = so_far;
    }
    contents.at(sum.chunk) = so_far;
  }
  return contents;
}

Contents first_contents(const Schedule& schedule) {
  Contents contents;
  for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
    contents[chunk] = "c" + std::to_string(chunk);
  }
  return contents;
}

// Whether a step from there on sends the chunk or reads it; what messages of the step itself say
// comes after its local actions.
bool is_read_later(const Schedule& schedule, std::size_t step, int chunk) {
  for (std::size_t later = step; later < schedule.steps().size(); ++later) {
    for (const LocalAction& action : schedule.steps()[later].local) {
      if (later > step && (action.source == chunk || action.chunk == chunk)) {
        return true;
      }
    }
    for (const Action& action : schedule.steps()[later].actions) {
      if (action.chunk == chunk) {
        return true;
      }
    }
  }
  return false;
}

TEST(LocalSums, OfEveryAlgorithmAreWhatItsActionsComeTo) {
  int steps = 0;
  int several_terms = 0;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.library) {
      continue;
    }
    for (int ranks = 1; ranks <= 17; ++ranks) {
      if (!algorithm.refuses(ranks).empty()) {
        continue;
      }
      for (int rank = 0; rank < ranks; ++rank) {
        const Schedule schedule = algorithm.emit(rank, ranks, ranks - 1);
        for (std::size_t step = 0; step < schedule.steps().size(); ++step) {
          const auto sums = local_sums(schedule, step);
          if (!sums || schedule.steps()[step].local.empty()) {
            continue;
          }
          ++steps;
          const Contents expected = one_by_one(schedule.steps()[step], first_contents(schedule));
          const Contents found = together(*sums, first_contents(schedule));
          for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
            if (chunk < schedule.data_chunks() || is_read_later(schedule, step, chunk)) {
              ASSERT_EQ(found.at(chunk), expected.at(chunk))
                  << algorithm.name << ", rank " << rank << " of " << ranks << ", step " << step;
            }
          }
          for (const LocalSum& sum : *sums) {
            several_terms += sum.terms.size() > 2 ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_GT(steps, 1000);
  EXPECT_GT(several_terms, 100);
}

TEST(LocalSums, WhatCannotBeTakenTogetherIsNot) {
  {
    Schedule schedule(2);  // two chunks change places
    const int aside = schedule.add_scratch(0);
    schedule.begin_step();
    schedule.copy(aside, 0);
    schedule.copy(0, 1);
    schedule.copy(1, aside);
    EXPECT_FALSE(local_sums(schedule, 0));
  }
  {
    Schedule schedule(3);  // a sum is added
    schedule.begin_step();
    schedule.reduce(1, 2);
    schedule.reduce(0, 1);
    EXPECT_FALSE(local_sums(schedule, 0));
  }
  {
    Schedule schedule(3);  // the same, in scratch that nobody needs later
    const int sum = schedule.add_scratch(0);
    schedule.begin_step();
    schedule.copy(sum, 1);
    schedule.reduce(sum, 2);
    schedule.reduce(0, sum);
    EXPECT_FALSE(local_sums(schedule, 0));
  }
  {
    Schedule schedule(3);  // the own term comes last, and there is no room of its length
    const int aside = schedule.add_scratch(1);
    schedule.begin_step();
    schedule.copy(aside, 0);
    schedule.copy(0, 1);
    schedule.reduce(0, 2);
    schedule.reduce(0, aside);
    EXPECT_FALSE(local_sums(schedule, 0));
  }
  {
    Schedule schedule(4);  // chunk 1 is added to 0 as it was before, but is written itself
    schedule.begin_step();
    schedule.reduce(0, 1);
    schedule.reduce(1, 2);
    EXPECT_FALSE(local_sums(schedule, 0));
  }
}

TEST(LocalSums, TheOwnTermWaitsForItsTurn) {
  Schedule schedule(4);  // ((c1 + c2) + c0) + c3
  const int aside = schedule.add_scratch(0);
  schedule.begin_step();
  schedule.copy(aside, 0);
  schedule.copy(0, 1);
  schedule.reduce(0, 2);
  schedule.reduce(0, aside);
  schedule.reduce(0, 3);
  const auto sums = local_sums(schedule, 0);
  ASSERT_TRUE(sums);
  ASSERT_EQ(sums->size(), 1u);
  EXPECT_EQ(sums->front().chunk, 0);
  EXPECT_EQ(sums->front().terms, (std::vector{1, 2, 0, 3}));
  EXPECT_EQ(sums->front().workplace, aside);
}

}  // namespace
}  // namespace ringworld
