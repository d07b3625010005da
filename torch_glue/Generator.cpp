#include "Generator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstring>
#include <mutex>

#include "Stream.h"

namespace torch_neuronx {
namespace {

constexpr size_t kSeedBytes = sizeof(uint64_t);
constexpr size_t kStateBytes = 2 * sizeof(uint64_t);

} // namespace

PhiloxGenerator::PhiloxGenerator(c10::DeviceIndex device, uint64_t seed)
    : c10::GeneratorImpl(
          c10::Device(c10::DeviceType::PrivateUse1, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(seed) {}

void PhiloxGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}
void PhiloxGenerator::set_offset(uint64_t offset) {
  TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
  offset_ = offset;
}
uint64_t PhiloxGenerator::get_offset() const {
  return offset_;
}
uint64_t PhiloxGenerator::current_seed() const {
  return seed_;
}
uint64_t PhiloxGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void PhiloxGenerator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK_TYPE(
      state.layout() == c10::kStrided && state.device_type() == c10::kCPU && state.dtype() == caffe2::TypeMeta::Make<uint8_t>(),
      "RNG state must be a torch.ByteTensor");
  TORCH_CHECK(state.is_contiguous(), "RNG state must be contiguous");
  auto bytes = static_cast<size_t>(state.numel());
  // A state of the seed alone starts at offset 0.
  TORCH_CHECK(bytes == kStateBytes || bytes == kSeedBytes, "RNG state is wrong size");
  const auto* data = static_cast<const char*>(state.data());
  uint64_t offset = 0;
  if (bytes == kStateBytes) std::memcpy(&offset, data + kSeedBytes, sizeof offset);
  TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
  std::memcpy(&seed_, data, sizeof seed_);
  offset_ = offset;
}

c10::intrusive_ptr<c10::TensorImpl> PhiloxGenerator::get_state() const {
  at::TensorBase state = at::detail::empty_cpu({static_cast<int64_t>(kStateBytes)}, at::kByte);
  auto* data = static_cast<char*>(state.mutable_data_ptr());
  std::memcpy(data, &seed_, kSeedBytes);
  std::memcpy(data + kSeedBytes, &offset_, sizeof offset_);
  return state.getIntrusivePtr();
}

PhiloxGenerator* PhiloxGenerator::clone_impl() const {
  auto* copy = new PhiloxGenerator(device().index(), seed_);
  copy->offset_ = offset_;
  return copy;
}

std::pair<uint64_t, uint64_t> PhiloxGenerator::draw(uint64_t count) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::pair<uint64_t, uint64_t> state{seed_, offset_};
  offset_ += (count + 3) / 4 * 4;
  return state;
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  struct Slot {
    std::once_flag once;
    at::Generator generator;
  };
  static auto* slots = new std::array<Slot, kMaxDevices>();
  index = checked_device(index);
  Slot& slot = (*slots)[static_cast<size_t>(index)];
  std::call_once(slot.once, [&] { slot.generator = at::make_generator<PhiloxGenerator>(index); });
  return slot.generator;
}

at::Generator new_generator(c10::DeviceIndex index) {
  return at::make_generator<PhiloxGenerator>(checked_device(index));
}

PhiloxGenerator* generator_or_default(const std::optional<at::Generator>& generator, c10::DeviceIndex index) {
  const at::Generator& g = generator && generator->defined() ? *generator : default_generator(index);
  TORCH_CHECK(
      g.device().type() == c10::DeviceType::PrivateUse1,
      "Expected a 'neuron' device type for generator but found '",
      c10::DeviceTypeName(g.device().type(), true),
      "'");
  return static_cast<PhiloxGenerator*>(g.unsafeGetGeneratorImpl());
}

} // namespace torch_neuronx
