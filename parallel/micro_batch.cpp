#include "parallel/micro_batch.h"

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace ringworld {
namespace {

// What goes between two parts of the chain: activations (B, T, C) down, their gradients up; with
// sequence parallelism a rank's rows of them, (1, rows, C).
Tensor empty_between_units(const Model& model, Backend& backend, const Batch& batch) {
  const Shape& tokens = batch.tokens.shape();
  const TensorParallel& tensor = model.tensor();
  const Shape shape = tensor.sequence_parallel()
                          ? Shape{1, tensor.rows(tokens.elements()).count, model.width()}
                          : Shape{tokens[0], tokens[1], model.width()};
  return backend.empty(model.dtype(), shape, Category::activations);
}

bool is_forward(const PipelineAction& action) {
  return action.work == PipelineWork::forward;
}

// Runs a stage's actions. What an action needs of another stage is received before it, and what it
// gives is sent after it, at once with the next receive, as the proof of the schedule takes it to
// be (pipeline_proof.h).
class StageRun {
 public:
  StageRun(const PassContext& context, int micro_batches, const std::function<Batch(int)>& batch)
      : of_(context),
        plan_(context.stage.plan(micro_batches)),
        batch_of_(batch),
        passes_(static_cast<std::size_t>(micro_batches * plan_.schedule.shape.chunks)) {}

  double run() {
    const std::vector<PipelineAction>& actions =
        plan_.schedule.actions[static_cast<std::size_t>(of_.stage.rank())];
    Tensor input;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const PipelineAction& action = actions[i];
      if (i == 0) {
        input = take(action);
      }
      give(action, perform(action, std::move(input)));
      input = i + 1 < actions.size() ? take(actions[i + 1]) : Tensor();
      wait_for_sends(plan_.offered);
    }
    wait_for_sends(0);
    return loss_;
  }

 private:
  std::unique_ptr<Pass>& pass(const PipelineAction& action) {
    return passes_[static_cast<std::size_t>(action.micro_batch * plan_.schedule.shape.chunks +
                                            action.chunk)];
  }
  const Stage::Chunk& chunk(const PipelineAction& action) const {
    return of_.stage.chunks()[static_cast<std::size_t>(action.chunk)];
  }

  // A micro-batch is on the device as long as a chunk has a pass of it.
  void begin_pass(const PipelineAction& action) {
    std::weak_ptr<const Batch>& known = batches_[action.micro_batch];
    std::shared_ptr<const Batch> batch = known.lock();
    if (batch == nullptr) {
      batch = std::make_shared<const Batch>(batch_of_(action.micro_batch));
      known = batch;
    }
    pass(action) = std::make_unique<Pass>(of_, chunk(action), batch, action.micro_batch);
  }

  // The action's input, from the stage before it in the chain, or behind it.
  Tensor take(const PipelineAction& action) {
    if (is_forward(action)) {
      begin_pass(action);
    }
    const std::optional<PipelinePlace> source = plan_.chain.source(of_.stage.rank(), action);
    if (!source) {
      return {};
    }
    Tensor input = empty_between_units(of_.model, of_.backend, pass(action)->batch());
    of_.stage.pipeline().receive(input, source->stage, label(action)).wait();
    return input;
  }

  // What the action gives its neighbour in the chain; undefined where it gives nothing.
  Tensor perform(const PipelineAction& action, Tensor input) {
    std::unique_ptr<Pass>& pass = this->pass(action);
    Tensor output;
    switch (action.work) {
      case PipelineWork::forward:
        output = pass->forward(std::move(input));
        if (chunk(action).is_last) {
          loss_ += of_.backend.sum(output);
          output = {};
        }
        return output;
      case PipelineWork::backward:
        output = pass->backward(std::move(input));
        break;
      case PipelineWork::backward_input:
        return pass->backward_input(std::move(input));
      case PipelineWork::backward_weight:
        pass->backward_weight();
        break;
    }
    pass = nullptr;
    return output;
  }

  void give(const PipelineAction& action, const Tensor& output) {
    const std::optional<PipelinePlace> destination =
        plan_.chain.destination(of_.stage.rank(), action);
    if (!destination) {
      return;
    }
    sends_.push_back(of_.stage.pipeline().send(output, destination->stage, label(action)));
  }

  void wait_for_sends(int left) {
    while (static_cast<int>(sends_.size()) > left) {
      sends_.front().wait();
      sends_.pop_front();
    }
  }

  static std::string label(const PipelineAction& action) {
    return is_forward(action) ? "pipeline activations" : "pipeline gradients";
  }

  const PassContext& of_;
  const Stage::Plan& plan_;
  const std::function<Batch(int)>& batch_of_;
  std::vector<std::unique_ptr<Pass>> passes_;          // by micro-batch and chunk
  std::map<int, std::weak_ptr<const Batch>> batches_;  // by micro-batch
  std::deque<Work> sends_;
  double loss_ = 0;
};

}  // namespace

std::vector<bool> recomputed_units(const Model& model, const Stage& stage,
                                   std::int64_t checkpoint) {
  std::vector<bool> recomputed(model.units().size());
  for (const Stage::Chunk& chunk : stage.chunks()) {
    for (const UnitGroup& group : unit_groups(stage, chunk, checkpoint)) {
      for (int unit = group.first; unit < group.end; ++unit) {
        recomputed[static_cast<std::size_t>(unit)] = !group.keeps;
      }
    }
  }
  return recomputed;
}

double run_micro_batches(const Model& model, Backend& backend, Strategy& strategy,
                         const Stage& stage, int count, const std::function<Batch(int)>& batch,
                         const MicroBatchOptions& options) {
  const PassContext context{model, backend, strategy, stage, options};
  return StageRun(context, count, batch).run();
}

double evaluate(const Model& model, Backend& backend, Strategy& strategy, const Stage& stage,
                const Batch& batch) {
  double loss = 0;
  Tensor x;
  for (const Stage::Chunk& chunk : stage.chunks()) {
    // The part before is on the previous stage, in a ring: a stage's next chunk comes after the
    // last stage's chunk before it.
    if (!chunk.is_first) {
      x = empty_between_units(model, backend, batch);
      stage.pipeline()
          .receive(x, (stage.rank() + stage.count() - 1) % stage.count(), "pipeline evaluation")
          .wait();
    }
    for (int unit = chunk.first; unit < chunk.end; ++unit) {
      Saved dropped;
      strategy.before_forward(unit);
      x = model.units()[static_cast<std::size_t>(unit)]->forward(backend, batch, x, dropped);
      strategy.after_forward(unit);
    }
    if (chunk.is_last) {
      loss = backend.sum(x);
    } else {
      stage.pipeline().send(x, (stage.rank() + 1) % stage.count(), "pipeline evaluation").wait();
    }
  }
  strategy.after_evaluation();
  return loss;
}

}  // namespace ringworld
