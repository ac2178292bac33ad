package driver

import "github.com/bourse-dev/bourse"

// Labels of a driver of images.
const (
	LabelVM          = "runtime." + bourse.RuntimeVM // Accelerated or Emulated
	LabelVMEmulation = "vm.emulation"                // if set, orders need not allow emulation

	LabelDefaultRuntime = "default.runtime" // the runtime of machines that select none
)

// Values of LabelVM.
const (
	Accelerated = "kvm" // the host's processor runs the guests' programs
	Emulated    = "tcg" // qemu emulates the guests' processors, which takes about ten times as long
)
