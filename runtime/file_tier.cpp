#include "runtime/file_tier.h"

#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "runtime/async_io.h"
#include "runtime/error.h"
#include "runtime/raw.h"
#include "runtime/scratch_file.h"

namespace ringworld {
namespace {

constexpr const char* directory_option = "--offload-path";

// A file's blocks are charged to a Device, but are nowhere in memory.
class NoAddresses final : public MemorySource {
 public:
  std::byte* allocate(Bytes) override { return nullptr; }
  void release(std::byte*, Bytes) override {}
};

Bytes whole_pages(Bytes bytes) {
  return Bytes((bytes.value + file_alignment - 1) / file_alignment * file_alignment);
}

std::unique_ptr<AsyncIo> make_io(bool allow_io_uring) {
  std::string why_not;
  std::unique_ptr<AsyncIo> io = allow_io_uring ? make_uring_io(why_not) : nullptr;
  return io != nullptr ? std::move(io) : make_thread_io();
}

}  // namespace

void check_offload_directory(const std::string& directory) {
  const ScratchFile file(directory, directory_option, /*allow_direct=*/false);
}

// Lives until the last block and the last transfer are gone.
struct FileTier::State {
  State(const FileTierOptions& options, bool dry_run)
      : device(Device::create({.budget = options.budget,
                               .poison = false,
                               .memory = "file memory",
                               .remedy = "raise --file-memory, or offload less"},
                              std::make_unique<NoAddresses>())),
        link(options.link_bytes_per_second) {
    if (!dry_run) {
      file.emplace(options.directory, directory_option, options.allow_direct);
      io = make_io(options.allow_io_uring);
    }
  }

  // Where a block of this size begins.
  std::int64_t take(Bytes pages) {
    const std::lock_guard lock(mutex);
    std::vector<std::int64_t>& holes = free[pages.value];
    if (!holes.empty()) {
      const std::int64_t offset = holes.back();
      holes.pop_back();
      return offset;
    }
    const std::int64_t offset = size.value;
    if (file) {
      file->grow(size + pages);
    }
    size += pages;
    return offset;
  }

  void give_back(std::int64_t offset, Bytes pages) {
    const std::lock_guard lock(mutex);
    free[pages.value].push_back(offset);
  }

  // After a failure what the blocks hold is not known; everything that follows fails as that did.
  void check() {
    const std::lock_guard lock(mutex);
    if (!failure.empty()) {
      throw DataError(failure);
    }
  }
  void fail(LinkDirection direction, const std::system_error& error) {
    const std::lock_guard lock(mutex);
    if (failure.empty()) {
      failure = fmt::format(
          "{} {}: offloaded state could not be {}: {}; the state is lost, so nothing more is "
          "trained: check the disk, then start again",
          directory_option, file->directory(),
          direction == LinkDirection::down ? "written" : "read", error.code().message());
    }
  }

  const std::shared_ptr<Device> device;
  Link link;
  std::optional<ScratchFile> file;  // none in a dry run
  std::unique_ptr<AsyncIo> io;
  std::mutex mutex;
  Bytes size;
  std::map<std::int64_t, std::vector<std::int64_t>> free;  // by size: offsets
  std::string failure;
};

class FileTier::Block final : public TierBlock {
 public:
  Block(std::shared_ptr<State> state, Bytes bytes, Category category)
      : state_(std::move(state)),
        bytes_(bytes),
        charge_(state_->device->allocate(whole_pages(bytes), category)),
        offset_(state_->take(whole_pages(bytes))) {}
  ~Block() override { state_->give_back(offset_, whole_pages(bytes_)); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  Bytes bytes() const override { return bytes_; }
  std::int64_t offset() const { return offset_; }
  const State* state() const { return state_.get(); }

 private:
  const std::shared_ptr<State> state_;
  const Bytes bytes_;
  const std::shared_ptr<const Storage> charge_;
  const std::int64_t offset_;
};

// A read or write, and what it holds on to until it is over.
class FileTier::Transfer final : public Work::Task {
 public:
  Transfer(std::shared_ptr<State> state, LinkDirection direction,
           std::shared_ptr<const TierBlock> block, Tensor staged, Work before)
      : state_(std::move(state)),
        direction_(direction),
        block_(std::move(block)),
        staged_(std::move(staged)),
        before_(std::move(before)) {
    const auto& place = static_cast<const Block&>(*block_);
    carried_ = state_->link.begin(direction, place.bytes());
    if (state_->io == nullptr) {
      return;
    }
    const std::span<std::byte> pages(raw_bytes(staged_),
                                     static_cast<std::size_t>(whole_pages(place.bytes()).value));
    const int file = state_->file->descriptor();
    io_ = direction == LinkDirection::down ? state_->io->write(file, pages, place.offset())
                                           : state_->io->read(file, pages, place.offset());
  }
  ~Transfer() override {
    try {
      wait_for_io();
    } catch (const std::exception&) {
      // The tier remembers it, and says so when it is used next.
    }
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  void wait() override {
    wait_for_io();
    before_.wait();
    carried_.wait();
    state_->check();
  }
  bool done() override { return io_.done() && before_.done() && carried_.done(); }

 private:
  void wait_for_io() {
    try {
      io_.wait();
    } catch (const std::system_error& error) {
      state_->fail(direction_, error);
    }
  }

  const std::shared_ptr<State> state_;
  const LinkDirection direction_;
  const std::shared_ptr<const TierBlock> block_;
  const Tensor staged_;
  Work before_;  // brings the bytes to be written
  Work carried_;
  Work io_;
};

// A read, then the way from host memory to the device.
class FileTier::Fetch final : public Work::Task {
 public:
  Fetch(HostTier& host, Backend& device, Tensor out, Tensor staged, Work read)
      : host_(host),
        device_(device),
        out_(std::move(out)),
        staged_(std::move(staged)),
        read_(std::move(read)) {}

  void wait() override {
    if (staged_.defined()) {
      read_.wait();
      up_ = host_.copy_up(device_, out_, staged_);
      staged_ = {};
    }
    up_.wait();
  }
  bool done() override { return staged_.defined() ? read_.done() : up_.done(); }

 private:
  HostTier& host_;
  Backend& device_;
  const Tensor out_;
  Tensor staged_;  // until the bytes are on their way up
  Work read_;
  Work up_;
};

FileTier::FileTier(const FileTierOptions& options, HostTier& host)
    : host_(host), state_(std::make_shared<State>(options, host.dry_run())) {}

FileTier::~FileTier() = default;

std::string FileTier::description() const {
  if (!state_->file) {
    return "file (none: a dry run)";
  }
  return fmt::format("file in {} ({}, {})", state_->file->directory(), state_->io->name(),
                     state_->file->direct() ? "direct" : "buffered");
}

std::shared_ptr<const TierBlock> FileTier::reserve(Bytes bytes, Category category) {
  return std::make_shared<Block>(state_, bytes, category);
}

Tensor FileTier::staging(DType dtype, std::int64_t elements) {
  const Bytes size = size_of(dtype);
  const Bytes room = whole_pages(elements * size) + Bytes(file_alignment);
  const Tensor memory =
      host_.backend().empty(dtype, Shape{room.value / size.value}, Category::workspace);
  std::int64_t first = 0;
  if (!host_.dry_run()) {
    const auto past_page = reinterpret_cast<std::uintptr_t>(raw_bytes(memory)) % file_alignment;
    first = static_cast<std::int64_t>((file_alignment - past_page) % file_alignment) / size.value;
  }
  return memory.slice(first, elements);
}

Work FileTier::begin(LinkDirection direction, const std::shared_ptr<const TierBlock>& block,
                     const Tensor& staged, Work before) {
  const auto* ours = dynamic_cast<const Block*>(block.get());
  if (ours == nullptr || ours->state() != state_.get() || ours->bytes() != staged.bytes()) {
    throw std::invalid_argument(
        fmt::format("{} for a block of another tier or size", to_string(staged.bytes())));
  }
  if (!host_.dry_run()) {
    const std::byte* const begin = raw_bytes(staged);
    const std::byte* const end = staged.storage()->address() + staged.storage()->bytes().value;
    if (reinterpret_cast<std::uintptr_t>(begin) % file_alignment != 0 ||
        end - begin < whole_pages(staged.bytes()).value) {
      throw std::invalid_argument("a transfer of a file tier without memory from its staging");
    }
  }
  state_->check();
  return Work(std::make_shared<Transfer>(state_, direction, block, staged, std::move(before)));
}

Work FileTier::write(const std::shared_ptr<const TierBlock>& block, const Tensor& staged) {
  return begin(LinkDirection::down, block, staged, {});
}

Work FileTier::read(const Tensor& staged, const std::shared_ptr<const TierBlock>& block) {
  return begin(LinkDirection::up, block, staged, {});
}

Work FileTier::store(const std::shared_ptr<const TierBlock>& block, Backend& device,
                     const Tensor& x) {
  const Tensor staged = staging(x.dtype(), x.elements());
  Work down = host_.copy_down(staged, device, x.view(Shape{x.elements()}));
  return begin(LinkDirection::down, block, staged, std::move(down));
}

Work FileTier::fetch(Backend& device, const Tensor& out,
                     const std::shared_ptr<const TierBlock>& block) {
  const Tensor staged = staging(out.dtype(), out.elements());
  Work read = begin(LinkDirection::up, block, staged, {});
  return Work(std::make_shared<Fetch>(host_, device, out, staged, std::move(read)));
}

Ledger FileTier::ledger() const {
  return state_->device->ledger();
}

LinkTraffic FileTier::traffic() const {
  return state_->link.traffic();
}

}  // namespace ringworld
