#include "parallel/pipeline_simulation.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

namespace ringworld {
namespace {

Idle idle_within(double time, double work) {
  const double idle = time - work;
  return {idle, idle / work, idle / time};
}

class Clockwork {
 public:
  Clockwork(const PipelineSchedule& schedule, const PipelineTimes& times)
      : schedule_(schedule),
        times_(times),
        chain_(schedule),
        over_(schedule.actions.size()),
        outputs_{Outputs(output_count()), Outputs(output_count())},
        messages_(schedule.actions.size()) {
    timeline_.stages.resize(schedule.actions.size());
    timeline_.work = schedule.shape.micro_batches * times.work();
  }

  PipelineTimeline run() {
    for (int stage = 0; stage < schedule_.shape.stages; ++stage) {
      ready_.push_back(stage);
    }
    while (!ready_.empty()) {
      const int stage = ready_.front();
      ready_.pop_front();
      go_on(stage);
    }
    for (int stage = 0; stage < schedule_.shape.stages; ++stage) {
      check_at_end(stage);
      const std::vector<TimedAction>& actions = timeline_.stages[stage];
      if (!actions.empty()) {
        timeline_.total = std::max(timeline_.total, actions.back().end);
        timeline_.longest_stage =
            std::max(timeline_.longest_stage, actions.back().end - actions.front().start);
      }
      timeline_.messages.insert(timeline_.messages.end(), messages_[stage].begin(),
                                messages_[stage].end());
    }
    return std::move(timeline_);
  }

 private:
  struct Output {
    double begun;
    double computed;
  };
  using Outputs = std::vector<std::optional<Output>>;

  std::size_t output_count() const {
    return static_cast<std::size_t>(schedule_.shape.parts()) *
           static_cast<std::size_t>(schedule_.shape.micro_batches);
  }

  // That of an action of this direction and micro-batch, in this place; nothing as long as it has
  // not been computed.
  std::optional<Output>& output(const PipelineAction& action, const PipelinePlace& place) {
    Outputs& outputs = outputs_[action.work == PipelineWork::forward ? 0 : 1];
    const auto part = static_cast<std::size_t>(chain_.part(place.stage, place.chunk));
    return outputs[part * static_cast<std::size_t>(schedule_.shape.micro_batches) +
                   static_cast<std::size_t>(action.micro_batch)];
  }

  double duration(PipelineWork work) const {
    const auto whole = [&] {
      switch (work) {
        case PipelineWork::forward:
          return times_.forward;
        case PipelineWork::backward:
          return times_.backward_input + times_.backward_weight;
        case PipelineWork::backward_input:
          return times_.backward_input;
        case PipelineWork::backward_weight:
          return times_.backward_weight;
      }
      throw std::logic_error("simulate: unknown work");
    };
    return whole() / schedule_.shape.chunks;
  }

  void go_on(int stage) {
    const std::vector<PipelineAction>& actions = schedule_.actions[stage];
    std::vector<TimedAction>& timed = timeline_.stages[stage];
    while (timed.size() < actions.size()) {
      const PipelineAction& action = actions[timed.size()];
      double start = over_[stage];
      if (const std::optional<PipelinePlace> from = chain_.source(stage, action)) {
        const std::optional<Output>& input = output(action, *from);
        if (!input) {
          return;
        }
        const double arrived = input->computed + delay(from->stage, stage);
        start = std::max(start, arrived);
        if (from->stage != stage) {
          messages_[stage].push_back({action.work != PipelineWork::forward,
                                      action.micro_batch,
                                      *from,
                                      {stage, action.chunk},
                                      input->begun,
                                      input->computed,
                                      arrived,
                                      start});
        }
      }
      over_[stage] = start + duration(action.work);
      timed.push_back({action, start, over_[stage]});
      if (action.work != PipelineWork::backward_weight) {
        output(action, {stage, action.chunk}) = Output{start, over_[stage]};
      }
      const std::optional<PipelinePlace> to = chain_.destination(stage, action);
      if (to && to->stage != stage) {
        ready_.push_back(to->stage);
      }
    }
  }

  double delay(int from, int to) const { return from == to ? 0 : times_.communication; }

  void check_at_end(int stage) const {
    const std::size_t done = timeline_.stages[stage].size();
    if (done < schedule_.actions[stage].size()) {
      throw std::invalid_argument(
          fmt::format("simulate: {} never gets its input",
                      describe(schedule_, stage, schedule_.actions[stage][done])));
    }
  }

  const PipelineSchedule& schedule_;
  const PipelineTimes times_;
  const PipelineChain chain_;
  std::vector<double> over_;                            // by stage: the end of its last action
  Outputs outputs_[2];                                  // down and up, by part and micro-batch
  std::vector<std::vector<PipelineMessage>> messages_;  // by the stage that receives
  std::deque<int> ready_;                               // stages that may be able to go on
  PipelineTimeline timeline_;
};

}  // namespace

Idle PipelineTimeline::idle() const {
  return idle_within(total, work);
}

Idle PipelineTimeline::idle_of_longest_stage() const {
  return idle_within(longest_stage, work);
}

PipelineTimeline simulate(const PipelineSchedule& schedule, const PipelineTimes& times) {
  return Clockwork(schedule, times).run();
}

}  // namespace ringworld
