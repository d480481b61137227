#include "training/offloaded_optimizer.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "runtime/clock.h"

namespace ringworld {
namespace {

// Consecutive elements of a shard, which begin at element `at` of their block.
struct Piece {
  std::size_t shard = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t at = 0;
};

// What is updated at once: pieces of consecutive shards. Its state is one tensor of planes of
// `elements` each: UpdateRule's states, then the master at level master.
struct Block {
  std::vector<Piece> pieces;
  std::int64_t elements = 0;
  Tensor state;                           // in host memory, or
  std::shared_ptr<const TierBlock> file;  // in the file
};

std::vector<Block> cut(const std::vector<Shard>& shards, std::int64_t block_elements) {
  std::vector<Block> blocks;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const std::int64_t elements = shards[s].value.elements();
    for (std::int64_t first = 0; first < elements;) {
      if (blocks.empty() || blocks.back().elements == block_elements) {
        blocks.emplace_back();
      }
      Block& block = blocks.back();
      const std::int64_t count = std::min(elements - first, block_elements - block.elements);
      block.pieces.push_back({s, first, count, block.elements});
      block.elements += count;
      first += count;
    }
  }
  return blocks;
}

// Host memory for one block on its way, and what is on the way.
struct Slot {
  Tensor gradient;  // (elements of a block), as the other two
  Tensor master;    // where the master comes down from the device
  Tensor value;     // where it has another dtype than the master, which is not on the device
  Tensor state;     // (planes * elements) from FileTier::staging, where the state is in a file
  std::vector<Work> in;
  std::vector<Work> out;
};

void finish(std::vector<Work>& works) {
  for (Work& work : works) {
    work.wait();
  }
  works.clear();
}

// While block i is computed, block i + 1 comes and block i - 1 goes; three slots are enough. The
// kernels are elementwise and the same as the resident optimizer's, so the blocks' borders change
// no bit of the result.
class OffloadedOptimizer final : public Optimizer {
 public:
  OffloadedOptimizer(const OptimizerOptions& options, const std::vector<Shard>& shards,
                     Backend& device, const OffloadOptions& offload)
      : rule_(options),
        shards_(shards),
        device_(device),
        host_(*offload.host),
        file_(offload.file),
        master_offloaded_(offload.level == OffloadLevel::master),
        planes_(rule_.states() + (master_offloaded_ ? 1 : 0)) {
    if (shards.empty()) {
      return;
    }
    dtype_ = state_dtype(shards[0]);
    const DType value_dtype = shards[0].value.dtype();
    mixed_ = value_dtype != dtype_;
    for (const Shard& shard : shards) {
      if (state_dtype(shard) != dtype_ || shard.value.dtype() != value_dtype) {
        throw std::invalid_argument("offloaded shards of several dtypes");
      }
    }
    blocks_ = cut(shards, std::max<std::int64_t>(1, offload.block.value / size_of(dtype_).value));
    make_slots(value_dtype);
    if (mixed_ && !master_offloaded_) {
      for (const Shard& shard : shards) {
        masters_.push_back(device.empty(dtype_, shard.value.shape(), Category::optimizer));
        device.cast(masters_.back(), shard.value);
      }
    }
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      initialize_state(i);
    }
    for (Slot& slot : slots_) {
      finish(slot.out);
    }
  }

  void step(double learning_rate, double gradient_scale) override {
    const auto start = Clock::now();
    computed_seconds_ = 0;
    const UpdateStep step{learning_rate, gradient_scale, ++steps_};
    if (!blocks_.empty()) {
      bring(0);
    }
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (i + 1 < blocks_.size()) {
        bring(i + 1);
      }
      finish(slot_of(i).in);
      update(i, step);
    }
    // What could not be written is said before anybody relies on it.
    for (Slot& slot : slots_) {
      finish(slot.out);
    }
    traffic_.seconds_waited += std::max(0.0, seconds_since(start) - computed_seconds_);
  }

  OffloadTraffic traffic() const override { return traffic_; }

 private:
  Slot& slot_of(std::size_t block) { return slots_[block % slots_.size()]; }

  // Block 0 is the largest: only the last one may hold less than a full block.
  void make_slots(DType value_dtype) {
    slots_.resize(std::min<std::size_t>(blocks_.size(), 3));
    for (Slot& slot : slots_) {
      const Shape shape{blocks_[0].elements};
      Backend& host = host_.backend();
      slot.gradient = host.empty(dtype_, shape, Category::workspace);
      if (!master_offloaded_) {
        slot.master = host.empty(dtype_, shape, Category::workspace);
      } else if (mixed_) {
        slot.value = host.empty(value_dtype, shape, Category::workspace);
      }
      if (file_ != nullptr) {
        slot.state = file_->staging(dtype_, planes_ * blocks_[0].elements);
      }
    }
  }

  // Zero moments, and a master that is the value.
  void initialize_state(std::size_t i) {
    Block& block = blocks_[i];
    Slot& slot = slot_of(i);
    finish(slot.out);
    const std::int64_t elements = planes_ * block.elements;
    Tensor state;
    if (file_ != nullptr) {
      block.file = file_->reserve(elements * size_of(dtype_), Category::optimizer);
      state = slot.state.slice(0, elements);
    } else {
      block.state = host_.backend().empty(dtype_, Shape{elements}, Category::optimizer);
      state = block.state;
    }
    host_.backend().fill(state.slice(0, rule_.states() * block.elements), 0);
    if (master_offloaded_) {
      for (const Piece& piece : block.pieces) {
        const Tensor master = plane(state, block, rule_.states(), piece);
        const Tensor value = shards_[piece.shard].value.slice(piece.first, piece.count);
        if (mixed_) {
          const Tensor staged = slot.value.slice(piece.at, piece.count);
          down(staged, value).wait();
          host_.backend().cast(master, staged);
        } else {
          down(master, value).wait();
        }
      }
    }
    if (file_ != nullptr) {
      write(block, state, slot.out);
    }
  }

  static Tensor plane(const Tensor& state, const Block& block, int index, const Piece& piece) {
    return state.slice(index * block.elements + piece.at, piece.count);
  }

  // What is updated, where it is on the device between steps.
  const Tensor& resident_master(const Piece& piece) const {
    return mixed_ ? masters_[piece.shard] : shards_[piece.shard].value;
  }

  // Everything that block i needs sets out for host memory.
  void bring(std::size_t i) {
    const Block& block = blocks_[i];
    Slot& slot = slot_of(i);
    finish(slot.out);
    if (file_ != nullptr) {
      const Tensor state = slot.state.slice(0, planes_ * block.elements);
      slot.in.push_back(file_->read(state, block.file));
      traffic_.file_read += state.bytes();
    }
    for (const Piece& piece : block.pieces) {
      const auto come = [&](const Tensor& staging, const Tensor& x) {
        if (!host_.holds(x)) {
          slot.in.push_back(
              down(staging.slice(piece.at, piece.count), x.slice(piece.first, piece.count)));
        }
      };
      come(slot.gradient, shards_[piece.shard].gradient);
      if (!master_offloaded_) {
        come(slot.master, resident_master(piece));
      }
    }
  }

  // Where all of it is there: the update, and its results set out.
  void update(std::size_t i, const UpdateStep& step) {
    const Block& block = blocks_[i];
    Slot& slot = slot_of(i);
    const Tensor state =
        file_ != nullptr ? slot.state.slice(0, planes_ * block.elements) : block.state;
    for (const Piece& piece : block.pieces) {
      const Shard& shard = shards_[piece.shard];
      // What is in host memory anyway is used where it is.
      const auto here = [&](const Tensor& staging, const Tensor& x) {
        return host_.holds(x) ? x.slice(piece.first, piece.count)
                              : staging.slice(piece.at, piece.count);
      };
      const Tensor gradient = here(slot.gradient, shard.gradient);
      const Tensor master = master_offloaded_ ? plane(state, block, rule_.states(), piece)
                                              : here(slot.master, resident_master(piece));
      std::array<Tensor, 2> states;
      for (int s = 0; s < rule_.states(); ++s) {
        states[static_cast<std::size_t>(s)] = plane(state, block, s, piece);
      }
      const auto start = Clock::now();
      rule_.apply(host_.backend(), master,
                  std::span(states).first(static_cast<std::size_t>(rule_.states())), gradient,
                  shard.parameter->decay, step);
      computed_seconds_ += seconds_since(start);
      send_up(piece, master, slot);
    }
    if (file_ != nullptr) {
      write(block, state, slot.out);
    }
  }

  void send_up(const Piece& piece, const Tensor& master, Slot& slot) {
    const Tensor value = shards_[piece.shard].value.slice(piece.first, piece.count);
    if (!mixed_) {
      if (!master.same_view(value)) {
        up(value, master, slot.out);
      }
      return;
    }
    const auto start = Clock::now();
    if (master_offloaded_) {
      const Tensor rounded = slot.value.slice(piece.at, piece.count);
      host_.backend().cast(rounded, master);
      computed_seconds_ += seconds_since(start);
      up(value, rounded, slot.out);
    } else {
      const Tensor resident = masters_[piece.shard].slice(piece.first, piece.count);
      up(resident, master, slot.out);
      device_.cast(value, resident);
    }
  }

  Work down(const Tensor& host, const Tensor& x) {
    traffic_.to_host += host_.holds(x) ? Bytes(0) : x.bytes();
    return host_.copy_down(host, device_, x);
  }
  void up(const Tensor& out, const Tensor& host, std::vector<Work>& works) {
    traffic_.to_device += host_.holds(out) ? Bytes(0) : out.bytes();
    works.push_back(host_.copy_up(device_, out, host));
  }
  void write(const Block& block, const Tensor& state, std::vector<Work>& works) {
    works.push_back(file_->write(block.file, state));
    traffic_.file_written += state.bytes();
  }

  const UpdateRule rule_;
  const std::vector<Shard>& shards_;
  Backend& device_;
  HostTier& host_;
  FileTier* const file_;
  const bool master_offloaded_;
  const int planes_;  // tensors of state for each of gradients, the offloaded master among them
  DType dtype_ = DType::f32;
  bool mixed_ = false;
  std::vector<Block> blocks_;
  std::vector<Slot> slots_;
  std::vector<Tensor> masters_;  // as the shards; where they are mixed and stay on the device
  std::int64_t steps_ = 0;
  OffloadTraffic traffic_;
  double computed_seconds_ = 0;  // in this step
};

}  // namespace

std::unique_ptr<Optimizer> make_offloaded_optimizer(const OptimizerOptions& options,
                                                    const std::vector<Shard>& shards,
                                                    Backend& backend,
                                                    const OffloadOptions& offload) {
  if (offload.host == nullptr) {
    throw std::invalid_argument("an offloaded optimizer without a host tier");
  }
  return std::make_unique<OffloadedOptimizer>(options, shards, backend, offload);
}

}  // namespace ringworld
