#include "cli/bench_call.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace ringworld {
namespace {

// In every dtype, and no value of BenchData.
constexpr double nothing_yet = 111;

bool only_root_gets(Operation operation) {
  return operation == Operation::reduce || operation == Operation::gather;
}

std::int64_t input_elements(Operation operation, const BufferSize& size) {
  const bool gives_part = operation == Operation::all_gather || operation == Operation::gather;
  return gives_part ? size.block : size.elements;
}

std::int64_t output_elements(Operation operation, const BufferSize& size) {
  if (operation == Operation::broadcast) {
    return 0;
  }
  const bool gets_part = operation == Operation::reduce_scatter || operation == Operation::scatter;
  return gets_part ? size.block : size.elements;
}

}  // namespace

bool has_out_of_place(Operation operation) {
  return operation != Operation::broadcast;
}

bool has_in_place(Operation operation) {
  return operation != Operation::all_to_all && operation != Operation::barrier;
}

double BenchCall::elements_needed(Operation operation, const BufferSize& size) {
  return static_cast<double>(input_elements(operation, size)) +
         static_cast<double>(output_elements(operation, size));
}

BenchCall::BenchCall(Communicator& communicator, LibraryCollectives* library, Operation operation,
                     DType dtype, ReduceOp op, int root, const BufferSize& largest)
    : communicator_(communicator),
      library_(library),
      backend_(communicator.backend()),
      operation_(operation),
      op_(op),
      root_(root),
      data_(backend_, dtype, reduces(operation) ? std::optional(op) : std::nullopt,
            communicator.world_size()),
      input_(backend_.empty(dtype, Shape{input_elements(operation, largest)},
                            Category::communication)),
      output_(backend_.empty(dtype, Shape{output_elements(operation, largest)},
                             Category::communication)) {}

void BenchCall::prepare(const BufferSize& size, const Contender& contender) {
  const bool half = input_.dtype() == DType::bf16 || input_.dtype() == DType::f16;
  const bool same = !reduces(operation_) || (op_ != ReduceOp::avg && !half);
  const bool by_library = contender.algorithm->name == "mpi" && library_ != nullptr && same;
  const int ranks = communicator_.world_size();
  turns_.clear();
  next_ = 0;
  for (int i = 0; i < (has_root(operation_) ? ranks : 1); ++i) {
    const int root = (root_ + i) % ranks;
    turns_.push_back(turn(size, contender.in_place, root));
    if (by_library) {
      turns_.back().run = library_call(size, turns_.back(), root);
    }
  }
}

BenchCall::Turn BenchCall::turn(const BufferSize& size, bool in_place, int root) const {
  Communicator& communicator = communicator_;
  const int rank = communicator.rank();
  const int ranks = communicator.world_size();
  const bool is_root = rank == root;
  const ReduceOp op = op_;
  const std::int64_t own = rank * size.block;
  const Tensor input = input_.slice(0, input_elements(operation_, size));
  const Tensor output = output_.slice(0, output_elements(operation_, size));
  Tensor x = input;
  Tensor out = output;
  std::vector<Expected> expected;
  std::function<void()> run;
  const auto expect_part_of_every_rank = [&](std::int64_t first) {
    for (int source = 0; source < ranks; ++source) {
      expected.push_back({out.slice(source * size.block, size.block), source, first});
    }
  };

  switch (operation_) {
    case Operation::all_reduce:
      out = in_place ? input : output;
      expected = {{out, BenchData::reduction, 0}};
      run = [&communicator, out, x, op] { communicator.all_reduce(out, x, op, label).wait(); };
      break;
    case Operation::reduce_scatter:
      out = in_place ? input.slice(own, size.block) : output;
      expected = {{out, BenchData::reduction, own}};
      run = [&communicator, out, x, op] { communicator.reduce_scatter(out, x, op, label).wait(); };
      break;
    case Operation::all_gather:
      x = in_place ? output.slice(own, size.block) : input;
      expect_part_of_every_rank(0);
      run = [&communicator, out, x] { communicator.all_gather(out, x, label).wait(); };
      break;
    case Operation::broadcast:
      out = input;
      x = is_root ? input : Tensor();
      expected = {{out, root, 0}};
      run = [&communicator, out, root] { communicator.broadcast(out, root, label).wait(); };
      break;
    case Operation::reduce:
      out = is_root ? (in_place ? input : output) : Tensor();
      if (is_root) {
        expected = {{out, BenchData::reduction, 0}};
      }
      run = [&communicator, out, x, op, root] {
        communicator.reduce(out, x, op, root, label).wait();
      };
      break;
    case Operation::all_to_all:
      expect_part_of_every_rank(own);
      run = [&communicator, out, x] { communicator.all_to_all(out, x, label).wait(); };
      break;
    case Operation::gather:
      x = is_root && in_place ? output.slice(own, size.block) : input;
      if (is_root) {
        expect_part_of_every_rank(0);
      } else {
        out = Tensor();
      }
      run = [&communicator, out, x, root] { communicator.gather(out, x, root, label).wait(); };
      break;
    case Operation::scatter:
      x = is_root ? input : Tensor();
      out = is_root && in_place ? input.slice(own, size.block) : output;
      expected = {{out, root, own}};
      run = [&communicator, out, x, root] { communicator.scatter(out, x, root, label).wait(); };
      break;
    case Operation::barrier:
      x = Tensor();
      out = Tensor();
      run = [&communicator] { communicator.barrier(label); };
      break;
  }
  return {x, out, std::move(expected), std::move(run)};
}

std::function<void()> BenchCall::library_call(const BufferSize& size, const Turn& turn,
                                              int root) const {
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(communicator_.world_size()),
                                         size.block);
  return [&library = *library_, operation = operation_, x = turn.x, out = turn.out, counts,
          op = op_, root] {
    switch (operation) {
      case Operation::all_reduce:
        return library.all_reduce(out, x, op);
      case Operation::reduce_scatter:
        return library.reduce_scatter(out, x, counts, op);
      case Operation::all_gather:
        return library.all_gather(out, x, counts);
      case Operation::broadcast:
        return library.broadcast(out, root);
      case Operation::reduce:
        return library.reduce(out, x, op, root);
      case Operation::all_to_all:
        return library.all_to_all(out, x);
      case Operation::gather:
        return library.gather(out, x, counts, root);
      case Operation::scatter:
        return library.scatter(out, x, counts, root);
      case Operation::barrier:
        return library.barrier();
    }
  };
}

void BenchCall::fill() {
  const Turn& first = turns_.front();
  if (first.out.defined()) {
    backend_.fill(first.out, nothing_yet);
  }
  if (first.x.defined()) {
    data_.write(first.x, communicator_.rank(), 0);
  }
}

std::int64_t BenchCall::count_wrong() const {
  std::int64_t wrong = 0;
  for (const Expected& expected : turns_.front().expected) {
    wrong += data_.count_wrong(expected.part, expected.source, expected.first);
  }
  return wrong;
}

void BenchCall::flip_bit() const {
  const int receiver = only_root_gets(operation_) ? root_ : communicator_.world_size() - 1;
  if (communicator_.rank() != receiver) {
    return;
  }
  const Tensor element = turns_.front().out.slice(0, 1);
  std::array<std::byte, 8> bytes;
  const auto used = std::span(bytes).first(static_cast<std::size_t>(element.bytes().value));
  backend_.download(used, element);
  bytes[0] ^= std::byte{1};
  backend_.upload(element, used);
}

}  // namespace ringworld
