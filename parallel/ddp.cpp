#include "parallel/ddp.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

struct Completion {
  Parameter* parameter;
  int unit;  // whose backward completes its gradient; -1: none does
};

// Backward runs from the last unit to the first, so a gradient is complete after the first unit of
// the chain that uses it. Parameters in the order of completion; unused ones last.
std::vector<Completion> completion_order(const Model& model) {
  std::unordered_map<const Parameter*, int> first_user;
  for (int unit = static_cast<int>(model.units().size()) - 1; unit >= 0; --unit) {
    for (const Parameter* p : model.units()[static_cast<std::size_t>(unit)]->parameters()) {
      first_user[p] = unit;
    }
  }
  std::vector<Completion> order;
  for (const auto& p : model.parameters()) {
    const auto user = first_user.find(p.get());
    order.push_back({p.get(), user == first_user.end() ? -1 : user->second});
  }
  std::reverse(order.begin(), order.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const Completion& a, const Completion& b) { return a.unit > b.unit; });
  return order;
}

}  // namespace

Ddp::Ddp(Model& model, Backend& backend, Communicator& communicator, Bytes bucket_size,
         std::uint64_t seed)
    : model_(model), backend_(backend), communicator_(communicator) {
  make_parameters(seed);
  make_buckets(bucket_size);
}

void Ddp::make_parameters(std::uint64_t seed) {
  for (const auto& p : model_.parameters()) {
    p->value = backend_.empty(model_.dtype(), p->shape, Category::parameters);
    initialize(backend_, *p, p->value, 0, seed);
    communicator_.broadcast(p->value, 0, "initial " + p->name).wait();
  }
  check_replicas();
}

void Ddp::check_replicas() {
  const auto& parameters = model_.parameters();
  const auto count = static_cast<std::int64_t>(parameters.size());
  const int ranks = communicator_.world_size();

  std::vector<std::int64_t> fingerprints;
  for (const auto& p : parameters) {
    fingerprints.push_back(backend_.fingerprint(p->value));
  }
  const Tensor own = backend_.empty(DType::i64, {count}, Category::communication);
  const Tensor all = backend_.empty(DType::i64, {ranks, count}, Category::communication);
  backend_.upload(own, std::as_bytes(std::span(fingerprints)));
  communicator_.all_gather(all, own, "replica check").wait();
  std::vector<std::int64_t> everyones(static_cast<std::size_t>(ranks * count));
  backend_.download(std::as_writable_bytes(std::span(everyones)), all);

  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::vector<int> differing;
    for (int rank = 1; rank < ranks; ++rank) {
      if (everyones[static_cast<std::size_t>(rank) * parameters.size() + i] != everyones[i]) {
        differing.push_back(rank);
      }
    }
    if (!differing.empty()) {
      throw CommunicationError(fmt::format(
          "the replicas do not start equal: '{}' on rank {} differs from rank 0's after "
          "the broadcast; run `ringworld verify` on these machines",
          parameters[i]->name, fmt::join(differing, ", ")));
    }
  }
}

void Ddp::make_buckets(Bytes bucket_size) {
  const std::vector<Completion> order = completion_order(model_);
  for (auto first = order.begin(); first != order.end();) {
    // A bucket takes parameters until it is full; one that is larger has a bucket for itself.
    Bucket bucket{.label = fmt::format("gradients {}", buckets_.size()),
                  .gradients = {},
                  .complete_after = first->unit,
                  .reduction = {}};
    std::int64_t elements = 0;
    auto last = first;
    for (; last != order.end(); ++last) {
      const std::int64_t more = last->parameter->shape.elements();
      if (last != first &&
          (elements + more) * size_of(gradient_dtype(model_.dtype())) > bucket_size) {
        break;
      }
      elements += more;
      bucket.complete_after = last->unit;
    }
    bucket.gradients =
        backend_.empty(gradient_dtype(model_.dtype()), {elements}, Category::gradients);
    std::int64_t offset = 0;
    for (; first != last; ++first) {
      Parameter& p = *first->parameter;
      p.gradient = bucket.gradients.slice(offset, p.shape.elements()).view(p.shape);
      offset += p.shape.elements();
      shards_.push_back({&p, 0, p.value, p.gradient});
    }
    buckets_.push_back(std::move(bucket));
  }
}

void Ddp::begin_step(int micro_batches) {
  micro_batches_ = micro_batches;
  next_bucket_ = 0;
  for (const Bucket& bucket : buckets_) {
    backend_.fill(bucket.gradients, 0);
  }
}

void Ddp::after_backward(int unit, int micro_batch) {
  if (micro_batch + 1 == micro_batches_) {
    start_reductions_completed_by(unit);
  }
}

void Ddp::start_reductions_completed_by(int unit) {
  for (; next_bucket_ < buckets_.size() && buckets_[next_bucket_].complete_after >= unit;
       ++next_bucket_) {
    Bucket& bucket = buckets_[next_bucket_];
    bucket.reduction =
        communicator_.all_reduce(bucket.gradients, bucket.gradients, ReduceOp::sum, bucket.label);
  }
}

void Ddp::finish_gradients() {
  start_reductions_completed_by(-1);
  for (Bucket& bucket : buckets_) {
    bucket.reduction.wait();
  }
}

// Ring all-reduce: each of the N - 1 steps of both halves moves the whole bucket once, over all
// ranks.
Bytes Ddp::expected_traffic(int /*micro_batches*/) const {
  Bytes expected;
  for (const Bucket& bucket : buckets_) {
    expected += communicator_.expected_traffic(Operation::all_reduce, bucket.gradients.elements(),
                                               bucket.gradients.dtype());
  }
  return expected;
}

}  // namespace ringworld
