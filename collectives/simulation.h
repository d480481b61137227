// All ranks' schedules run at once on symbolic chunks: the body of the proof (proof.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "collectives/expressions.h"
#include "collectives/promises.h"
#include "collectives/proof.h"

namespace ringworld {

inline std::string to_string(const Contributors& contributors) {
  std::string text;
  for (int rank = 0; rank < max_proved_ranks; ++rank) {
    if (contributors[rank]) {
      text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
    }
  }
  return text.empty() ? "nothing" : "the contributions of {" + text + "}";
}

// A message, or the place for one: the actions of one step with one peer.
struct Posted {
  int step = 0;
  std::vector<Action> actions = {};
  std::int64_t time = 0;           // steps that were over when it was posted
  std::vector<Content> sent = {};  // what a send carries
};

// Messages from one rank to another. One of the two queues is always empty.
struct Channel {
  std::deque<Posted> sends;
  std::deque<Posted> receives;
};

// Thrown inside, returned by refute.
struct Refutation {
  std::string text;
};

[[noreturn]] inline void refuted(int rank, int step, const Action& action,
                                 const std::string& what) {
  throw Refutation{fmt::format("rank {}, step {}, {} of chunk {} {} rank {}: {}", rank, step,
                               name_of(action.verb), action.chunk,
                               action.verb == Verb::send ? "to" : "from", action.peer, what)};
}

[[noreturn]] inline void refuted(int rank, int step, const LocalAction& action,
                                 const std::string& what) {
  throw Refutation{fmt::format("rank {}, step {}, {} of chunk {} {} chunk {}: {}", rank, step,
                               name_of(action.verb), action.chunk,
                               action.verb == Verb::copy ? "from" : "with", action.source, what)};
}

// All ranks at once. Sends are not buffered: a step is over when each of its messages has met its
// counterpart in a posted step of the peer. Where the peer borrows what was sent
// (Schedule::borrowed) the sender goes on, but does not write there before the peer's next step has
// read it.
class Simulation {
 public:
  Simulation(Operation operation, const std::vector<Schedule>& schedules,
             const ProofOptions& options, bool keeps_history = false)
      : schedules_(schedules),
        ranks_(static_cast<int>(schedules.size())),
        promises_{operation, ranks_, options.root},
        options_(options),
        keeps_history_(keeps_history),
        states_(schedules.size()),
        channels_(schedules.size() * schedules.size()) {}

  void run() {
    check_form();
    for (const Schedule& schedule : schedules_) {
      borrowed_.push_back(schedule.borrowed());
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      State& state = states_[rank];
      state.chunks.resize(static_cast<std::size_t>(schedules_[rank].chunks()));
      state.lent.resize(state.chunks.size());
      for (int chunk = 0; chunk < schedules_[rank].data_chunks(); ++chunk) {
        if (promises_.given(rank, chunk)) {
          state.chunks[chunk] = {promises_.part(rank, chunk), Contributors().set(rank),
                                 expressions_.leaf(rank)};
        }
      }
      if (keeps_history_) {
        initial_.push_back(state.chunks);
      }
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      post(rank);
    }
    while (!ready_.empty()) {
      const auto [from, to] = ready_.front();
      ready_.pop_front();
      match(from, to);
    }
    check_finished();
    check_promise();
  }

  // After run: how many steps follow one another on the longest path.
  std::int64_t steps() const {
    std::int64_t longest = 0;
    for (const State& state : states_) {
      longest = std::max(longest, state.time);
    }
    return longest;
  }

  // After run, when the simulation keeps its history.
  std::vector<Contents> history() {
    std::ranges::stable_sort(writes_, {}, &Write::time);
    std::vector<Contents> history = {initial_};
    for (const Write& write : writes_) {
      while (static_cast<std::int64_t>(history.size()) <= write.time) {
        history.push_back(history.back());
      }
      history.back()[write.rank][write.chunk] = write.content;
    }
    return history;
  }

 private:
  struct State {
    std::vector<Content> chunks = {};
    std::vector<std::pair<int, int>> borrowed = {};  // what is to be read next: rank and chunk
    std::vector<int> lent = {};                      // by chunk: to how many ranks
    bool posting = false;
    bool acted = false;     // the current step's local actions are done, its messages not posted
    int step = 0;           // the current one
    int unmatched = 0;      // messages of the current step
    std::int64_t time = 0;  // steps that are over on the longest path to the current one
    std::int64_t step_time = 0;  // the same, at the end of the current one
  };

  struct Write {
    std::int64_t time;
    int rank;
    int chunk;
    Content content;
  };

  // --- What can be seen in one rank's schedule alone ---------------------------------------------

  void check_form() const {
    const int chunks = schedules_[0].data_chunks();
    for (int rank = 0; rank < ranks_; ++rank) {
      const Schedule& schedule = schedules_[rank];
      if (schedule.data_chunks() != chunks) {
        throw Refutation{fmt::format("rank {} cuts the buffer into {} chunks, rank 0 into {}", rank,
                                     schedule.data_chunks(), chunks)};
      }
      const int demanded = demanded_chunks(promises_.operation, ranks_);
      if (demanded != 0 && chunks != demanded) {
        throw Refutation{
            fmt::format("rank {} cuts the buffer into {} chunks, {} over {} ranks "
                        "needs {}",
                        rank, chunks, name_of(promises_.operation), ranks_, demanded)};
      }
      for (const int as_long_as : schedule.scratch()) {
        if (as_long_as < 0 || as_long_as >= chunks) {
          throw Refutation{
              fmt::format("rank {}: scratch as long as chunk {}; there are chunks 0 "
                          "to {}",
                          rank, as_long_as, chunks - 1)};
        }
      }
      for (int step = 0; step < length(rank); ++step) {
        check_step(rank, step);
      }
    }
  }

  void check_step(int rank, int step) const {
    const int chunks = schedules_[rank].chunks();
    const Step& content = schedules_[rank].steps()[step];
    const auto there_are = [&] { return fmt::format("there are chunks 0 to {}", chunks - 1); };
    for (const LocalAction& action : content.local) {
      if (action.chunk < 0 || action.chunk >= chunks || action.source < 0 ||
          action.source >= chunks) {
        refuted(rank, step, action, there_are());
      }
      if (length_of(rank, action.chunk) != length_of(rank, action.source)) {
        refuted(rank, step, action, "they are not of one length");
      }
    }
    std::vector<int> uses(static_cast<std::size_t>(chunks));
    for (const Action& action : content.actions) {
      if (action.chunk < 0 || action.chunk >= chunks) {
        refuted(rank, step, action, there_are());
      }
      if (action.peer < 0 || action.peer >= ranks_ || action.peer == rank) {
        refuted(rank, step, action, "that is no other rank of this world");
      }
      ++uses[action.chunk];
    }
    for (const Action& action : content.actions) {
      if (action.verb != Verb::send && uses[action.chunk] > 1) {
        refuted(rank, step, action, "another action of the same step uses the chunk it writes");
      }
    }
  }

  int length(int rank) const { return static_cast<int>(schedules_[rank].steps().size()); }

  // Which length a chunk has: chunks whose lengths need not be equal have different ones.
  int length_of(int rank, int chunk) const {
    if (options_.equal_chunks) {
      return 0;
    }
    const Schedule& schedule = schedules_[rank];
    const int data = schedule.data_chunks();
    return promises_.part(rank, chunk < data ? chunk : schedule.scratch()[chunk - data]);
  }

  // --- What happens between them -----------------------------------------------------------------

  Channel& channel(int from, int to) {
    return channels_[static_cast<std::size_t>(from * ranks_ + to)];
  }
  const Channel& channel(int from, int to) const {
    return channels_[static_cast<std::size_t>(from * ranks_ + to)];
  }

  // Posts the rank's current step, if there is one left, and those after it that have no messages;
  // as far as it does not write to what it has lent.
  void post(int rank) {
    State& state = states_[rank];
    if (!state.posting) {  // else it looks at what has come free anyway
      state.posting = true;
      post_steps(rank);
      state.posting = false;
    }
  }

  void post_steps(int rank) {
    State& state = states_[rank];
    for (; state.step < length(rank); ++state.step) {
      const Step& step = schedules_[rank].steps()[state.step];
      if (!state.acted) {
        if (std::ranges::any_of(step.local, [&](const LocalAction& action) {
              return state.lent[action.chunk] > 0;
            })) {
          return;
        }
        for (const LocalAction& action : step.local) {
          act(rank, action);
        }
        state.acted = true;
        give_back(rank);
      }
      if (std::ranges::any_of(step.actions, [&](const Action& action) {
            return action.verb != Verb::send && state.lent[action.chunk] > 0;
          })) {
        return;
      }
      state.acted = false;
      if (!step.actions.empty()) {
        post_messages(rank, step);
        return;
      }
    }
    give_back(rank);
  }

  // What the rank borrowed in its last step is read; the lenders may have waited for that.
  void give_back(int rank) {
    for (const auto& [lender, chunk] : std::exchange(states_[rank].borrowed, {})) {
      State& state = states_[lender];
      --state.lent[chunk];
      if (state.unmatched == 0 && state.step < length(lender)) {
        post(lender);
      }
    }
  }

  void act(int rank, const LocalAction& action) {
    State& state = states_[rank];
    const Content& source = state.chunks[action.source];
    if (!source.defined()) {
      refuted(rank, state.step, action, fmt::format("chunk {} holds nothing yet", action.source));
    }
    const Content result =
        action.verb == Verb::copy
            ? source
            : reduced(state.chunks[action.chunk], source,
                      [&](const std::string& what) { refuted(rank, state.step, action, what); });
    write(rank, action.chunk, state.time, result);
  }

  void post_messages(int rank, const Step& step) {
    State& state = states_[rank];
    state.unmatched = 0;
    state.step_time = state.time;
    std::vector<std::pair<int, int>> touched;  // ends of channels that got one of this step
    for (const Action& action : step.actions) {
      const bool sends = action.verb == Verb::send;
      const std::pair ends = sends ? std::pair(rank, action.peer) : std::pair(action.peer, rank);
      Channel& between = channel(ends.first, ends.second);
      std::deque<Posted>& queue = sends ? between.sends : between.receives;
      if (std::ranges::find(touched, ends) == touched.end()) {
        touched.push_back(ends);
        queue.push_back({.step = state.step, .time = state.time});
        ready_.push_back(ends);
        ++state.unmatched;
      }
      queue.back().actions.push_back(action);
      if (sends) {
        if (!state.chunks[action.chunk].defined()) {
          refuted(rank, state.step, action, "the chunk holds nothing yet");
        }
        queue.back().sent.push_back(state.chunks[action.chunk]);
      }
    }
  }

  // Lets the oldest send and the oldest receive between two ranks meet, if there are both.
  void match(int from, int to) {
    Channel& between = channel(from, to);
    if (between.sends.empty() || between.receives.empty()) {
      return;
    }
    const Posted send = std::move(between.sends.front());
    const Posted receive = std::move(between.receives.front());
    between.sends.pop_front();
    between.receives.pop_front();
    const std::int64_t over = std::max(send.time, receive.time) + 1;
    for (std::size_t i = 0; i < std::min(send.actions.size(), receive.actions.size()); ++i) {
      arrive(from, send, to, receive, i, over);
    }
    if (send.actions.size() != receive.actions.size()) {
      refuted(to, receive.step, receive.actions.front(),
              fmt::format("this step receives {} chunks, step {} of rank {} sends {}",
                          receive.actions.size(), send.step, from, send.actions.size()));
    }
    if (borrowed_[to][receive.actions.front().chunk]) {
      const int chunk = send.actions.front().chunk;
      states_[to].borrowed.emplace_back(from, chunk);
      ++states_[from].lent[chunk];
    }
    complete_one(from, over);
    complete_one(to, over);
  }

  void arrive(int from, const Posted& send, int to, const Posted& receive, std::size_t i,
              std::int64_t over) {
    const Action& action = receive.actions[i];
    const int sent_chunk = send.actions[i].chunk;
    if (length_of(from, sent_chunk) != length_of(to, action.chunk)) {
      refuted(to, receive.step, action,
              fmt::format("the message is chunk {}, sent in step {} of rank {}", sent_chunk,
                          send.step, from));
    }
    const Content result =
        action.verb == Verb::receive
            ? send.sent[i]
            : reduced(states_[to].chunks[action.chunk], send.sent[i],
                      [&](const std::string& what) { refuted(to, receive.step, action, what); });
    write(to, action.chunk, over, result);
  }

  template <typename Refuse>
  Content reduced(const Content& held, const Content& added, const Refuse& refuse) {
    if (!held.defined()) {
      refuse("the chunk holds nothing to reduce with");
    }
    if (held.part != added.part) {
      refuse(fmt::format("adds part {} of the data to part {}", added.part, held.part));
    }
    if (promises_.idempotent()) {
      return {held.part, held.contributors | added.contributors, held.expression};
    }
    if ((held.contributors & added.contributors).any()) {
      refuse("adds a second time " + to_string(held.contributors & added.contributors));
    }
    return {held.part, held.contributors | added.contributors,
            expressions_.combined(held.expression, added.expression)};
  }

  void write(int rank, int chunk, std::int64_t time, const Content& content) {
    states_[rank].chunks[chunk] = content;
    if (keeps_history_) {
      writes_.push_back({time, rank, chunk, content});
    }
  }

  void complete_one(int rank, std::int64_t over) {
    State& state = states_[rank];
    state.step_time = std::max(state.step_time, over);
    if (--state.unmatched == 0) {
      state.time = state.step_time;
      ++state.step;
      post(rank);
    }
  }

  // --- What must hold at the end -----------------------------------------------------------------

  // What a rank waits for: a peer's half of a message, or that it gives back a chunk.
  struct Wait {
    int peer;
    std::string what;
    const Posted* posted;  // nullptr for a chunk
  };

  Wait wait_of(int rank) const {
    const auto for_message = [&](const Posted& posted) {
      const Action& action = posted.actions.front();
      return Wait{action.peer,
                  fmt::format("rank {} in step {} with {} of chunk {} for rank {}", rank,
                              posted.step, name_of(action.verb), action.chunk, action.peer),
                  &posted};
    };
    for (int peer = 0; peer < ranks_; ++peer) {
      if (!channel(rank, peer).sends.empty()) {
        return for_message(channel(rank, peer).sends.front());
      }
      if (!channel(peer, rank).receives.empty()) {
        return for_message(channel(peer, rank).receives.front());
      }
    }
    for (int peer = 0; peer < ranks_; ++peer) {
      for (const auto& [lender, chunk] : states_[peer].borrowed) {
        if (lender == rank) {
          return {peer,
                  fmt::format("rank {} in step {} before it writes to chunk {}, which it has lent, "
                              "for rank {}",
                              rank, states_[rank].step, chunk, peer),
                  nullptr};
        }
      }
    }
    throw std::logic_error("refute: a rank neither waits nor is at its end");
  }

  // Follows who waits for whom, from a rank that is not at its end: to a rank that is, or around.
  void check_finished() const {
    int rank = 0;
    while (rank < ranks_ && states_[rank].step == length(rank)) {
      ++rank;
    }
    if (rank == ranks_) {
      return;
    }
    std::vector<int> path;
    while (std::ranges::find(path, rank) == path.end()) {
      path.push_back(rank);
      const Wait wait = wait_of(rank);
      if (states_[wait.peer].step == length(wait.peer)) {
        refuted(rank, wait.posted->step, wait.posted->actions.front(),
                fmt::format("never matched, rank {} has ended", wait.peer));
      }
      rank = wait.peer;
    }
    path.erase(path.begin(), std::ranges::find(path, rank));
    std::string circle;
    for (const int member : path) {
      circle += fmt::format("{}{}", circle.empty() ? "" : ", ", wait_of(member).what);
    }
    throw Refutation{"deadlock, each waits for the next: " + circle};
  }

  void check_promise() {
    std::map<int, std::pair<int, int>> first;  // by part: the first rank, and its expression
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int chunk = 0; chunk < schedules_[rank].data_chunks(); ++chunk) {
        const Content& held = states_[rank].chunks[chunk];
        const auto wanted = promises_.promised(rank, chunk);
        if (!wanted) {
          continue;
        }
        const auto where = [&] {
          return fmt::format("rank {}, after its last step {}, chunk {}: ", rank, length(rank) - 1,
                             chunk);
        };
        if (held.contributors != *wanted) {
          throw Refutation{where() + fmt::format("holds {}, {} promises {}",
                                                 to_string(held.contributors),
                                                 name_of(promises_.operation), to_string(*wanted))};
        }
        if (held.part != promises_.part(rank, chunk)) {
          throw Refutation{where() + fmt::format("holds part {} of the data, {} promises part {}",
                                                 held.part, name_of(promises_.operation),
                                                 promises_.part(rank, chunk))};
        }
        check_expression(held, first.try_emplace(held.part, rank, held.expression).first->second,
                         where);
      }
    }
  }

  template <typename Where>
  void check_expression(const Content& held, const std::pair<int, int>& first, const Where& where) {
    if (held.expression != first.second && !promises_.idempotent()) {
      throw Refutation{where() + fmt::format("adds {}, rank {} adds {}: their bits may differ",
                                             expressions_.to_string(held.expression), first.first,
                                             expressions_.to_string(first.second))};
    }
    if (options_.rank_order && !expressions_.is_in_rank_order(held.expression, ranks_)) {
      throw Refutation{where() + fmt::format("adds {}, not in the order of the ranks",
                                             expressions_.to_string(held.expression))};
    }
  }

  const std::vector<Schedule>& schedules_;
  const int ranks_;
  const Promises promises_;
  const ProofOptions options_;
  const bool keeps_history_;
  std::vector<std::vector<bool>> borrowed_;  // by rank and chunk
  Expressions expressions_;
  Contents initial_;
  std::vector<State> states_;
  std::vector<Channel> channels_;          // by sender and receiver
  std::deque<std::pair<int, int>> ready_;  // channels where something was posted
  std::vector<Write> writes_;
};

}  // namespace ringworld
