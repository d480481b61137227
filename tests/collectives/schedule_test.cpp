// Schedules as data, and the symbolic proof: every registered algorithm proves right for 1 to 64
// ranks and every root, and each kind of wrong schedule is refused with rank, step and chunk.
#include "collectives/schedule.h"

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "collectives/hierarchical.h"
#include "collectives/proof.h"
#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

TEST(ChunkRange, PartitionsTheBufferWithTheLargerChunksFirst) {
  for (const std::int64_t count : {0L, 1L, 3L, 7L, 8L, 9L, 1009L, (1L << 33) + 5}) {
    for (const int chunks : {1, 2, 3, 7, 8, 64}) {
      std::int64_t next = 0;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const Range range = chunk_range(count, chunks, chunk);
        EXPECT_EQ(range.first, next);
        EXPECT_LE(range.count, chunk_range(count, chunks, 0).count);
        EXPECT_GE(range.count, chunk_range(count, chunks, 0).count - 1);
        next += range.count;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(Schedule, DropsAStepWithoutActions) {
  Schedule schedule(2);
  schedule.begin_step();
  schedule.begin_step();
  schedule.send(1, 0);
  schedule.receive(1, 1);
  schedule.begin_step();
  ASSERT_EQ(schedule.steps().size(), 1u);
  EXPECT_EQ(schedule.steps()[0].actions[1], (Action{Verb::receive, 1, 1}));
}

TEST(Table, EveryOperationHasAlgorithmsUnderNamesOfTheirOwn) {
  for (const Operation operation : all_operations) {
    EXPECT_EQ(parse_operation(name_of(operation)), operation);
    const std::vector<std::string> names = algorithm_names(operation);
    EXPECT_FALSE(names.empty()) << name_of(operation);
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  }
}

TEST(Table, KeepsToWhatIsRegistered) {
  EXPECT_THROW(register_algorithm(find_algorithm(Operation::all_reduce, "ring")),
               std::invalid_argument);
}

TEST(Table, AnUnknownOperationIsRefusedWithTheNearest) {
  expect_error<UsageError>([] { parse_operation("all_redcue"); },
                           {"all_redcue", "did you mean all_reduce?", "barrier"});
}

TEST(Table, AnUnknownAlgorithmIsRefusedWithTheKnownOnes) {
  try {
    find_algorithm(Operation::all_gather, "rign");
    FAIL() << "found an algorithm that does not exist";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "there is no algorithm \"rign\" for all_gather; did you mean ring? Choose one of: "
                 "ring, recursive_doubling, bruck, direct, mpi");
  }
}

TEST(Proof, EveryAlgorithmIsRightForOneTo64RanksAndEveryRoot) {
  for (const Algorithm& algorithm : algorithms()) {
    for (int ranks = 1; ranks <= max_proved_ranks; ++ranks) {
      const auto refutation = refute(algorithm, ranks);
      EXPECT_FALSE(refutation) << *refutation;
    }
  }
}

std::vector<std::string> schedules_of(Operation operation) {
  std::vector<std::string> names = algorithm_names(operation);
  std::erase(names, "mpi");
  return names;
}

// Any algorithm within nodes with any between them.
TEST(Hierarchical, EveryCompositionIsRight) {
  for (const std::string& scatters : schedules_of(Operation::reduce_scatter)) {
    for (const std::string& between : schedules_of(Operation::all_reduce)) {
      for (const std::string& gathers : schedules_of(Operation::all_gather)) {
        for (const int nodes : {1, 2, 3, 4}) {
          const Algorithm algorithm = hierarchical_all_reduce(nodes, scatters, between, gathers);
          for (int ranks = nodes; ranks <= 12; ranks += nodes) {
            const auto refutation = refute(algorithm, ranks);
            EXPECT_FALSE(refutation) << *refutation;
          }
        }
      }
    }
  }
}

TEST(Hierarchical, RefusesRanksThatNodesDoNotDivide) {
  const Algorithm algorithm = hierarchical_all_reduce(4, "ring", "tree", "bruck");
  EXPECT_EQ(algorithm.name, "hierarchical:4:ring:tree:bruck");
  EXPECT_EQ(algorithm.refuses(8), "");
  EXPECT_EQ(algorithm.refuses(6), "4 nodes do not divide them");
  EXPECT_FALSE(refute(algorithm, 6));  // nothing to prove
  EXPECT_THROW(hierarchical_all_reduce(2, "tree", "tree", "ring"), UsageError);
}

TEST(Hierarchical, IsComposedByName) {
  const std::string name = "hierarchical:3:pairwise:direct:bruck";
  const Algorithm& composed = find_or_compose(Operation::all_reduce, name);
  EXPECT_EQ(composed.name, name);
  EXPECT_EQ(&find_or_compose(Operation::all_reduce, name), &composed);
  EXPECT_EQ(find_or_compose(Operation::all_reduce, "ring").name, "ring");
  for (const char* wrong :
       {"hierarchical:", "hierarchical:2", "hierarchical:x:ring:ring:ring",
        "hierarchical:0:ring:ring:ring", "hierarchical:2:ring:ring:ring:ring"}) {
    expect_error<UsageError>([&] { find_or_compose(Operation::all_reduce, wrong); },
                             {wrong, "hierarchical:NODES:"});
  }
  expect_error<UsageError>(
      [] { find_or_compose(Operation::all_reduce, "hierarchical:2:rign:ring:ring"); },
      {"rign", "reduce_scatter", "did you mean ring?"});
}

// The papers' figures for 8 ranks: for the ring all-reduce, for example, 14 steps in which each
// rank sends 2 (P - 1) / P of the buffer (Patarasuk and Yuan).
TEST(Proof, ClosedFormsAreTheLiteratures) {
  const auto figures = [](Operation operation, const char* name) {
    const Algorithm& algorithm = find_algorithm(operation, name);
    return std::pair(algorithm.steps.value(8, 1000), algorithm.elements_sent.value(8, 1000));
  };
  using Figures = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(figures(Operation::all_reduce, "ring"), Figures(14, 14'000));
  EXPECT_EQ(figures(Operation::all_reduce, "recursive_doubling"), Figures(3, 24'000));
  EXPECT_EQ(figures(Operation::all_reduce, "halving_doubling"), Figures(6, 14'000));
  EXPECT_EQ(figures(Operation::all_reduce, "tree"), Figures(6, 14'000));
  EXPECT_EQ(figures(Operation::reduce_scatter, "recursive_halving"), Figures(3, 7'000));
  EXPECT_EQ(figures(Operation::all_gather, "bruck"), Figures(3, 7'000));
  EXPECT_EQ(figures(Operation::broadcast, "tree"), Figures(3, 7'000));
  EXPECT_EQ(figures(Operation::broadcast, "scatter_all_gather"), Figures(10, 8'500));
  EXPECT_EQ(figures(Operation::all_to_all, "bruck"), Figures(3, 12'000));  // P / 2 log2 P blocks
}

// --- Planted faults ------------------------------------------------------------------------------

using Emit = std::function<Schedule(int rank)>;

std::string refutation_of(Operation operation, int ranks, const Emit& emit,
                          const ProofOptions& options = {}) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < ranks; ++rank) {
    schedules.push_back(emit(rank));
  }
  return refute(operation, schedules, options).value_or("proved");
}

// The ring's schedules, with one step of one rank changed by `edit`.
Emit ring_with(Operation operation, int ranks, int edited_rank, int edited_step,
               const std::function<void(std::vector<Action>&)>& edit) {
  return [=](int rank) {
    const Schedule ring = find_algorithm(operation, "ring").emit(rank, ranks, 0);
    Schedule result(ring.chunks());
    for (int step = 0; step < static_cast<int>(ring.steps().size()); ++step) {
      std::vector<Action> actions = ring.steps()[step].actions;
      if (rank == edited_rank && step == edited_step) {
        edit(actions);
      }
      result.begin_step();
      for (const Action& action : actions) {
        if (action.verb == Verb::send) {
          result.send(action.peer, action.chunk);
        } else if (action.verb == Verb::receive) {
          result.receive(action.peer, action.chunk);
        } else {
          result.receive_reduce(action.peer, action.chunk);
        }
      }
    }
    return result;
  };
}

TEST(PlantedFault, NoneLeavesTheRingRight) {
  EXPECT_EQ(refutation_of(Operation::all_reduce, 4,
                          ring_with(Operation::all_reduce, 4, -1, -1, [](auto&) {})),
            "proved");
}

TEST(PlantedFault, MissingReceive) {
  // Rank 2 forgets the last receive, chunk 3 from rank 1.
  EXPECT_EQ(refutation_of(Operation::all_gather, 4,
                          ring_with(Operation::all_gather, 4, 2, 2,
                                    [](std::vector<Action>& actions) { actions.pop_back(); })),
            "rank 1, step 2, send of chunk 3 to rank 2: never matched, rank 2 has ended");
}

TEST(PlantedFault, WrongChunk) {
  EXPECT_EQ(
      refutation_of(Operation::all_reduce, 4,
                    ring_with(Operation::all_reduce, 4, 3, 1,
                              [](std::vector<Action>& actions) { actions[1].chunk = 2; })),
      "rank 3, step 1, receive_reduce of chunk 2 from rank 2: the message is chunk 0, sent in step "
      "1 of rank 2");
}

TEST(PlantedFault, ChunkThatDoesNotExist) {
  EXPECT_EQ(refutation_of(Operation::all_reduce, 4,
                          ring_with(Operation::all_reduce, 4, 1, 5,
                                    [](std::vector<Action>& actions) { actions[0].chunk = 4; })),
            "rank 1, step 5, send of chunk 4 to rank 2: there are chunks 0 to 3");
}

TEST(PlantedFault, WrongPeer) {
  EXPECT_EQ(refutation_of(Operation::all_reduce, 4,
                          ring_with(Operation::all_reduce, 4, 1, 0,
                                    [](std::vector<Action>& actions) { actions[0].peer = 3; })),
            "deadlock, each waits for the next: rank 1 in step 0 with send of chunk 0 for rank 3, "
            "rank 3 in step 1 with receive_reduce of chunk 0 for rank 2, rank 2 in step 0 with "
            "receive_reduce of chunk 0 for rank 1");
}

TEST(PlantedFault, PeerOutsideTheWorld) {
  EXPECT_EQ(refutation_of(Operation::all_reduce, 4,
                          ring_with(Operation::all_reduce, 4, 3, 2,
                                    [](std::vector<Action>& actions) { actions[0].peer = 4; })),
            "rank 3, step 2, send of chunk 0 to rank 4: that is no other rank of this world");
}

TEST(PlantedFault, ReducesTwice) {
  // Both ranks reduce the same chunk twice: the second time brings back what was sent.
  EXPECT_EQ(refutation_of(Operation::all_reduce, 2,
                          [](int rank) {
                            Schedule schedule(2);
                            for (int step = 0; step < 2; ++step) {
                              schedule.begin_step();
                              schedule.send(1 - rank, (rank + 1 + step) % 2);
                              schedule.receive_reduce(1 - rank, (rank + step) % 2);
                            }
                            return schedule;
                          }),
            "rank 0, step 1, receive_reduce of chunk 1 from rank 1: adds a second time the "
            "contributions of {0}");
}

TEST(PlantedFault, OverwritesInsteadOfReducing) {
  EXPECT_EQ(refutation_of(
                Operation::reduce_scatter, 3,
                ring_with(Operation::reduce_scatter, 3, 1, 1,
                          [](std::vector<Action>& actions) { actions[1].verb = Verb::receive; })),
            "rank 1, after its last step 1, chunk 1: holds the contributions of {0, 2}, "
            "reduce_scatter promises the contributions of {0, 1, 2}");
}

TEST(PlantedFault, UnbufferedCircle) {
  // Everybody sends first and receives in the next step: right only where sends are buffered.
  EXPECT_EQ(refutation_of(Operation::all_gather, 3,
                          [](int rank) {
                            Schedule schedule(3);
                            for (int s = 0; s < 2; ++s) {
                              schedule.begin_step();
                              schedule.send((rank + 1) % 3, (rank - s + 3) % 3);
                              schedule.begin_step();
                              schedule.receive((rank + 2) % 3, (rank - s + 2) % 3);
                            }
                            return schedule;
                          }),
            "deadlock, each waits for the next: rank 0 in step 0 with send of chunk 0 for rank 1, "
            "rank 1 in step 0 with send of chunk 1 for rank 2, rank 2 in step 0 with send of chunk "
            "2 for rank 0");
}

TEST(PlantedFault, StopsEarly) {
  // Every rank leaves out the last step, so that every message is still matched.
  EXPECT_EQ(refutation_of(Operation::all_gather, 3,
                          [](int rank) {
                            Schedule schedule(3);
                            schedule.begin_step();
                            schedule.send((rank + 1) % 3, rank);
                            schedule.receive((rank + 2) % 3, (rank + 2) % 3);
                            return schedule;
                          }),
            "rank 0, after its last step 0, chunk 1: holds nothing, all_gather promises the "
            "contributions of {1}");
}

TEST(PlantedFault, SendsWhatIsNotThereYet) {
  EXPECT_EQ(refutation_of(Operation::all_gather, 4,
                          ring_with(Operation::all_gather, 4, 0, 0,
                                    [](std::vector<Action>& actions) { actions[0].chunk = 2; })),
            "rank 0, step 0, send of chunk 2 to rank 1: the chunk holds nothing yet");
}

TEST(PlantedFault, ReadsAndWritesAChunkInOneStep) {
  EXPECT_EQ(refutation_of(Operation::broadcast, 2,
                          [](int rank) {
                            Schedule schedule(1);
                            schedule.begin_step();
                            schedule.send(1 - rank, 0);
                            schedule.receive(1 - rank, 0);
                            return schedule;
                          }),
            "rank 0, step 0, receive of chunk 0 from rank 1: another action of the same step uses "
            "the chunk it writes");
}

TEST(PlantedFault, RanksCutTheBufferDifferently) {
  EXPECT_EQ(refutation_of(Operation::all_reduce, 2, [](int rank) { return Schedule(2 + rank); }),
            "rank 1 cuts the buffer into 3 chunks, rank 0 into 2");
}

TEST(PlantedFault, AChunkThatIsSentToTheWrongPlace) {
  // Both ranks give what is for themselves away and keep what is for the other.
  EXPECT_EQ(refutation_of(Operation::all_to_all, 2,
                          [](int rank) {
                            Schedule schedule(4);
                            schedule.begin_step();
                            schedule.copy(2 + rank, 1 - rank);
                            schedule.send(1 - rank, rank);
                            schedule.receive(1 - rank, 3 - rank);
                            return schedule;
                          },
                          {.equal_chunks = true}),
            "rank 0, after its last step 0, chunk 2: holds part 1 of the data, all_to_all promises "
            "part 0");
}

TEST(PlantedFault, ChunksOfTwoLengths) {
  EXPECT_EQ(refutation_of(Operation::all_reduce, 1,
                          [](int) {
                            Schedule schedule(2);
                            schedule.begin_step();
                            schedule.copy(0, 1);
                            return schedule;
                          }),
            "rank 0, step 0, copy of chunk 0 from chunk 1: they are not of one length");
}

TEST(PlantedFault, AddsOnePartToAnother) {
  EXPECT_EQ(refutation_of(Operation::all_reduce, 1,
                          [](int) {
                            Schedule schedule(2);
                            schedule.begin_step();
                            schedule.reduce(0, 1);
                            return schedule;
                          },
                          {.equal_chunks = true}),
            "rank 0, step 0, reduce of chunk 0 with chunk 1: adds part 1 of the data to part 0");
}

TEST(PlantedFault, ReadsScratchThatHoldsNothing) {
  EXPECT_EQ(refutation_of(Operation::all_reduce, 1,
                          [](int) {
                            Schedule schedule(1);
                            const int scratch = schedule.add_scratch(0);
                            schedule.begin_step();
                            schedule.reduce(0, scratch);
                            return schedule;
                          }),
            "rank 0, step 0, reduce of chunk 0 with chunk 1: chunk 1 holds nothing yet");
}

TEST(PlantedFault, ScratchAsLongAsNothing) {
  EXPECT_EQ(refutation_of(Operation::all_reduce, 1,
                          [](int) {
                            Schedule schedule(1);
                            schedule.add_scratch(1);
                            return schedule;
                          }),
            "rank 0: scratch as long as chunk 1; there are chunks 0 to 0");
}

TEST(PlantedFault, AMessageOfTwoChunksIsReceivedAsTwo) {
  EXPECT_EQ(
      refutation_of(Operation::broadcast, 2,
                    [](int rank) {
                      Schedule schedule(2);
                      schedule.begin_step();
                      if (rank == 0) {
                        schedule.send(1, 0);
                        schedule.send(1, 1);
                      } else {
                        schedule.receive(0, 0);
                        schedule.begin_step();
                        schedule.receive(0, 1);
                      }
                      return schedule;
                    }),
      "rank 1, step 0, receive of chunk 0 from rank 0: this step receives 1 chunks, step 0 of "
      "rank 0 sends 2");
}

// Every rank adds what it gets behind its own: right in exact arithmetic, but not the same bits.
TEST(PlantedFault, RanksAddInOrdersOfTheirOwn) {
  EXPECT_EQ(refutation_of(Operation::all_reduce, 2,
                          [](int rank) {
                            Schedule schedule(1);
                            const int other = schedule.add_scratch(0);
                            schedule.begin_step();
                            schedule.send(1 - rank, 0);
                            schedule.receive(1 - rank, other);
                            schedule.begin_step();
                            schedule.reduce(0, other);
                            return schedule;
                          }),
            "rank 1, after its last step 1, chunk 0: adds (1 + 0), rank 0 adds (0 + 1): their bits "
            "may differ");
}

TEST(PlantedFault, ClaimsTheOrderOfTheRanks) {
  Algorithm wrong = find_algorithm(Operation::all_reduce, "ring");
  wrong.rank_order = true;
  EXPECT_EQ(refute(wrong, 3).value_or("proved"),
            "ring all_reduce over 3 ranks, root 0: rank 0, after its last step 3, chunk 0: adds "
            "(0 + (2 + 1)), not in the order of the ranks");
}

TEST(PlantedFault, ABarrierThatDoesNotHearFromAll) {
  EXPECT_EQ(refutation_of(Operation::barrier, 3,
                          [](int rank) {
                            Schedule schedule(1);
                            const int heard = schedule.add_scratch(0);
                            schedule.begin_step();
                            schedule.send((rank + 1) % 3, 0);
                            schedule.receive((rank + 2) % 3, heard);
                            schedule.begin_step();
                            schedule.reduce(0, heard);
                            return schedule;
                          }),
            "rank 0, after its last step 1, chunk 0: holds the contributions of {0, 2}, barrier "
            "promises the contributions of {0, 1, 2}");
}

// Rank 1 reads rank 0's chunk where it is, once rank 2 has sent, too; rank 2 sends that when rank 0
// has taken its first message; and rank 0 takes it where rank 1 reads.
TEST(PlantedFault, WaitsForALentChunkInACircle) {
  const auto refutation = refutation_of(Operation::barrier, 3, [](int rank) {
    Schedule schedule(1);
    if (rank == 0) {
      schedule.begin_step();
      schedule.send(1, 0);
      schedule.begin_step();
      schedule.receive_reduce(2, 0);
    } else if (rank == 1) {
      const int from_0 = schedule.add_scratch(0);
      const int from_2 = schedule.add_scratch(0);
      schedule.begin_step();
      schedule.receive(0, from_0);
      schedule.receive(2, from_2);
      schedule.begin_step();
      schedule.reduce(0, from_0);
      schedule.reduce(0, from_2);
    } else {
      schedule.begin_step();
      schedule.send(0, 0);
      schedule.begin_step();
      schedule.send(1, 0);
    }
    return schedule;
  });
  EXPECT_NE(refutation.find("deadlock"), std::string::npos) << refutation;
  EXPECT_NE(refutation.find("rank 0 in step 1 before it writes to chunk 0, which it has lent, for "
                            "rank 1"),
            std::string::npos)
      << refutation;
}

TEST(PlantedFault, AnyRootIsProved) {
  Algorithm wrong = find_algorithm(Operation::broadcast, "tree");
  const auto right = wrong.emit;
  wrong.emit = [right](int rank, int ranks, int root) {
    return right(rank, ranks, root == 2 ? 1 : root);
  };
  EXPECT_EQ(refute(wrong, 3).value_or("proved"),
            "tree broadcast over 3 ranks, root 2: rank 1, step 0, send of chunk 0 to rank 0: the "
            "chunk holds nothing yet");
}

TEST(PlantedFault, WrongClosedForms) {
  Algorithm wrong = find_algorithm(Operation::reduce_scatter, "ring");
  wrong.steps.value = [](std::int64_t ranks, std::int64_t) { return ranks; };
  EXPECT_EQ(refute(wrong, 5).value_or("proved"),
            "ring reduce_scatter over 5 ranks, root 0: 4 steps, the closed form says 5");

  wrong = find_algorithm(Operation::reduce_scatter, "ring");
  wrong.elements_sent.value = [](std::int64_t ranks, std::int64_t count) {
    return ranks * ((ranks - 1) * count / ranks);  // as if every chunk were as long as the shortest
  };
  EXPECT_EQ(refute(wrong, 5).value_or("proved"),
            "ring reduce_scatter over 5 ranks, root 0: 4 elements sent for a buffer of 1, the "
            "closed form says 0");
}

// --- The trace -----------------------------------------------------------------------------------

TEST(Trace, ShowsWhatEverybodyHoldsAfterEveryStep) {
  const Algorithm& ring = find_algorithm(Operation::reduce_scatter, "ring");
  const std::vector<Contents> history = trace(ring.operation, emit_all(ring, 4, 0));
  ASSERT_EQ(history.size(), 4u);  // before, and after each of three steps
  EXPECT_EQ(history[0][2][0].contributors, Contributors(0b0100));
  EXPECT_EQ(history[1][2][0].contributors, Contributors(0b0110));
  EXPECT_EQ(history[2][3][0].contributors, Contributors(0b1110));
  EXPECT_EQ(history[3][0][0].contributors, Contributors(0b1111));
  EXPECT_EQ(history[3][2][0].contributors, Contributors(0b0110));  // as it was passed on
}

TEST(Trace, OfWrongSchedulesIsRefused) {
  const std::vector<Schedule> nothing(2, Schedule(1));
  expect_error<std::invalid_argument>([&] { trace(Operation::all_reduce, nothing); },
                                      {"rank 0", "promises the contributions of {0, 1}"});
}

}  // namespace
}  // namespace ringworld
