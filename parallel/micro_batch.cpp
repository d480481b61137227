#include "parallel/micro_batch.h"

#include <algorithm>
#include <vector>

namespace ringworld {
namespace {

// One micro-batch on its way through the chain.
class Pass {
 public:
  Pass(const Model& model, Backend& backend, const Batch& batch, Strategy& strategy,
       int micro_batch, const MicroBatchOptions& options)
      : model_(model),
        backend_(backend),
        batch_(batch),
        strategy_(strategy),
        micro_batch_(micro_batch),
        observer_(options.observer) {
    const int units = count();
    const int group = options.checkpoint > 0
                          ? static_cast<int>(std::min<std::int64_t>(options.checkpoint, units))
                          : units;
    for (int first = 0; first < units; first += group) {
      groups_.push_back({.first = first, .end = std::min(first + group, units)});
    }
  }

  // Returns the sum of the losses.
  double forward() {
    Tensor x;
    for (Group& group : groups_) {
      const bool keeps = group.end == count();
      if (!keeps) {
        group.input = x;
      }
      for (int unit = group.first; unit < group.end; ++unit) {
        Saved dropped;
        strategy_.before_forward(unit);
        x = at(unit).forward(backend_, batch_, x, keeps ? saved_ : dropped);
        strategy_.after_forward(unit);
        if (observer_ != nullptr) {
          observer_->after_forward(at(unit), x);
        }
      }
    }
    return backend_.sum(x);
  }

  void backward() {
    Tensor dy;
    for (; !groups_.empty(); groups_.pop_back()) {
      Group& group = groups_.back();
      if (group.end != count()) {
        recompute(group);
      }
      for (int unit = group.end - 1; unit >= group.first; --unit) {
        strategy_.before_backward(unit, micro_batch_);
        dy = at(unit).backward(backend_, batch_, dy, saved_);
        if (observer_ != nullptr) {
          observer_->after_backward(at(unit), dy);
        }
        strategy_.after_backward(unit, micro_batch_);
      }
    }
  }

 private:
  // Units that keep only the first one's input.
  struct Group {
    int first;
    int end;
    Tensor input = {};  // undefined where everything is kept
  };

  int count() const { return static_cast<int>(model_.units().size()); }
  Unit& at(int unit) const { return *model_.units()[static_cast<std::size_t>(unit)]; }

  void recompute(Group& group) {
    Tensor x = std::move(group.input);
    for (int unit = group.first; unit < group.end; ++unit) {
      strategy_.before_recompute(unit);
      x = at(unit).forward(backend_, batch_, x, saved_);
    }
  }

  const Model& model_;
  Backend& backend_;
  const Batch& batch_;
  Strategy& strategy_;
  const int micro_batch_;
  UnitObserver* const observer_;
  std::vector<Group> groups_;  // whose backward is still to come
  Saved saved_;
};

}  // namespace

double run_micro_batch(const Model& model, Backend& backend, const Batch& batch, Strategy& strategy,
                       int micro_batch, const MicroBatchOptions& options) {
  if (options.observer != nullptr) {
    options.observer->before_micro_batch(batch);
  }
  Pass pass(model, backend, batch, strategy, micro_batch, options);
  const double loss = pass.forward();
  pass.backward();
  return loss;
}

double evaluate(const Model& model, Backend& backend, const Batch& batch, Strategy& strategy) {
  Tensor x;
  for (std::size_t unit = 0; unit < model.units().size(); ++unit) {
    Saved dropped;
    strategy.before_forward(static_cast<int>(unit));
    x = model.units()[unit]->forward(backend, batch, x, dropped);
    strategy.after_forward(static_cast<int>(unit));
  }
  strategy.after_evaluation();
  return backend.sum(x);
}

}  // namespace ringworld
