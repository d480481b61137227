// The memory of one virtual GPU: a budget, and a ledger of who holds what.
//
// Every tensor's bytes are charged to a category when it is allocated and returned when its last
// view goes. What would pass the budget throws OutOfDeviceMemory with a report by category, before
// anything is taken. Where the memory really lives is the MemorySource's secret: host memory for
// the CPU backend, nothing at all for a dry run, mapped or CUDA memory for others.
//
// Thread safety: all members may be called from any thread; the communication stream allocates its
// staging while the main thread computes.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/bytes.h"

namespace ringworld {

enum class Category : std::uint8_t {
  parameters,
  gradients,
  optimizer,
  activations,
  gathered,
  communication,
  workspace,
};
inline constexpr std::size_t category_count = 7;
std::string_view name_of(Category category);

// What a device holds now and held at most, by category and in all. The peak of the whole is the
// largest sum at one moment, so it is at most the sum of the categories' peaks.
struct Ledger {
  std::array<Bytes, category_count> held{};
  std::array<Bytes, category_count> peak{};
  Bytes total_held;
  Bytes total_peak;

  Bytes held_in(Category c) const { return held[static_cast<std::size_t>(c)]; }
  Bytes peak_in(Category c) const { return peak[static_cast<std::size_t>(c)]; }
};

// Where a device's bytes come from. allocate returns 64-byte aligned memory of undefined content,
// or throws OutOfDeviceMemory when the machine itself has none left.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual std::byte* allocate(Bytes bytes) = 0;
  virtual void release(std::byte* address, Bytes bytes) = 0;
  // Whether there is anything at the addresses: where there is not, nobody may look.
  virtual bool holds_data() const { return true; }
};

std::unique_ptr<MemorySource> make_host_memory();
// For a dry run: distinct addresses, with nothing there. What reads or writes them all the same
// ends with a segmentation fault. A device poisons nothing then.
std::unique_ptr<MemorySource> make_no_memory();

#ifdef NDEBUG
inline constexpr bool poison_by_default = false;
#else
inline constexpr bool poison_by_default = true;
#endif

struct DeviceOptions {
  Bytes budget{0};  // 0: no limit
  // Fill what is allocated with NaN (all bits one), so that a read before a write shows.
  bool poison = poison_by_default;
  // What messages call this memory, and what they say to do when the budget is too small.
  std::string memory = "device memory";
  std::string remedy = "raise --device-memory, or use a smaller model, micro-batch or sequence";
};

// Hears how a device's ledger changes: for drawing memory over time. Called on the thread that
// allocates or gives back, while the device is locked: it is quick, calls nothing of the device,
// and throws nothing.
class DeviceObserver {
 public:
  virtual ~DeviceObserver() = default;
  virtual void changed(const Ledger& ledger) noexcept = 0;
};

// One tensor's memory; gives it back to the device when the last tensor that views it goes. Without
// a device it is another rank's memory, which this one may only read.
class Storage;

class Device : public std::enable_shared_from_this<Device> {
 public:
  static std::shared_ptr<Device> create(DeviceOptions options,
                                        std::unique_ptr<MemorySource> source = make_host_memory());
  ~Device();

  std::shared_ptr<const Storage> allocate(Bytes bytes, Category category);

  Ledger ledger() const;
  void reset_peaks();  // peaks become what is held now
  // From now on the observer, which outlives the device or is replaced before it goes, hears of the
  // ledger after every allocation and return; and at once, of how it stands. Null: nobody.
  void observe(DeviceObserver* observer);
  Bytes budget() const { return options_.budget; }
  // "parameters 12.0 MiB, gradients ..., total ..., peak ...": what is held, by category.
  std::string report() const;

 private:
  friend class Storage;
  Device(DeviceOptions options, std::unique_ptr<MemorySource> source);
  void give_back(std::byte* address, Bytes bytes, Category category);
  void tell_observer() const;  // with mutex_ held
  void trim();  // with mutex_ held: cached blocks go until held + cached is at most the highest

  const DeviceOptions options_;
  const std::unique_ptr<MemorySource> source_;
  mutable std::mutex mutex_;
  Ledger ledger_;
  DeviceObserver* observer_ = nullptr;
  // Blocks that were given back, by size, for reuse: a training step asks for the same sizes again
  // and again, and fresh pages cost a fault each.
  std::unordered_map<std::int64_t, std::vector<std::byte*>> cache_;
  Bytes cached_;
  Bytes highest_;  // total held at any time; not reset
};

class Storage {
 public:
  Storage(std::shared_ptr<Device> device, std::byte* address, Bytes bytes, Category category)
      : device_(std::move(device)), address_(address), bytes_(bytes), category_(category) {}
  ~Storage() {
    if (device_ != nullptr) {
      device_->give_back(address_, bytes_, category_);
    }
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* address() const { return address_; }  // for runtime/ only, see raw.h
  Bytes bytes() const { return bytes_; }
  Category category() const { return category_; }
  const Device* device() const { return device_.get(); }

 private:
  std::shared_ptr<Device> device_;
  std::byte* address_;
  Bytes bytes_;
  Category category_;
};

}  // namespace ringworld
