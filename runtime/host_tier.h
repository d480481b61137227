// Host memory beside a device: a budget and a ledger (a Device of its own), a backend that computes
// there, and the link to the device.
//
// On the CPU backend both memories are this machine's; the link's bandwidth, if given, makes the
// difference that PCIe makes. In a dry run nothing is copied; bytes and ledger are the same.
#pragma once

#include "runtime/tier.h"

namespace ringworld {

// A device whose messages speak of host memory. Budget 0: no limit.
std::shared_ptr<Device> make_host_device(Bytes budget,
                                         std::unique_ptr<MemorySource> source = make_host_memory());

struct HostTierOptions {
  double link_bytes_per_second = 0;  // between device and host, in each direction; 0: no limit
  // Nothing is copied: device and host have backends that hold no data.
  bool dry_run = false;
};

class HostTier final : public Tier {
 public:
  // `backend` is on a device from make_host_device.
  explicit HostTier(std::unique_ptr<Backend> backend, const HostTierOptions& options = {});

  // Allocates, and computes, in host memory.
  Backend& backend() { return *backend_; }
  bool dry_run() const { return dry_run_; }
  // Whether the tensor is in this host memory, so that it can be computed with here as it is.
  bool holds(const Tensor& x) const;

  // Between a tensor in host memory and one of as many bytes and the same dtype on `device`. The
  // bytes are copied when the call returns; the work is over when the link has carried them. Where
  // the device's tensor is in this host memory, nothing goes over the link.
  [[nodiscard]] Work copy_down(const Tensor& host, Backend& device, const Tensor& x);
  [[nodiscard]] Work copy_up(Backend& device, const Tensor& out, const Tensor& host);

  std::string description() const override { return "host memory"; }
  std::shared_ptr<const TierBlock> reserve(Bytes bytes, Category category) override;
  Work store(const std::shared_ptr<const TierBlock>& block, Backend& device,
             const Tensor& x) override;
  Work fetch(Backend& device, const Tensor& out,
             const std::shared_ptr<const TierBlock>& block) override;
  Ledger ledger() const override { return backend_->device().ledger(); }
  LinkTraffic traffic() const override { return link_.traffic(); }

 private:
  const std::unique_ptr<Backend> backend_;
  const bool dry_run_;
  Link link_;
};

}  // namespace ringworld
