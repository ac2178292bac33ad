package vm

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/container"
	"github.com/bourse-dev/bourse/driver/vm"
	"github.com/bourse-dev/bourse/internal/containerdtest"
	"github.com/bourse-dev/bourse/internal/vmtest"
	"github.com/bourse-dev/bourse/volume"
)

const (
	vol1 = bourse.VolumeID("vol_0000000000000001")
	vol2 = bourse.VolumeID("vol_0000000000000002")
)

// volumeHost is a host with two volumes.
type volumeHost struct {
	*testing.T
	host   *host
	driver driver.Driver
	store  *volume.Store
	image  string
}

func newVolumeHost(t *testing.T) *volumeHost {
	t.Helper()
	store, err := volume.Open(volume.Config{Dir: filepath.Join(t.TempDir(), "volumes")})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { // after the driver's
		if err := store.Recover(context.WithoutCancel(t.Context()), func(string) bool { return false }); err != nil {
			t.Errorf("remove the volumes: %v", err)
		}
	})
	vmtest.Cached(t, "modules", "scripts/need-kernel")
	machines := vm.Config{Kernel: vmtest.Find(t).Kernel(), Agent: agent(t)}
	server := containerdtest.Start(t)
	v := &volumeHost{T: t, store: store, host: newHost(t, server.Address, machines)}
	v.image = server.Import(t, container.DefaultNamespace, "test.local/image", containerdtest.MustBuild(t, containerdtest.Busybox(t), ocispec.ImageConfig{}))
	v.driver = v.host.Open(t)
	if _, err := v.driver.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []bourse.VolumeID{vol1, vol2} {
		if err := store.Create(t.Context(), id, bourse.VolumeOrder{SizeGB: 1}); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// attach returns the mount of a volume for a virtual machine.
func (v *volumeHost) attach(id bourse.VolumeID, target string) driver.Mount {
	v.Helper()
	device, err := v.store.Attach(v.Context(), id)
	if err != nil {
		v.Fatal(err)
	}
	return driver.Mount{Source: device, Target: target}
}

// detach unmounts a volume, and checks that nobody uses its device anymore.
func (v *volumeHost) detach(id bourse.VolumeID) {
	v.Helper()
	device, err := v.store.Attach(v.Context(), id)
	if err != nil {
		v.Fatal(err)
	}
	if err := v.store.Unmount(v.Context(), id); err != nil {
		v.Fatal(err)
	}
	backing := filepath.Join("/sys/block", filepath.Base(device), "loop/backing_file")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // the kernel clears the device shortly afterwards
		file, err := os.ReadFile(backing)
		if err != nil || !strings.Contains(string(file), string(id)) {
			return
		}
		if time.Now().After(end) {
			v.Fatalf("device %s of %s is still in use", device, id)
		}
	}
}

// start starts a machine's boot with volumes. Its program runs until it is stopped.
func (v *volumeHost) start(boot int, mounts ...driver.Mount) (driver.TaskID, error) {
	id := driver.TaskID{Machine: "00000000000001", Boot: boot}
	_, err := v.driver.Start(v.Context(), driver.Task{
		ID: id, Image: v.image, Command: []string{"sleep", "10000"}, Mounts: mounts, Limits: driver.Limits{Memory: 256},
		Root: driver.Root{Files: []driver.File{{Path: "/data/secret", Data: []byte("in memory"), Secret: true, Mode: 0o400}}},
	})
	return id, err
}

func (v *volumeHost) mustStart(boot int, mounts ...driver.Mount) driver.TaskID {
	v.Helper()
	id, err := v.start(boot, mounts...)
	if err != nil {
		v.Fatal(err)
	}
	return id
}

func (v *volumeHost) sh(id driver.TaskID, script string) string {
	v.Helper()
	r, err := v.driver.Exec(v.Context(), id, driver.Exec{Command: []string{"sh", "-c", script}})
	if err != nil || r.Exit.Code != 0 {
		v.Fatalf("%s: exit code %d, want 0, %v: %s", script, r.Exit.Code, err, r.Stderr)
	}
	return strings.TrimSpace(string(r.Stdout))
}

// checkDisk checks that a volume contains a text. It reads the device, because the host must not mount a guest's file system.
func (v *volumeHost) checkDisk(id bourse.VolumeID, text string) {
	v.Helper()
	device, err := v.store.Attach(v.Context(), id)
	if err != nil {
		v.Fatal(err)
	}
	f, err := os.Open(device)
	if err != nil {
		v.Fatal(err)
	}
	defer f.Close()
	const block = 1 << 20
	buffer := make([]byte, block) // a file's first bytes are at the beginning of a block
	for {
		_, err := io.ReadFull(f, buffer)
		if err != nil {
			v.Errorf("volume %s does not contain %q: %v", id, text, err)
			return
		}
		if bytes.Contains(buffer, []byte(text)) {
			return
		}
	}
}

// runBeside runs one of the host's programs in the container around the machine, as a guest could after breaking out of
// qemu.
func (v *volumeHost) runBeside(args ...string) (code uint32, output string) {
	v.Helper()
	client, err := containerd.New(v.host.cfg.Address, containerd.WithDefaultNamespace(container.DefaultNamespace))
	if err != nil {
		v.Fatal(err)
	}
	defer client.Close()
	all, err := client.Containers(v.Context())
	if err != nil || len(all) != 1 {
		v.Fatalf("%d containers, want 1, %v", len(all), err)
	}
	task, err := all[0].Task(v.Context(), nil)
	if err != nil {
		v.Fatal(err)
	}
	spec, err := all[0].Spec(v.Context())
	if err != nil {
		v.Fatal(err)
	}
	var out strings.Builder
	spec.Process.Args = args
	process, err := task.Exec(v.Context(), "beside", spec.Process, cio.NewCreator(cio.WithStreams(nil, &out, &out)))
	if err != nil {
		v.Fatal(err)
	}
	exited, err := process.Wait(v.Context())
	if err == nil {
		err = process.Start(v.Context())
	}
	if err != nil {
		v.Fatal(err)
	}
	exit := <-exited
	if _, err := process.Delete(v.Context()); err != nil {
		v.Fatal(err)
	}
	return exit.ExitCode(), out.String()
}

// TestVolumes checks that data outlives machines and crashes of qemu and of the daemon, and that a guest that destroys its
// volume harms nothing else.
func TestVolumes(t *testing.T) {
	v := newVolumeHost(t)

	// Files in the background keep the volume busy. All data must be in the volume after the machine has stopped.
	id := v.mustStart(1, v.attach(vol1, "/data"), v.attach(vol2, "/data/more"))
	v.sh(id, "echo one > /data/file; echo two > /data/more/file; (while :; do sleep 1; done) > /data/more/open 2>&1 &")
	if got := v.sh(id, "cat /data/secret; wc -c < /sys/block/vdc/serial; ls /data"); !strings.Contains(got, "in memory") || !strings.Contains(got, "lost+found") {
		t.Errorf("the guest printed %q, want the secret file and a formatted volume", got)
	}
	for _, attack := range []string{"losetup -d /dev/volume0", "ls /proc/1/fd/"} { // /proc/1 belongs to the agent
		if code, out := v.runBeside("sh", "-c", attack); code == 0 || !strings.Contains(out, "ermi") {
			t.Errorf("%s: exit code %d, %s; want a missing permission", attack, code, out)
		}
	}
	if err := v.driver.Stop(t.Context(), id, "SIGTERM", time.Minute); err != nil {
		t.Fatal(err)
	}
	if exit, err := v.driver.Wait(t.Context(), id); err != nil || exit.Signal != int(syscall.SIGTERM) {
		t.Fatalf("exit %+v, %v; want signal SIGTERM", exit, err)
	}
	v.detach(vol1)
	v.detach(vol2)
	if err := v.store.Extend(t.Context(), vol1, 2); err != nil {
		t.Fatal(err)
	}

	// The next machine mounts the volumes the other way around. The file system grows.
	id = v.mustStart(2, v.attach(vol2, "/two"), v.attach(vol1, "/one"))
	if got := v.sh(id, "cat /one/file /two/file"); got != "one\ntwo" {
		t.Errorf("the next machine reads %q, want one and two", got)
	}
	if n, err := strconv.Atoi(v.sh(id, "df -m /one | tail -n 1 | tr -s ' ' | cut -d ' ' -f 2")); err != nil || n < 1800 {
		t.Errorf("an extended volume has %d MiB, %v; want 2 GiB", n, err)
	}

	// The daemon is restarted, and adopts the machine. Then qemu is killed: synced data survives.
	v.driver = v.host.Open(t)
	if _, err := v.driver.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.sh(id, "echo three > /one/synced; sync; echo four > /one/lost")
	v.killQEMU(id)
	if exit, err := v.driver.Wait(t.Context(), id); err != nil || exit.Code == 0 {
		t.Errorf("exit of a killed machine: %+v, %v; want another code than 0", exit, err)
	}
	v.detach(vol1)
	v.detach(vol2)
	id = v.mustStart(3, v.attach(vol1, "/one"), v.attach(vol2, "/two"))
	if got := v.sh(id, "cat /one/file /one/synced /two/file"); got != "one\nthree\ntwo" {
		t.Errorf("after a crash, the machine reads %q, want one, three and two", got)
	}

	// A suspension writes the data to the volume, and the machine can still use it afterwards.
	v.sh(id, "echo before the suspension > /two/suspended")
	if err := v.driver.Freeze(t.Context(), id, true); err != nil {
		t.Fatal(err)
	}
	v.checkDisk(vol2, "before the suspension")
	if err := v.driver.Freeze(t.Context(), id, false); err != nil {
		t.Fatal(err)
	}
	v.sh(id, "echo after the suspension > /two/resumed; sync; cat /two/suspended")
	v.checkDisk(vol2, "after the suspension")

	// The guest destroys its file system.
	v.sh(id, "dd if=/dev/zero of=/dev/vdc bs=1M count=4 2>/dev/null; sync")
	if err := v.driver.Destroy(t.Context(), id.Machine); err != nil {
		t.Fatal(err)
	}
	v.detach(vol1)
	_, err := v.start(4, v.attach(vol1, "/one"))
	if bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(bourse.MessageOf(err), `volume at "/one"`) {
		t.Errorf("a machine with a destroyed volume: %v, want invalid, with the volume's path", err)
	}
	v.detach(vol1)
	v.detach(vol2)
	v.checkDisk(vol2, "after the suspension")

	_, err = v.start(5, driver.Mount{Source: t.TempDir(), Target: "/host"})
	if bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("a machine that mounts a host directory: %v, want invalid", err)
	}
}

// killQEMU kills the VMM of a machine.
func (v *volumeHost) killQEMU(id driver.TaskID) {
	v.Helper()
	status, err := v.driver.Inspect(v.Context(), id)
	if err != nil {
		v.Fatal(err)
	}
	process := strconv.Itoa(status.PID)
	children, err := os.ReadFile(filepath.Join("/proc", process, "task", process, "children")) // of the agent
	if err != nil || len(strings.Fields(string(children))) != 1 {
		v.Fatalf("the agent's processes: %q, %v; want only qemu", children, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		v.Fatal(err)
	}
}
