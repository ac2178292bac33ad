package vm

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// loopType is the type byte of the ioctls for loop devices. With these ioctls, a program could
// detach a loop device from its file, attach it to another file, or make the host's kernel read the
// partition table in it. See linux/loop.h and the kernel's ioctl-number.rst.
const loopType = 'L'

// intrusive lists system calls that a program could use to take over the agent. The agent must be
// protected, because it prevents the kernel from reassigning the device numbers of the machine's
// volumes.
var intrusive = []string{"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp"}

// restrict removes the system calls in intrusive and the ioctls for loop devices from profile. qemu
// does not need them, but a guest that has taken over qemu could use them to attack the agent or
// the volumes' devices.
func restrict(profile *specs.LinuxSeccomp) {
	for i := range profile.Syscalls {
		rule := &profile.Syscalls[i]
		rule.Names = slices.DeleteFunc(slices.Clone(rule.Names), func(name string) bool { return name == "ioctl" || slices.Contains(intrusive, name) })
	}
	profile.Syscalls = slices.DeleteFunc(profile.Syscalls, func(rule specs.LinuxSyscall) bool { return len(rule.Names) == 0 })
	// Allow ioctls of every type except loopType. A rule can only test whether certain bits of an
	// argument have certain values. There is therefore one rule for each bit of the type. The rule
	// matches if that bit differs from the same bit of loopType. The rules must not test the upper
	// half of the argument, because the kernel ignores it.
	for bit := uint64(1) << 8; bit < 1<<16; bit <<= 1 {
		profile.Syscalls = append(profile.Syscalls, specs.LinuxSyscall{
			Names: []string{"ioctl"}, Action: specs.ActAllow,
			Args: []specs.LinuxSeccompArg{{Index: 1, Op: specs.OpMaskedEqual, Value: bit, ValueTwo: ^uint64(loopType<<8) & bit}},
		})
	}
}
