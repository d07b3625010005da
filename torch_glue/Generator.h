// Philox generators of the neuron devices: a 64-bit seed and a 64-bit offset, nothing else, so that eager and compiled
// programs draw the same numbers.
#pragma once
#include <ATen/core/Generator.h>

#include <optional>
#include <utility>

namespace torch_neuronx {

struct PhiloxGenerator final : c10::GeneratorImpl {
  explicit PhiloxGenerator(c10::DeviceIndex device, uint64_t seed = c10::default_rng_seed_val);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  PhiloxGenerator* clone_impl() const override;
  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  // The seed and the offset for a call that draws `count` numbers; the offset moves on by `count`, rounded up to a
  // multiple of 4. Takes the lock.
  std::pair<uint64_t, uint64_t> draw(uint64_t count);

 private:
  uint64_t seed_, offset_ = 0;
};

const at::Generator& default_generator(c10::DeviceIndex index);
at::Generator new_generator(c10::DeviceIndex index);
// The given generator, or the device's default one; throws PyTorch's error for one of another device type.
PhiloxGenerator* generator_or_default(const std::optional<at::Generator>& generator, c10::DeviceIndex index);

} // namespace torch_neuronx
