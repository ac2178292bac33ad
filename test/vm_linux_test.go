package test

import (
	"fmt"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/internal/vmtest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// newVMYard returns a yard with one worker that can run virtual machines.
func newVMYard(t *testing.T) *yard {
	t.Helper()
	kernel := vmtest.Find(t).Kernel()
	vmtest.Cached(t, "modules", "scripts/need-kernel")
	return newYardOf(t, 1, servertest.BuildWithAgent(t), "--vm-kernel", kernel)
}

// TestVirtualMachine runs an image in a virtual machine: it serves a page in its private network, executes commands, is
// suspended and resumed, and survives its worker's daemon.
func TestVirtualMachine(t *testing.T) {
	t.Parallel()
	y := newVMYard(t)
	image := y.push("vm:1", ocispec.ImageConfig{Cmd: httpd}, page("from a guest"))
	order := y.order(image.Ref())
	order.Config.Runtime, order.Config.Guest.MemoryMB, order.Config.Env = bourse.RuntimeVM, 256, map[string]string{"COLOR": "deep blue"}
	order.Config.Files = []bourse.File{{GuestPath: "/etc/motd", RawValue: []byte("welcome\n")}}
	order.Config.StopConfig = &bourse.StopConfig{Signal: "SIGTERM"}

	workers, err := y.api.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if workers[0].Facts.Labels[driver.LabelVM] == driver.Emulated {
		_, err := y.api.Create(t.Context(), app, order, "")
		if bourse.CodeOf(err) != bourse.CodeInsufficient || !strings.Contains(bourse.MessageOf(err), "no KVM") {
			t.Fatalf("an order that doesn't allow emulation: %v, want a refusal, because this host has no KVM", err)
		}
	}
	order.Config.AllowEmulation = true
	m := y.run(app, order)
	y.answers(app, m.ID, "from a guest")
	out, code := y.sh(app, m.ID, `echo "$COLOR in $(uname -n)"; cat /etc/motd; exit 3`)
	if want := "deep blue in " + string(m.ID) + "\nwelcome"; out != want || code != 3 {
		t.Errorf("a command printed %q and exited with %d, want %q and 3", out, code, want)
	}
	boot, _ := y.sh(app, m.ID, "cat /proc/sys/kernel/random/boot_id")

	if err := y.api.Suspend(t.Context(), app, m.ID, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := y.api.Start(t.Context(), app, m.ID, ""); err != nil {
		t.Fatal(err)
	}
	y.answers(app, m.ID, "from a guest")

	w := y.workers[0]
	w.Settle()
	if err := w.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the worker answers", func() error { _, err := y.api.Machine(t.Context(), app, m.ID); return err })
	y.answers(app, m.ID, "from a guest")
	if now, _ := y.sh(app, m.ID, "cat /proc/sys/kernel/random/boot_id"); now != boot {
		t.Errorf("the guest's boot is %q, want %q: it should have kept running", now, boot)
	}
	if err := y.api.Stop(t.Context(), app, m.ID, machinesapi.StopMachine{}, ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the machine stops", func() error {
		now, err := y.api.Machine(t.Context(), app, m.ID)
		if err == nil && now.State != bourse.StateStopped {
			err = fmt.Errorf("it is %s", now.State)
		}
		return err
	})
	if _, err := y.api.Start(t.Context(), app, m.ID, ""); err != nil {
		t.Fatal(err)
	}
	y.answers(app, m.ID, "from a guest")
	y.destroy(m.ID)
}

// TestVirtualMachinesThatCannotStart checks that a caller learns why a guest cannot start its program.
func TestVirtualMachinesThatCannotStart(t *testing.T) {
	t.Parallel()
	y := newVMYard(t)
	image := y.push("vm:1", ocispec.ImageConfig{})
	for name, change := range map[string]func(*bourse.Config){
		"nosuch":    func(c *bourse.Config) { c.Init.Exec = []string{"nosuch"} },
		"/nowhere":  func(c *bourse.Config) { c.Init.Exec, c.Init.WorkingDir = []string{"true"}, "/nowhere" },
		"/bin":      func(c *bourse.Config) { c.Init.Exec = []string{"/bin"} },
		"some-user": func(c *bourse.Config) { c.Init.Exec, c.Init.User = []string{"true"}, "some-user" },
	} {
		order := y.order(image.Ref())
		order.Config.Runtime, order.Config.AllowEmulation, order.Config.Guest.MemoryMB = bourse.RuntimeVM, true, 256
		change(order.Config)
		_, err := y.api.Create(t.Context(), app, order, "")
		if bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(bourse.MessageOf(err), name) {
			t.Errorf("%s: got %v, want the guest's reason", name, err)
		}
	}
}
