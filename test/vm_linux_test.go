package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
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
// suspended and resumed, survives its worker's daemon, and is started by a request through a proxy.
func TestVirtualMachine(t *testing.T) {
	t.Parallel()
	y := newVMYard(t)
	proxy := newServer(t, "p1", "serve", "proxy", "--name", "p1", "--region", "gru", "--drain", "1s", "--http", "127.0.0.1:0=any", "--join", y.broker.Addr)
	startAll(t, proxy)
	image := y.push("vm:1", ocispec.ImageConfig{Cmd: httpd}, page("from a guest"))
	order := y.order(image.Ref())
	order.Config.Runtime, order.Config.Guest.MemoryMB, order.Config.Env = bourse.RuntimeVM, 256, map[string]string{"COLOR": "deep blue"}
	order.Config.Files = []bourse.File{{GuestPath: "/etc/motd", RawValue: []byte("welcome\n")}}
	order.Config.StopConfig = &bourse.StopConfig{Signal: "SIGTERM"}
	order.Config.Services = json.RawMessage(`[{"protocol": "tcp", "internal_port": 8080, "autostart": true, "ports": [{"port": 80, "handlers": ["http"]}]}]`)
	order.Config.Checks = json.RawMessage(`{"tcp": {"type": "tcp", "port": 8080, "interval": "1s", "timeout": "10s"},
		"page": {"type": "http", "port": 8080, "path": "/index.html", "interval": "1s", "timeout": "10s"},
		"missing": {"type": "http", "port": 8080, "path": "/missing", "interval": "1s", "timeout": "10s"}}`)

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
	eventually(t, waitTimeout, "the checks have run", func() error {
		now, err := y.api.Machine(t.Context(), app, m.ID)
		got := map[string]bourse.CheckState{}
		for _, c := range now.Checks {
			got[c.Name] = c.Status
		}
		if err == nil && (got["tcp"] != bourse.CheckPassing || got["page"] != bourse.CheckPassing || got["missing"] != bourse.CheckCritical) {
			err = fmt.Errorf("the checks are %v, want tcp and page passing, and missing critical", got)
		}
		return err
	})
	boot, _ := y.sh(app, m.ID, "cat /proc/sys/kernel/random/boot_id")

	if err := y.api.Suspend(t.Context(), app, m.ID, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := y.api.Start(t.Context(), app, m.ID, ""); err != nil {
		t.Fatal(err)
	}
	y.answers(app, m.ID, "from a guest")
	if err := y.api.Suspend(t.Context(), app, m.ID, ""); err != nil {
		t.Fatal(err)
	}

	w := y.workers[0]
	w.Settle()
	if err := w.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitTimeout, "the worker answers", func() error { _, err := y.api.Machine(t.Context(), app, m.ID); return err })
	if _, err := y.api.Start(t.Context(), app, m.ID, ""); err != nil {
		t.Fatal(err)
	}
	y.answers(app, m.ID, "from a guest")
	if now, _ := y.sh(app, m.ID, "cat /proc/sys/kernel/random/boot_id"); now != boot {
		t.Errorf("the guest's boot id is %q, want %q, because the guest must keep running", now, boot)
	}
	if err := y.api.Stop(t.Context(), app, m.ID, machinesapi.StopMachine{}, ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitTimeout, "the machine stops", func() error {
		now, err := y.api.Machine(t.Context(), app, m.ID)
		if err == nil && now.State != bourse.StateStopped {
			err = fmt.Errorf("the machine is %s, want stopped", now.State)
		}
		return err
	})
	if got, err := requestThrough(t, proxy.Web[0]); err != nil || got != "from a guest" {
		t.Errorf("a request that starts the stopped machine returned %q, %v; want the machine's page", got, err)
	}

	boot, _ = y.sh(app, m.ID, "cat /proc/sys/kernel/random/boot_id")
	if err := y.api.Suspend(t.Context(), app, m.ID, ""); err != nil {
		t.Fatal(err)
	}
	truncateSnapshot(t)
	if _, err := y.api.Start(t.Context(), app, m.ID, ""); err != nil {
		t.Fatalf("start with a damaged snapshot: %v, want another boot", err)
	}
	y.answers(app, m.ID, "from a guest")
	if now, _ := y.sh(app, m.ID, "cat /proc/sys/kernel/random/boot_id"); now == boot {
		t.Error("the guest has the same boot id, want another boot, because its snapshot is damaged")
	}
	y.destroy(m.ID)
}

// requestThrough requests the app's page from a proxy, in one request.
func requestThrough(t *testing.T, proxy string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+proxy+"/", nil)
	if err != nil {
		return "", err
	}
	req.Host = string(app) + ".localhost"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(string(text)), err
}

// truncateSnapshot damages the only snapshot of a suspended machine. The file has no name, but its agent has it open.
func truncateSnapshot(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		target, err := os.Readlink(file)
		if err != nil || !strings.HasPrefix(filepath.Base(target), "snapshot") || !strings.HasSuffix(target, " (deleted)") {
			continue // the process may have ended
		}
		mounts, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(file)), "mountinfo"))
		if err != nil || !strings.Contains(string(mounts), filepath.Dir(t.TempDir())) {
			continue
		}
		if err := os.Truncate(file, 1<<20); err != nil {
			t.Fatal(err)
		}
		found++
	}
	if found != 1 {
		t.Fatalf("found %d snapshots, want 1", found)
	}
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
			t.Errorf("%s: got %v, want the reason from the guest", name, err)
		}
	}
}

// TestVolumeOfAVirtualMachine moves a volume from a container to virtual machines. Its data outlives a stop and a destroyed
// machine, and is in a fork. Containers can no longer use it.
func TestVolumeOfAVirtualMachine(t *testing.T) {
	t.Parallel()
	y := newVMYard(t)
	image := y.push("vm:1", ocispec.ImageConfig{Cmd: []string{"/bin/sleep", "1000"}})
	size := int64(1)
	data, err := y.api.Volumes(app).Create(t.Context(), machinesapi.CreateVolume{Name: "data", Region: "gru", SizeGB: &size}, "")
	if err != nil {
		t.Fatal(err)
	}
	inContainer := y.mounting(image.Ref(), data.ID)
	y.sh(app, inContainer.ID, "echo from a container > /data/container")
	y.destroy(inContainer.ID)

	inVM := func(id bourse.VolumeID) machinesapi.Machine {
		t.Helper()
		order := y.withVolume(image.Ref(), id)
		order.Config.Runtime, order.Config.AllowEmulation, order.Config.Guest.MemoryMB = bourse.RuntimeVM, true, 256
		return y.run(app, order)
	}
	m := inVM(data.ID)
	y.sh(app, m.ID, "echo from a guest > /data/guest")
	y.restart(m.ID)
	const both = "from a container\nfrom a guest"
	if out, _ := y.sh(app, m.ID, "cat /data/container /data/guest"); out != both {
		t.Errorf("after a restart, the guest reads %q, want %q", out, both)
	}
	if _, err := y.api.Volumes(app).Snapshot(t.Context(), data.ID); err != nil && !strings.Contains(bourse.MessageOf(err), "stop the machine first") {
		t.Errorf("snapshot of a volume in use: %v, want success or \"stop the machine first\"", err)
	}
	if _, err := y.api.Volumes(app).Extend(t.Context(), data.ID, 2); err != nil {
		t.Error(err)
	}
	y.sh(app, m.ID, "sync")
	y.destroy(m.ID)

	_, err = y.api.Create(t.Context(), app, y.withVolume(image.Ref(), data.ID), "")
	if bourse.CodeOf(err) != bourse.CodeInsufficient || !strings.Contains(bourse.MessageOf(err), "only virtual machines can use it") {
		t.Errorf("a container with a virtual machine's volume: %v, want insufficient_capacity and \"only virtual machines can use it\"", err)
	}
	fork := y.filled(machinesapi.CreateVolume{Name: "fork", Region: "gru", Source: data.ID})
	m = inVM(fork.ID)
	if out, _ := y.sh(app, m.ID, "cat /data/container /data/guest"); out != both {
		t.Errorf("the fork contains %q, want %q", out, both)
	}
	if out, code := y.sh(app, m.ID, "df -m /data | tail -1"); code != 0 || blocks(out) < 1800 {
		t.Errorf("the fork's size is %q, want 2 GiB", out)
	}
	y.destroy(m.ID)
}
