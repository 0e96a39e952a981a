// A second device for tests: the CPU's memory and kernels under a name of its own (PyTorch's PrivateUse1), and CUDA's
// rules. So what forgets a device fails here as there: a CPU tensor beside one of the device's, numpy, products of whole
// numbers, draws by a CPU's generator, LAPACK's driver gelsd. Backward passes run in a thread of the device's, as CUDA's
// do. It tells nothing of CUDA's kernels, and nothing of time. The parts that a backend needs are those of PyTorch's
// test/cpp_extensions/open_registration_extension (BSD-3-Clause).
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_cpu_dispatch.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_cpu_dispatch.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/unfold_cpu_dispatch.h>
#include <ATen/ops/view_cpu_dispatch.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>

namespace {

using at::Tensor;
using Sizes = c10::IntArrayRef;
template <typename T> using Maybe = std::optional<T>;

const c10::Device DEVICE(c10::kPrivateUse1, 0);
const c10::DispatchKeySet KEYS(c10::DispatchKey::PrivateUse1);

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = c10::alloc_cpu(bytes);
    return {data, data, &c10::free_cpu, DEVICE};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};
Memory memory;
REGISTER_ALLOCATOR(c10::kPrivateUse1, &memory);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::kPrivateUse1;
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device) const override { return DEVICE; }
  c10::Device getDevice() const override { return DEVICE; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, DEVICE); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

Tensor empty(Sizes size, Maybe<at::ScalarType> dtype, Maybe<at::Layout>, Maybe<at::Device>, Maybe<bool>,
             Maybe<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &memory, KEYS, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(Sizes size, Sizes stride, Maybe<at::ScalarType> dtype, Maybe<at::Layout>, Maybe<at::Device>,
                     Maybe<bool>) {
  return at::detail::empty_strided_generic(size, stride, &memory, KEYS, c10::dtype_or_default(dtype));
}

Tensor at_home(const Tensor& own) {  // the same numbers in the same place, as the CPU's
  return own.is_cpu() ? own : at::from_blob(own.data_ptr(), own.sizes(), own.strides(), own.options().device(at::kCPU));
}

Tensor there(const Tensor& own) { return own.defined() ? own.to(DEVICE) : own; }

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  at_home(to).copy_(at_home(from));
  return to;
}

Tensor copy_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

Tensor& set(Tensor& own, c10::Storage storage, int64_t offset, Sizes size, Sizes stride) {
  return at::cpu::set_(own, storage, offset, size, stride);
}

Tensor& set_whole(Tensor& own, c10::Storage storage) { return at::cpu::set_(own, storage); }

Tensor convolution(const Tensor& x, const Tensor& weight, const Maybe<Tensor>& bias, Sizes stride, Sizes padding,
                   Sizes dilation, bool transposed, Sizes output_padding, int64_t groups) {
  TORCH_CHECK(!x.is_cpu() && !weight.is_cpu() && !(bias && bias->is_cpu()), "convolution: on two devices");
  Maybe<Tensor> own;
  if (bias && bias->defined()) own = at_home(*bias);
  return there(at::convolution(at_home(x), at_home(weight), own, stride, padding, dilation, transposed, output_padding,
                               groups));
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& error, const Tensor& x, const Tensor& weight,
                                                        Sizes stride, Sizes padding, Sizes dilation, bool transposed,
                                                        Sizes output_padding, int64_t groups, std::array<bool, 3> mask) {
  const int64_t biases[] = {transposed ? weight.size(1) * groups : weight.size(0)};
  auto [of_x, of_weight, of_bias] =
      at::convolution_backward(at_home(error), at_home(x), at_home(weight), Sizes(biases), stride, padding, dilation,
                               transposed, output_padding, groups, mask);
  return {there(of_x), there(of_weight), there(of_bias)};
}

bool among(const std::string& name, std::initializer_list<const char*> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Every other operator, by the CPU's kernel, unless CUDA refuses what it is given.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& name = op.schema().name();
  const auto& arguments = op.schema().arguments();
  const bool product = among(name, {"aten::mm", "aten::bmm", "aten::mv", "aten::dot", "aten::vdot", "aten::addmm",
                                    "aten::addmm_", "aten::addmv", "aten::baddbmm", "aten::baddbmm_"});
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = arguments[i];
    const auto& value = (*stack)[stack->size() - arguments.size() + i];
    const bool written = argument.alias_info() && argument.alias_info()->isWrite();
    const bool places = name.find("index") != name.npos && argument.name() == "indices";  // may be the CPU's
    auto check = [&](const Tensor& own) {
      TORCH_CHECK(!own.defined() || !own.is_cpu() || places || (own.dim() == 0 && !written), name, ": ",
                  argument.name(), " of shape ", own.sizes(), " is on the CPU, other tensors are not");
      TORCH_CHECK(!product || own.is_floating_point() || own.is_complex(), name, ": CUDA has none of ", own.dtype());
    };
    if (value.isTensor()) check(value.toTensor());
    if (value.isTensorList()) for (const Tensor& one : value.toTensorVector()) check(one);
    TORCH_CHECK(argument.name() != "generator", name, ": a draw on the device");
    TORCH_CHECK(argument.name() != "driver" || value.isNone() || value.toStringRef() == "gels", name, ": CUDA has gels");
  }
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_and_resize);
  m.impl("resize_", &at::cpu::resize_);
  m.impl("as_strided", &at::cpu::as_strided);
  m.impl("view", &at::cpu::view);
  m.impl("_reshape_alias", &at::cpu::_reshape_alias);
  m.impl("unfold", &at::cpu::unfold);
  m.impl("set_.source_Storage", &set_whole);
  m.impl("set_.source_Storage_storage_offset", &set);
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

const bool registered = (at::RegisterPrivateUse1HooksInterface(new Hooks), true);

}  // namespace
