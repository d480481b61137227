// Of the lesson: data parallelism, and the exercise on gradient accumulation. One linear layer, its
// batch divided over ranks; gradients go through the communicator.
#include <algorithm>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/lesson.h"
#include "runtime/random.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t batch = 64;
constexpr std::int64_t inputs = 32;
constexpr std::int64_t outputs = 16;

// Standard normal numbers, rounded to sixteenths: every sum below is then exact in f64, so that
// results are the same bits in whatever order ranks add them, or the algorithm is wrong.
std::vector<double> sixteenths(std::string_view name, std::int64_t count) {
  const RandomKey key{.seed = 1, .purpose = Purpose::synthetic_data, .stream = stream_of(name)};
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::round(16 * random_normal(key, i)) / 16;
  }
  return values;
}

struct Layer {
  std::vector<double> x = sixteenths("lesson x", batch* inputs);    // (batch, inputs)
  std::vector<double> w = sixteenths("lesson w", inputs* outputs);  // (inputs, outputs)
};

struct StepResult {
  double loss = 0;               // mean(output^2)
  std::vector<double> gradient;  // (inputs, outputs): 2 x^T x w / batch
  Traffic traffic = {};          // of rank 0, of gradients
};

// The same without ranks, backend or communicator.
StepResult control(const Layer& layer) {
  std::vector<double> y(batch * outputs);
  StepResult step{.gradient = std::vector<double>(inputs * outputs)};
  for (std::int64_t row = 0; row < batch; ++row) {
    for (std::int64_t j = 0; j < outputs; ++j) {
      double& out = y[row * outputs + j];
      for (std::int64_t i = 0; i < inputs; ++i) {
        out += layer.x[row * inputs + i] * layer.w[i * outputs + j];
      }
      step.loss += out * out / (batch * outputs);
      for (std::int64_t i = 0; i < inputs; ++i) {
        step.gradient[i * outputs + j] += 2 * layer.x[row * inputs + i] * out / batch;
      }
    }
  }
  return step;
}

// One step of this rank's part of the batch, in micro-batches, whose gradients are averaged over
// the ranks after each of them or once for all.
StepResult run_step(Communicator& ranks, const Layer& layer, int micro_batches,
                    bool reduce_every_time) {
  Backend& backend = ranks.backend();
  const std::int64_t own = batch / ranks.world_size();
  const std::int64_t rows = own / micro_batches;
  const Shape of_w{inputs, outputs};
  const Tensor w = backend.empty(DType::f64, of_w, Category::parameters);
  const Tensor gradient = backend.zeros(DType::f64, of_w, Category::gradients);
  const Tensor part = backend.empty(DType::f64, of_w, Category::gradients);
  const Tensor x = backend.empty(DType::f64, {rows, inputs}, Category::activations);
  const Tensor y = backend.empty(DType::f64, {rows, outputs}, Category::activations);
  backend.upload_values(w, layer.w);
  StepResult step;
  const Traffic before = ranks.traffic();
  for (int i = 0; i < micro_batches; ++i) {
    const std::int64_t first = ranks.rank() * own + i * rows;
    backend.upload_values(x, std::span(layer.x).subspan(first * inputs, rows * inputs));
    backend.matmul(y, x, w);
    step.loss += backend.sum_of_squares(y).value();
    backend.matmul(part, x, y, {.transpose_a = true});
    backend.scale(part, 2.0 / static_cast<double>(own));
    if (reduce_every_time) {
      ranks.all_reduce(part, part, ReduceOp::avg, "gradient").wait();
    }
    backend.add(gradient, gradient, part);
  }
  if (!reduce_every_time) {
    ranks.all_reduce(gradient, gradient, ReduceOp::avg, "gradient").wait();
  }
  step.traffic = ranks.traffic() - before;
  step.loss =
      ranks.all_reduce_value(step.loss / static_cast<double>(own * outputs), ReduceOp::avg, "loss");
  step.gradient = backend.download_values(gradient);
  return step;
}

StepResult step_on(LessonRanks& ranks, int count, const Layer& layer, int micro_batches,
                   bool reduce_every_time) {
  StepResult result;
  ranks.run(count, [&](Communicator& communicator) {
    const StepResult step = run_step(communicator, layer, micro_batches, reduce_every_time);
    if (communicator.rank() == 0) {
      result = step;
    }
  });
  return result;
}

double largest_difference(const StepResult& a, const StepResult& b) {
  double largest = 0;
  for (std::size_t i = 0; i < std::min(a.gradient.size(), b.gradient.size()); ++i) {
    largest = std::max(largest, std::abs(a.gradient[i] - b.gradient[i]));
  }
  return largest;
}

double norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) {
    squares += value * value;
  }
  return std::sqrt(squares);
}

}  // namespace

LessonPart lesson_data_parallel(LessonRanks& ranks) {
  const Layer layer;
  const StepResult alone = control(layer);
  Table table({{"ranks", Align::right},
               {"run as"},
               {"rows each", Align::right},
               {"loss", Align::right},
               {"norm of gradient", Align::right},
               {"loss off by", Align::right},
               {"gradient off by", Align::right}});
  Json rows = Json::array();
  for (const int count : {1, 2, 4, 8}) {
    const StepResult step = step_on(ranks, count, layer, 1, false);
    const double loss_error = std::abs(step.loss - alone.loss);
    const double error = largest_difference(step, alone);
    table.add_row({fmt::format("{}", count), std::string(ranks.where(count)),
                   fmt::format("{}", batch / count), fmt::format("{:.12f}", step.loss),
                   fmt::format("{:.12f}", norm(step.gradient)), fmt::format("{:.2g}", loss_error),
                   fmt::format("{:.2g}", error)});
    rows.push_back({{"ranks", count},
                    {"run_as", ranks.where(count)},
                    {"loss", step.loss},
                    {"gradient_norm", norm(step.gradient)},
                    {"loss_error", loss_error},
                    {"gradient_error", error},
                    {"bytes_sent_by_rank_0", step.traffic.bytes_sent.value}});
  }
  return {
      .asked = fmt::format(
          "Batch {} x {}, weight {} x {}, loss mean(output^2), gradient 2 X^T X W / batch. Every "
          "rank has an equal part of the batch; its gradient goes through an all-reduce (avg), in "
          "f64. Held against plain loops without ranks. Inputs are multiples of 1/16, so that all "
          "sums are exact and equal means equal to the bit.",
          batch, inputs, inputs, outputs),
      .table = table.text(),
      .found = {fmt::format(
          "The lesson divides its gradient by the batch alone; that of mean(output^2) is {} times "
          "smaller, since the mean is over the {} columns, too.",
          outputs, outputs)},
      .practice =
          "gradients go in buckets while backward runs, in 16 or 32 bits: equal up to rounding.",
      .json = {{"loss", alone.loss}, {"gradient_norm", norm(alone.gradient)}, {"rows", rows}}};
}

LessonPart lesson_accumulation(LessonRanks& ranks) {
  constexpr int count = 4;
  const Layer layer;
  const StepResult alone = control(layer);
  Table table({{"K", Align::right},
               {"rows each", Align::right},
               {"all-reduces", Align::right},
               {"accumulated", Align::right},
               {"times fewer", Align::right},
               {"bytes sent", Align::right},
               {"accumulated", Align::right},
               {"off by", Align::right}});
  Json rows = Json::array();
  for (const int k : {1, 2, 4, 8}) {
    const StepResult each = step_on(ranks, count, layer, k, true);
    const StepResult once = step_on(ranks, count, layer, k, false);
    const double error = std::max(largest_difference(each, alone), largest_difference(once, alone));
    if (!ranks.prints()) {
      continue;
    }
    const std::int64_t fewer = each.traffic.calls / once.traffic.calls;
    table.add_row({fmt::format("{}", k), fmt::format("{}", batch / count / k),
                   fmt::format("{}", each.traffic.calls), fmt::format("{}", once.traffic.calls),
                   fmt::format("{}", fewer), fmt::format("{}", each.traffic.bytes_sent.value),
                   fmt::format("{}", once.traffic.bytes_sent.value), fmt::format("{:.2g}", error)});
    rows.push_back({{"micro_batches", k},
                    {"all_reduces_each", each.traffic.calls},
                    {"all_reduces_accumulated", once.traffic.calls},
                    {"bytes_each", each.traffic.bytes_sent.value},
                    {"bytes_accumulated", once.traffic.bytes_sent.value},
                    {"gradient_error", error}});
  }
  return {
      .asked = fmt::format(
          "The layer of data-parallel on {} ranks ({}), the batch of {} in K micro-batches: an "
          "all-reduce after each of them against one after the last. Calls and bytes as rank 0's "
          "communicator counted them; both gradients held against plain loops.",
          count, ranks.where(count), batch),
      .table = table.text(),
      .practice =
          "ZeRO-2 and ZeRO-3 reduce after every micro-batch, or hold gradients whole meanwhile.",
      .json = {{"ranks", count}, {"run_as", ranks.where(count)}, {"rows", rows}}};
}

}  // namespace ringworld
