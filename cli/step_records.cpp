#include "cli/step_records.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/memory_chart.h"

namespace ringworld {

// Marks on the timeline which unit is at work, and passes what it sees on to the dump.
class StepRecords::Marks final : public UnitObserver {
 public:
  Marks(const Model& model, MemoryTimeline* timeline, TensorDump* dump)
      : model_(model), timeline_(timeline), dump_(dump) {}

  void before_micro_batch(const Batch& batch, int micro_batch, const Unit& next,
                          bool backward) override {
    mark(fmt::format("{} {}", backward ? "backward" : "forward", next.name()));
    if (dump_ != nullptr) {
      dump_->before_micro_batch(batch, micro_batch, next, backward);
    }
  }
  void after_forward(const Unit& unit, const Tensor& y) override {
    const std::size_t next = index_of(unit) + 1;
    mark(next < model_.units().size() ? fmt::format("forward {}", model_.units()[next]->name())
                                      : fmt::format("backward {}", unit.name()));
    if (dump_ != nullptr) {
      dump_->after_forward(unit, y);
    }
  }
  void after_backward(const Unit& unit, const Tensor& dx) override {
    const std::size_t index = index_of(unit);
    mark(index > 0 ? fmt::format("backward {}", model_.units()[index - 1]->name())
                   : std::string("end of the micro-batch"));
    if (dump_ != nullptr) {
      dump_->after_backward(unit, dx);
    }
  }

 private:
  void mark(std::string label) {
    if (timeline_ != nullptr) {
      timeline_->mark(std::move(label));
    }
  }
  std::size_t index_of(const Unit& unit) const {
    const auto& units = model_.units();
    return static_cast<std::size_t>(
        std::ranges::find(units, &unit, [](const auto& u) { return u.get(); }) - units.begin());
  }

  const Model& model_;
  MemoryTimeline* const timeline_;
  TensorDump* const dump_;
};

StepRecords::StepRecords(const TrainOptions& options, const TrainingState& state, Backend& backend,
                         Communicator& communicator)
    : options_(options), state_(state), communicator_(communicator) {
  if (!options.memory_timeline.empty() && communicator.rank() == 0) {
    timeline_ = std::make_unique<MemoryTimeline>(backend.device());
    write_timeline("--memory-timeline", options.memory_timeline, *timeline_, {}, "", "");
  }
  if (options.dump.step > 0) {
    dump_ = std::make_unique<TensorDump>(options.dump, state.model(), backend, communicator);
  }
}

StepRecords::~StepRecords() = default;

// The second step, if there is one: the first makes what is made once, and is kept in case memory
// runs out in it.
bool StepRecords::records_timeline(std::int64_t step) const {
  return timeline_ != nullptr && step <= 2;
}

StepHooks StepRecords::hooks(std::int64_t step) {
  const bool dumps = step == options_.dump.step;
  const bool draws = records_timeline(step);
  if (!dumps && !draws) {
    return {};
  }
  if (draws) {
    timeline_->begin();
  }
  observer_ = std::make_unique<Marks>(state_.model(), draws ? timeline_.get() : nullptr,
                                      dumps ? dump_.get() : nullptr);
  return {.units = observer_.get(),
          .before_update =
              [this, draws, dumps](const GradientStep& gradient) {
                if (dumps) {
                  dump_->write_gradients(state_.strategy(), gradient);
                }
                if (draws) {
                  timeline_->mark("optimizer");
                }
              },
          .after_update =
              [this, draws, dumps] {
                if (draws) {
                  timeline_->end();
                }
                if (dumps) {
                  dump_->write_parameters(state_.strategy());
                  dump_->finish();
                  dump_.reset();
                }
              }};
}

void StepRecords::out_of_memory(const nlohmann::ordered_json& conditions) {
  if (timeline_ != nullptr) {
    timeline_->mark("out of memory");
    timeline_->end();
    finish_timeline(conditions);
  }
}

std::string StepRecords::finish_timeline(const nlohmann::ordered_json& conditions) {
  return write_timeline(
      "--memory-timeline", options_.memory_timeline, *timeline_, conditions,
      fmt::format("Device memory of rank 0 over one step: {}, {}", options_.model.name,
                  options_.strategy.name),
      fmt::format("{} ranks, {}, micro-batch {}, sequences of {} tokens, recomputation {}",
                  communicator_.world_size(), name_of(options_.precision), options_.micro_batch,
                  options_.data.sequence_length, to_string(options_.recomputation)));
}

std::string StepRecords::finish(const nlohmann::ordered_json& conditions) {
  std::string text;
  if (timeline_ != nullptr) {
    text += finish_timeline(conditions) + '\n';
  }
  if (options_.dump.step > 0) {
    text += fmt::format(
        "dump of step {}: {}; `ringworld compare` holds two of them against each "
        "other\n",
        options_.dump.step, options_.dump.directory);
  }
  return text;
}

}  // namespace ringworld
