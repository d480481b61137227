#include "runtime/device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

constexpr std::string_view category_names[category_count] = {
    "parameters", "gradients", "optimizer", "activations", "gathered", "communication", "workspace",
};

constexpr std::int64_t alignment = 64;
// From here on, blocks are mapped on their own, so that what is released leaves the process at once
// and its resident size follows the ledger.
constexpr std::int64_t mapped_from = 256 * 1024;
// From here on, huge pages save most of the page faults and translation misses.
constexpr std::int64_t huge_pages_from = 8 << 20;

std::int64_t rounded(Bytes bytes, std::int64_t unit) {
  return (bytes.value + unit - 1) / unit * unit;
}

class HostMemory : public MemorySource {
 public:
  std::byte* allocate(Bytes bytes) override {
    void* address = nullptr;
    if (bytes.value >= mapped_from) {
      address = mmap(nullptr, static_cast<std::size_t>(bytes.value), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (address == MAP_FAILED) {
        address = nullptr;
      }
#ifdef MADV_HUGEPAGE
      if (address != nullptr && bytes.value >= huge_pages_from) {
        madvise(address, static_cast<std::size_t>(bytes.value), MADV_HUGEPAGE);
      }
#endif
    } else {
      address = std::aligned_alloc(alignment, static_cast<std::size_t>(rounded(bytes, alignment)));
    }
    if (address == nullptr) {
      throw OutOfDeviceMemory(fmt::format(
          "this machine has no {} left for a virtual GPU; run fewer ranks or a smaller model",
          to_string(bytes)));
    }
    return static_cast<std::byte*>(address);
  }

  void release(std::byte* address, Bytes bytes) override {
    if (bytes.value >= mapped_from) {
      munmap(address, static_cast<std::size_t>(bytes.value));
    } else {
      std::free(address);
    }
  }
};

// Addresses that no process has: x86-64 and ARM use the lowest 2^57 at most, and 2^60 is far from
// wrapping around, too.
class NoMemory final : public MemorySource {
 public:
  std::byte* allocate(Bytes bytes) override {
    const std::uintptr_t address = next_;
    next_ += static_cast<std::uintptr_t>(rounded(bytes, alignment));
    return reinterpret_cast<std::byte*>(address);
  }
  void release(std::byte* /*address*/, Bytes /*bytes*/) override {}
  bool holds_data() const override { return false; }

 private:
  std::uintptr_t next_ = std::uintptr_t{1} << 60;
};

void charge(Ledger& ledger, Category category, Bytes bytes) {
  const auto c = static_cast<std::size_t>(category);
  ledger.held[c] += bytes;
  ledger.total_held += bytes;
  ledger.peak[c] = std::max(ledger.peak[c], ledger.held[c]);
  ledger.total_peak = std::max(ledger.total_peak, ledger.total_held);
}

std::string describe(const Ledger& ledger) {
  std::string text;
  for (std::size_t c = 0; c < category_count; ++c) {
    if (ledger.held[c].value > 0) {
      text += fmt::format("{} {}, ", category_names[c], to_string(ledger.held[c]));
    }
  }
  return fmt::format("{}total {}", text, to_string(ledger.total_held));
}

}  // namespace

std::string_view name_of(Category category) {
  return category_names[static_cast<std::size_t>(category)];
}

std::unique_ptr<MemorySource> make_host_memory() {
  return std::make_unique<HostMemory>();
}

std::unique_ptr<MemorySource> make_no_memory() {
  return std::make_unique<NoMemory>();
}

std::shared_ptr<Device> Device::create(DeviceOptions options,
                                       std::unique_ptr<MemorySource> source) {
  return std::shared_ptr<Device>(new Device(std::move(options), std::move(source)));
}

Device::Device(DeviceOptions options, std::unique_ptr<MemorySource> source)
    : options_(std::move(options)), source_(std::move(source)) {}

Device::~Device() {
  for (auto& [size, blocks] : cache_) {
    for (std::byte* block : blocks) {
      source_->release(block, Bytes(size));
    }
  }
}

std::shared_ptr<const Storage> Device::allocate(Bytes bytes, Category category) {
  std::byte* address = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (options_.budget.value > 0 && ledger_.total_held + bytes > options_.budget) {
      throw OutOfDeviceMemory(
          fmt::format("out of {}: asked for {} of {}, the budget is {}, held: {}; {}",
                      options_.memory, to_string(bytes), name_of(category),
                      to_string(options_.budget), describe(ledger_), options_.remedy));
    }
    const auto cached = cache_.find(bytes.value);
    if (cached != cache_.end() && !cached->second.empty()) {
      address = cached->second.back();
      cached->second.pop_back();
      cached_ -= bytes;
    }
    charge(ledger_, category, bytes);
    highest_ = std::max(highest_, ledger_.total_held);
    trim();
    if (address == nullptr && bytes.value > 0) {
      try {
        address = source_->allocate(bytes);
      } catch (...) {
        ledger_.held[static_cast<std::size_t>(category)] -= bytes;
        ledger_.total_held -= bytes;
        throw;
      }
    }
    tell_observer();
  }
  if (options_.poison && bytes.value > 0 && source_->holds_data()) {
    std::memset(address, 0xff, static_cast<std::size_t>(bytes.value));
  }
  return std::make_shared<const Storage>(shared_from_this(), address, bytes, category);
}

void Device::give_back(std::byte* address, Bytes bytes, Category category) {
  const std::lock_guard lock(mutex_);
  ledger_.held[static_cast<std::size_t>(category)] -= bytes;
  ledger_.total_held -= bytes;
  if (address != nullptr) {
    cache_[bytes.value].push_back(address);
    cached_ += bytes;
    trim();
  }
  tell_observer();
}

void Device::tell_observer() const {
  if (observer_ != nullptr) {
    observer_->changed(ledger_);
  }
}

// Keeping blocks must not make the process larger than the ledger says it was at its highest.
void Device::trim() {
  for (auto entry = cache_.begin();
       entry != cache_.end() && ledger_.total_held + cached_ > highest_;) {
    auto& [size, blocks] = *entry;
    while (!blocks.empty() && ledger_.total_held + cached_ > highest_) {
      source_->release(blocks.back(), Bytes(size));
      blocks.pop_back();
      cached_ -= Bytes(size);
    }
    entry = blocks.empty() ? cache_.erase(entry) : std::next(entry);
  }
}

Ledger Device::ledger() const {
  const std::lock_guard lock(mutex_);
  return ledger_;
}

void Device::reset_peaks() {
  const std::lock_guard lock(mutex_);
  ledger_.peak = ledger_.held;
  ledger_.total_peak = ledger_.total_held;
}

void Device::observe(DeviceObserver* observer) {
  const std::lock_guard lock(mutex_);
  observer_ = observer;
  tell_observer();
}

std::string Device::report() const {
  const Ledger now = ledger();
  return fmt::format("{}, peak {}", describe(now), to_string(now.total_peak));
}

}  // namespace ringworld
