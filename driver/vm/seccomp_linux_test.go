package vm

import (
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A guest that has broken out of qemu must not be able to control its loop devices or the agent.
func TestRestrict(t *testing.T) {
	profile := seccomp.DefaultProfile(&specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}, Linux: &specs.Linux{}})
	restrict(profile)
	allowed := func(name string, command uint64) bool {
		return slices.ContainsFunc(profile.Syscalls, func(rule specs.LinuxSyscall) bool {
			return slices.Contains(rule.Names, name) && rule.Action == specs.ActAllow && !slices.ContainsFunc(rule.Args, func(a specs.LinuxSeccompArg) bool {
				return a.Index != 1 || a.Op != specs.OpMaskedEqual || command&a.Value != a.ValueTwo
			})
		})
	}
	for _, command := range []uint64{
		unix.LOOP_SET_FD, unix.LOOP_CLR_FD, unix.LOOP_SET_STATUS, unix.LOOP_SET_STATUS64, unix.LOOP_SET_CAPACITY, unix.LOOP_CONFIGURE,
		1<<32 | unix.LOOP_CLR_FD, 1<<63 | unix.LOOP_CLR_FD, // the kernel ignores the upper half
	} {
		if allowed("ioctl", command) {
			t.Errorf("ioctl %#x is allowed", command)
		}
	}
	for _, command := range []uint64{unix.TCGETS, unix.SIOCINQ, unix.TIOCGWINSZ, unix.TUNSETIFF, unix.BLKGETSIZE64, unix.BLKDISCARD, unix.BLKSSZGET, 0xae80 /* KVM_RUN */} {
		if !allowed("ioctl", command) {
			t.Errorf("ioctl %#x is not allowed", command)
		}
	}
	for _, name := range intrusive {
		if allowed(name, 0) {
			t.Errorf("%s is allowed", name)
		}
	}
	if !allowed("read", 0) {
		t.Error("read is not allowed")
	}
}
