#include "planner/conventions.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace ringworld {
namespace {

constexpr double gib = 1024.0 * 1024 * 1024;

// What the lesson counts for one parameter, all on one GPU.
std::int64_t lesson_bytes(const LessonQuestion& q) {
  return 2 * q.precision_bytes + q.optimizer_bytes;
}

}  // namespace

ConventionReport lesson_memory(const LessonQuestion& q) {
  const auto p = static_cast<double>(q.parameters);
  const auto size = static_cast<double>(q.precision_bytes);
  ConventionReport report{.title = "the lesson's calculator",
                          .letters = fmt::format("P = {} parameters", q.parameters),
                          .unit = "GB",
                          .bytes_of_unit = 1e9,
                          .rows = {},
                          .differences = {}};
  double total = 0;
  const auto add = [&](std::string name, double bytes, bool shared, std::string arithmetic) {
    const double own = shared ? bytes / static_cast<double>(q.gpus) : bytes;
    total += own;
    report.rows.push_back({.name = std::move(name),
                           .device = own,
                           .arithmetic = shared ? fmt::format("{} / {} GPUs", arithmetic, q.gpus)
                                                : std::move(arithmetic)});
  };
  add("weights", p * size, q.sharding == Sharding::zero3, fmt::format("{} P", q.precision_bytes));
  add("gradients", p * size, q.sharding >= Sharding::zero2, fmt::format("{} P", q.precision_bytes));
  add("optimizer", p * static_cast<double>(q.optimizer_bytes), q.sharding >= Sharding::zero1,
      fmt::format("{} P", q.optimizer_bytes));
  if (q.shape) {
    const LessonShape& s = *q.shape;
    const double bytes = static_cast<double>(s.sequence_length) * static_cast<double>(s.batch) *
                         static_cast<double>(s.hidden) * static_cast<double>(s.layers) * size * 4;
    add("activations", bytes, false,
        fmt::format("{} x {} x {} x {} x 4 x {} layers", s.sequence_length, s.batch, s.hidden,
                    q.precision_bytes, s.layers));
  } else {
    add("activations", p * size * 0.5, false, fmt::format("0.5 x {} P", q.precision_bytes));
  }
  report.total = total;
  report.differences = {
      fmt::format(
          "{} bytes of state for each parameter: there is no 32-bit master copy. ZeRO's "
          "paper has 16, with one and gradients in 16 bits; with gradients in 32 bits it is "
          "18.",
          lesson_bytes(q)),
      "Activations are half the weights, or 4 numbers for each element of the width, whatever the "
      "architecture, and no strategy divides or recomputes them. Here they are counted item by "
      "item "
      "(Korthikanti et al., 2022).",
      "Logits, units gathered by zero3, gradients under reduction, kernels' workspace and the "
      "libraries' own memory are not there."};
  return report;
}

std::int64_t lesson_smallest_gpus(const LessonQuestion& q, double device_bytes) {
  const double states = static_cast<double>(q.parameters) * static_cast<double>(lesson_bytes(q));
  return static_cast<std::int64_t>(std::ceil(states / device_bytes));
}

ConventionReport deepspeed_memory(const DeepSpeedQuestion& q) {
  // 16-bit weights and gradients 2 + 2, in 32 bits gradients, master and two moments 16:
  // DeepSpeed's 18 is all but one of the 16-bit ones. Host memory is a half more, for buffers.
  constexpr double buffers = 1.5;
  const auto p = static_cast<double>(q.parameters);
  const auto gpus = static_cast<double>(q.gpus_per_node * q.nodes);
  const auto per_node = static_cast<double>(q.gpus_per_node);
  const double of_node = 1.0 / static_cast<double>(q.nodes);
  const double largest = 4 * static_cast<double>(q.largest_layer);
  ConventionReport report{.title = "DeepSpeed's estimators of model states",
                          .letters = fmt::format("P = {} parameters, L = {} of them in the largest "
                                                 "layer, N = {} GPUs, n = {} of them in a node",
                                                 q.parameters, q.largest_layer,
                                                 q.gpus_per_node * q.nodes, q.gpus_per_node),
                          .unit = "GiB",
                          .bytes_of_unit = gib,
                          .rows = {},
                          .differences = {}};
  const auto add = [&](std::string name, double device, double host, std::string arithmetic) {
    report.rows.push_back({std::move(name), device, host, std::move(arithmetic)});
  };
  add("zero1", 4 * p + std::floor(12 * p / gpus), p * 4 * per_node * buffers,
      "4 P + 12 P / N; host 4 P n x 1.5");
  add("zero2", 4 * p + std::floor(16 * p / gpus), p * 4 * per_node * buffers,
      "4 P + 16 P / N; host 4 P n x 1.5");
  add("zero2, optimizer offloaded", 2 * p, p * std::max(4 * gpus, 16.0) * buffers,
      "2 P; host P max(4 N, 16) x 1.5");
  add("zero3, zero.Init", largest + std::floor(18 * p / gpus),
      static_cast<double>(q.largest_layer) * 4 * per_node * buffers,
      "4 L + 18 P / N; host 4 L n x 1.5");
  add("zero3", largest + std::floor(18 * p / gpus), p * 4 * per_node * buffers,
      "4 L + 18 P / N; host 4 P n x 1.5");
  add("zero3, optimizer offloaded, zero.Init", largest + std::floor(2 * p / gpus),
      p * 16 * of_node * buffers, "4 L + 2 P / N; host 16 P / nodes x 1.5");
  add("zero3, optimizer offloaded", largest + std::floor(2 * p / gpus),
      p * std::max(4 * per_node, 16 * of_node) * buffers,
      "4 L + 2 P / N; host P max(4 n, 16 / nodes) x 1.5");
  add("zero3, all offloaded, zero.Init", largest, p * 18 * of_node * buffers,
      "4 L; host 18 P / nodes x 1.5");
  add("zero3, all offloaded", largest, p * std::max(4 * per_node, 18 * of_node) * buffers,
      "4 L; host P max(4 n, 18 / nodes) x 1.5");
  report.differences = {
      "Model states alone: activations, logits, workspace and the libraries' own memory, which "
      "may "
      "be many times as much, are not there.",
      "4 L: the largest layer L once, with weights and gradients of 2 bytes. Our zero3 has two "
      "neighbouring units' weights, and their gradients in the precision given.",
      "18 P / N under zero3 has 2 for weights, 16 for gradients, master and moments in 32 bits, "
      "as "
      "ours with gradients in 32 bits; zero2's 4 P + 16 P / N has 16-bit gradients whole beside "
      "their 32-bit shards, where ours has shards alone.",
      "Host memory is the state times 1.5 for buffers, at least 4 P for each GPU, which the "
      "model takes while it is made; ours is the state alone.",
      "zero1: DeepSpeed has no estimator for it; the row is the ZeRO paper's, with the host as "
      "for "
      "zero2."};
  return report;
}

std::int64_t largest_layer(const Transformer& model) {
  std::int64_t largest = model.vocabulary * model.width;
  largest = std::max(largest, layer_parameters(model, 0).total());
  return std::max(largest, layer_parameters(model, model.layers - 1).total());
}

}  // namespace ringworld
