// Files as a tier: blocks of one file per rank, read and written beside computation, as
// ZeRO-Infinity does with NVMe (Rajbhandari et al., SC 2021, section 5.2).
//
// The file is made when the tier is and grows, with real blocks, when a block is reserved, so that
// a full disk is found before anything is computed. It has no name: nothing is left of it when the
// process ends, however it ends. Transfers are direct, past the page cache, where the file system
// allows it; through io_uring, or threads where that is forbidden. description() says which.
#pragma once

#include "runtime/host_tier.h"

namespace ringworld {

struct FileTierOptions {
  std::string directory;  // --offload-path
  // --file-memory; 0: no limit. A block counts as whole pages of 4096 bytes, as it is kept.
  Bytes budget{0};
  double link_bytes_per_second = 0;  // between host and file, in each direction; 0: no limit
  bool allow_direct = true;
  bool allow_io_uring = true;
};

// Throws DataError as the tier does when the directory is missing or cannot be written to. Nothing
// is left there.
void check_offload_directory(const std::string& directory);

class FileTier final : public Tier {
 public:
  // What lies on the way between device and file is in `host`, which outlives the tier. Throws
  // DataError when the directory is missing or cannot be written to. Where `host` is a dry run's,
  // there is no file: bytes and ledger are counted alone.
  FileTier(const FileTierOptions& options, HostTier& host);
  ~FileTier() override;

  // Host memory to read into and write from: as many elements, charged to the host's workspace,
  // with up to two pages more around it. A slice from element 0 serves as well; a read may then
  // change what follows it.
  Tensor staging(DType dtype, std::int64_t elements);
  // Between a block and a tensor from staging(), or its front, of exactly as many bytes. Otherwise
  // as store and fetch.
  [[nodiscard]] Work write(const std::shared_ptr<const TierBlock>& block, const Tensor& staged);
  [[nodiscard]] Work read(const Tensor& staged, const std::shared_ptr<const TierBlock>& block);

  std::string description() const override;
  std::shared_ptr<const TierBlock> reserve(Bytes bytes, Category category) override;
  // Through host memory that is held until the work is over.
  Work store(const std::shared_ptr<const TierBlock>& block, Backend& device,
             const Tensor& x) override;
  Work fetch(Backend& device, const Tensor& out,
             const std::shared_ptr<const TierBlock>& block) override;
  Ledger ledger() const override;
  LinkTraffic traffic() const override;

 private:
  struct State;
  class Block;
  class Transfer;
  class Fetch;
  Work begin(LinkDirection direction, const std::shared_ptr<const TierBlock>& block,
             const Tensor& staged, Work before);

  HostTier& host_;
  std::shared_ptr<State> state_;
};

}  // namespace ringworld
