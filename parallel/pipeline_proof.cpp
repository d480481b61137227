#include "parallel/pipeline_proof.h"

#include <algorithm>
#include <deque>
#include <map>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace ringworld {
namespace {

struct Refutation {
  std::string text;
};

// --- What one stage does by itself --------------------------------------------------------------

struct Done {
  bool forward = false;
  bool input = false;
  bool weight = false;
};

// What a stage has done so far, and whether the next action may follow.
class StageOrder {
 public:
  StageOrder(const PipelineSchedule& schedule, const PipelineChain& chain, int stage)
      : schedule_(schedule),
        chain_(chain),
        stage_(stage),
        done_(static_cast<std::size_t>(schedule.shape.chunks * schedule.shape.micro_batches)) {}

  // Throws Refutation.
  PipelinePeak check() {
    for (const PipelineAction& action : schedule_.actions[stage_]) {
      check_range(action);
      check_local_input(action);
      run(action);
      peak_.held = std::max(peak_.held, whole_ + for_weights_);
      peak_.whole = std::max(peak_.whole, whole_);
      finish(action);
    }
    for (int chunk = 0; chunk < schedule_.shape.chunks; ++chunk) {
      for (int i = 0; i < schedule_.shape.micro_batches; ++i) {
        check_complete(chunk, i);
      }
    }
    return peak_;
  }

 private:
  [[noreturn]] void refused(const PipelineAction& action, const std::string& why) const {
    throw Refutation{fmt::format("{}: {}", describe(schedule_, stage_, action), why)};
  }

  Done& done(int chunk, int micro_batch) {
    return done_[static_cast<std::size_t>(chunk * schedule_.shape.micro_batches + micro_batch)];
  }

  void check_range(const PipelineAction& action) const {
    const auto [stages, micro_batches, chunks] = schedule_.shape;
    if (action.micro_batch < 0 || action.micro_batch >= micro_batches) {
      refused(action, fmt::format("there are micro-batches 0 to {}", micro_batches - 1));
    }
    if (action.chunk < 0 || action.chunk >= chunks) {
      refused(action,
              fmt::format("in chunk {}; there are chunks 0 to {}", action.chunk, chunks - 1));
    }
  }

  // What comes from another chunk of the same stage is no message.
  void check_local_input(const PipelineAction& action) {
    const std::optional<PipelinePlace> source = chain_.source(stage_, action);
    if (!source || source->stage != stage_) {
      return;
    }
    const Done& input = done(source->chunk, action.micro_batch);
    if (action.work == PipelineWork::forward ? !input.forward : !input.input) {
      refused(action, fmt::format("its input, from chunk {} of the same stage, is not there yet",
                                  source->chunk));
    }
  }

  void run(const PipelineAction& action) {
    Done& of = done(action.chunk, action.micro_batch);
    const auto once = [&](bool& flag) {
      if (flag) {
        refused(action, "runs a second time");
      }
      flag = true;
    };
    if (action.work == PipelineWork::forward) {
      once(of.forward);
      ++whole_;
      return;
    }
    if (!of.forward) {
      refused(action, "its forward has not run yet");
    }
    if (action.work != PipelineWork::backward_weight) {
      once(of.input);
    } else if (!of.input) {
      refused(action, "its backward_input has not run yet");
    }
    if (action.work != PipelineWork::backward_input) {
      once(of.weight);
    }
  }

  // What is held while an action runs is let go at its end.
  void finish(const PipelineAction& action) {
    switch (action.work) {
      case PipelineWork::forward:
        break;
      case PipelineWork::backward:
        --whole_;
        break;
      case PipelineWork::backward_input:
        --whole_;
        ++for_weights_;
        break;
      case PipelineWork::backward_weight:
        --for_weights_;
        break;
    }
  }

  void check_complete(int chunk, int micro_batch) {
    const Done& of = done(chunk, micro_batch);
    const auto never = [&](PipelineWork work) {
      refused({work, micro_batch, chunk}, "never runs");
    };
    if (!of.forward) {
      never(PipelineWork::forward);
    }
    if (!of.input) {
      never(of.weight ? PipelineWork::backward_input : PipelineWork::backward);
    }
    if (!of.weight) {
      never(PipelineWork::backward_weight);
    }
  }

  const PipelineSchedule& schedule_;
  const PipelineChain& chain_;
  const int stage_;
  std::vector<Done> done_;  // by chunk and micro-batch
  int whole_ = 0;
  int for_weights_ = 0;
  PipelinePeak peak_;
};

// --- What happens between stages ----------------------------------------------------------------

// Stages that exchange messages until all are at their end, or nobody goes on. Before its action i
// (and after its last one, i being their number) a stage posts what it then sends and receives.
class Exchange {
 public:
  Exchange(const PipelineSchedule& schedule, const PipelineChain& chain, int offered)
      : schedule_(schedule), chain_(chain), offered_(offered), states_(schedule.actions.size()) {}

  // Nothing when all come to their end, else who waits for whom. Throws Refutation where a message
  // meets the wrong one, which no number of offers changes.
  std::optional<std::string> run() {
    for (int stage = 0; stage < schedule_.shape.stages; ++stage) {
      ready_.push_back(stage);
    }
    while (!ready_.empty()) {
      const int stage = ready_.front();
      ready_.pop_front();
      go_on(stage);
    }
    for (int stage = 0; stage < schedule_.shape.stages; ++stage) {
      if (!at_end(stage)) {
        return circle_from(stage);
      }
    }
    return std::nullopt;
  }

 private:
  // A half of a message that waits for the other: whose action's output or input it is.
  struct Posted {
    PipelineAction action;
    int micro_batch;
    int part;  // that the message is for
  };
  struct Channel {
    std::deque<Posted> sends;
    std::deque<Posted> receives;
  };
  struct State {
    std::size_t next = 0;  // action
    bool posted = false;   // what goes before it
    bool waits_for_input = false;
    std::deque<int> offers;  // to which stages outputs are on offer
  };

  bool at_end(int stage) const { return states_[stage].next > schedule_.actions[stage].size(); }

  Channel& channel(int from, int to) { return channels_[{from, to}]; }

  void go_on(int stage) {
    State& state = states_[stage];
    while (!at_end(stage)) {
      if (!state.posted) {
        post(stage);
        state.posted = true;
      }
      if (state.waits_for_input || static_cast<int>(state.offers.size()) > offered_) {
        return;
      }
      ++state.next;
      state.posted = false;
    }
  }

  void post(int stage) {
    const std::vector<PipelineAction>& actions = schedule_.actions[stage];
    State& state = states_[stage];
    if (state.next > 0) {
      const PipelineAction& action = actions[state.next - 1];
      const std::optional<PipelinePlace> to = chain_.destination(stage, action);
      if (to && to->stage != stage) {
        channel(stage, to->stage)
            .sends.push_back({action, action.micro_batch, chain_.part(to->stage, to->chunk)});
        state.offers.push_back(to->stage);
        match(stage, to->stage);
      }
    }
    if (state.next < actions.size()) {
      const PipelineAction& action = actions[state.next];
      const std::optional<PipelinePlace> from = chain_.source(stage, action);
      if (from && from->stage != stage) {
        channel(from->stage, stage)
            .receives.push_back({action, action.micro_batch, chain_.part(stage, action.chunk)});
        state.waits_for_input = true;
        match(from->stage, stage);
      }
    }
  }

  // Lets the oldest send and the oldest receive between two stages meet, if there are both. More
  // than one pair there cannot be: a stage has one receive at a time.
  void match(int from, int to) {
    Channel& between = channel(from, to);
    if (between.sends.empty() || between.receives.empty()) {
      return;
    }
    const Posted sent = between.sends.front();
    const Posted received = between.receives.front();
    const bool alike = (sent.action.work == PipelineWork::forward) ==
                           (received.action.work == PipelineWork::forward) &&
                       sent.micro_batch == received.micro_batch && sent.part == received.part;
    if (!alike) {
      throw Refutation{fmt::format("{}: would receive the output of {}, which was sent first",
                                   describe(schedule_, to, received.action),
                                   describe(schedule_, from, sent.action))};
    }
    between.sends.pop_front();
    between.receives.pop_front();
    std::deque<int>& offers = states_[from].offers;
    offers.erase(std::ranges::find(offers, to));
    states_[to].waits_for_input = false;
    ready_.push_back(from);
    ready_.push_back(to);
  }

  struct Wait {
    int peer;
    std::string what;
  };

  Wait wait_of(int stage) {
    const State& state = states_[stage];
    const std::vector<PipelineAction>& actions = schedule_.actions[stage];
    if (state.waits_for_input) {
      const PipelineAction& action = actions[state.next];
      const int peer = chain_.source(stage, action)->stage;
      return {peer, fmt::format("{} for its input from stage {}",
                                describe(schedule_, stage, action), peer)};
    }
    const int peer = state.offers.front();
    return {peer, fmt::format("{} for stage {} to take its output",
                              describe(schedule_, stage, channel(stage, peer).sends.front().action),
                              peer)};
  }

  // Every message has two ends, as each stage does everything once; so who waits, waits for one
  // that waits.
  std::string circle_from(int stage) {
    std::vector<int> path;
    while (std::ranges::find(path, stage) == path.end()) {
      path.push_back(stage);
      stage = wait_of(stage).peer;
    }
    path.erase(path.begin(), std::ranges::find(path, stage));
    std::string circle;
    for (const int member : path) {
      circle += fmt::format("{}{}", circle.empty() ? "" : "; ", wait_of(member).what);
    }
    return fmt::format("deadlock, each waits for the next: {}", circle);
  }

  const PipelineSchedule& schedule_;
  const PipelineChain& chain_;
  const int offered_;
  std::vector<State> states_;
  std::map<std::pair<int, int>, Channel> channels_;  // by sender and receiver
  std::deque<int> ready_;                            // stages that may be able to go on
};

// Throws Refutation.
PipelineNeeds proved_needs(const PipelineSchedule& schedule) {
  const PipelineShape& shape = schedule.shape;
  if (shape.stages < 1 || shape.micro_batches < 1 || shape.chunks < 1) {
    throw Refutation{"there are no stages, micro-batches or chunks"};
  }
  if (static_cast<int>(schedule.actions.size()) != shape.stages) {
    throw Refutation{fmt::format("{} stages have an order, there are {}", schedule.actions.size(),
                                 shape.stages)};
  }
  std::optional<PipelineChain> chain;
  try {
    chain.emplace(schedule);
  } catch (const std::invalid_argument& error) {
    throw Refutation{error.what()};
  }
  PipelineNeeds needs;
  std::size_t longest = 0;
  for (int stage = 0; stage < shape.stages; ++stage) {
    needs.peaks.push_back(StageOrder(schedule, *chain, stage).check());
    longest = std::max(longest, schedule.actions[stage].size());
  }
  // With an offer for every action nobody waits to be relieved of one.
  const int all = static_cast<int>(longest);
  if (const std::optional<std::string> stuck = Exchange(schedule, *chain, all).run()) {
    throw Refutation{*stuck};
  }
  while (Exchange(schedule, *chain, needs.offered).run()) {
    ++needs.offered;
  }
  return needs;
}

}  // namespace

std::optional<std::string> refute(const PipelineSchedule& schedule) {
  try {
    proved_needs(schedule);
    return std::nullopt;
  } catch (const Refutation& refutation) {
    return refutation.text;
  }
}

std::optional<std::string> refute(const PipelineKind& kind, const PipelineShape& shape) {
  if (!kind.refuses(shape).empty()) {
    return std::nullopt;
  }
  const auto wrong = [&](const std::string& what) {
    return fmt::format("{}, {} stages, {} micro-batches, {} chunks: {}", kind.name, shape.stages,
                       shape.micro_batches, shape.chunks, what);
  };
  try {
    const PipelineNeeds needs = proved_needs(emit_pipeline(kind, shape));
    for (int stage = 0; stage < shape.stages; ++stage) {
      const int expected = kind.live.value(shape, stage);
      if (needs.peaks[stage].held != expected) {
        return wrong(
            fmt::format("stage {} holds {} micro-batches at its peak, the closed form says "
                        "{}",
                        stage, needs.peaks[stage].held, expected));
      }
    }
    return std::nullopt;
  } catch (const Refutation& refutation) {
    return wrong(refutation.text);
  }
}

PipelineNeeds needs_of(const PipelineSchedule& schedule) {
  try {
    return proved_needs(schedule);
  } catch (const Refutation& refutation) {
    throw std::invalid_argument(refutation.text);
  }
}

}  // namespace ringworld
