// A tier: memory beside the device, larger and slower, in which blocks of bytes wait until they are
// needed. ZeRO-Offload (Ren et al., USENIX ATC 2021) puts it into host memory, ZeRO-Infinity
// (Rajbhandari et al., SC 2021) into files on NVMe as well. host_tier.h and file_tier.h are the
// two.
//
// A tier has a budget and a ledger of its own. Both follow from what the program asks for alone,
// never from timing.
#pragma once

#include <memory>
#include <string>

#include "runtime/backend.h"
#include "runtime/link.h"
#include "runtime/stream.h"

namespace ringworld {

// A piece of a tier's memory; goes back to it with the last handle.
class TierBlock {
 public:
  virtual ~TierBlock() = default;
  virtual Bytes bytes() const = 0;
};

class Tier {
 public:
  virtual ~Tier() = default;

  // "host memory", "file (io_uring, direct)": for people.
  virtual std::string description() const = 0;

  // Content is undefined until the first store. Throws OutOfDeviceMemory, in words of this tier,
  // when it would pass the budget, and DataError when a file cannot be that large.
  virtual std::shared_ptr<const TierBlock> reserve(Bytes bytes, Category category) = 0;

  // Between a block and a tensor of exactly as many bytes on `device`. The transfer runs beside
  // what the caller does next; until it has waited for the work, the caller leaves the tensor
  // alone and begins nothing else with the block. wait throws DataError when the transfer failed,
  // after which the tier refuses everything. A work that is dropped is waited for first. Device and
  // tier outlive the work.
  [[nodiscard]] virtual Work store(const std::shared_ptr<const TierBlock>& block, Backend& device,
                                   const Tensor& x) = 0;
  [[nodiscard]] virtual Work fetch(Backend& device, const Tensor& out,
                                   const std::shared_ptr<const TierBlock>& block) = 0;

  virtual Ledger ledger() const = 0;
  // Since the tier was made: to the next tier above, so of a file between file and host memory.
  virtual LinkTraffic traffic() const = 0;
};

}  // namespace ringworld
