package container

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

// run runs a task until it ends, and returns its output and exit.
func (h *host) run(t *testing.T, o driver.Task) ([]string, bourse.Exit) {
	t.Helper()
	if _, err := h.d.Start(t.Context(), o); err != nil {
		t.Fatalf("Start %v: %v", o.Command, err)
	}
	exit, err := h.d.Wait(t.Context(), o.ID)
	if err != nil {
		t.Fatalf("Wait: %v", err)
	}
	return texts(t, h.d, o.ID.Machine), exit
}

// refuse starts a task, checks that the start is refused as invalid, and returns the error's
// message.
func (h *host) refuse(t *testing.T, what string, o driver.Task) string {
	t.Helper()
	_, err := h.d.Start(t.Context(), o)
	if got := bourse.CodeOf(err); got != bourse.CodeInvalid {
		t.Errorf("%s: got %q (%v), want invalid", what, got, err)
	}
	return bourse.MessageOf(err)
}

// TestImageConfiguration checks which settings a container takes from its image, and how an order
// overrides them.
func TestImageConfiguration(t *testing.T) {
	h := newHost(t, nil)
	image := h.image(t, containerdtest.Busybox(t), ocispec.ImageConfig{
		Entrypoint: []string{"echo", "entry"}, Cmd: []string{"cmd"}, Env: []string{"COLOR=red", "PATH=/bin", "notanassignment", "=x"},
		User: "app", WorkingDir: "/home/app", StopSignal: "SIGUSR1",
	})
	h.recovered(t)
	for what, c := range map[string]struct {
		change func(*driver.Task)
		want   string
	}{
		"the image's":           {func(*driver.Task) {}, "entry cmd"},
		"other arguments":       {func(o *driver.Task) { o.Args = []string{"a", "b"} }, "entry a b"},
		"another entrypoint":    {func(o *driver.Task) { o.Entrypoint = []string{"echo", "mine"} }, "mine"},
		"entrypoint, arguments": {func(o *driver.Task) { o.Entrypoint, o.Args = []string{"echo"}, []string{"x"} }, "x"},
		"a command": {func(o *driver.Task) {
			o.Command, o.Args = []string{"echo", "all"}, []string{"ignored"}
		}, "all"},
		"user, directory, environment": {func(o *driver.Task) {
			o.Command = sh(`echo $(id -u):$(id -g) $PWD $COLOR $(env | wc -l)`)
		}, "1000:1000 /home/app red 5"}, // also HOME, PWD and SHLVL
		"others": {func(o *driver.Task) {
			o.Command, o.User, o.Dir, o.Env = sh(`echo $(id -u):$(id -g) $PWD $COLOR`), "nobody:app", "/tmp", []string{"COLOR=blue"}
		}, "65534:1000 /tmp blue"},
	} {
		o := order(image)
		c.change(&o)
		if got, exit := h.run(t, o); len(got) != 1 || got[0] != c.want || exit.Failed() {
			t.Errorf("%s: printed %q, exit %+v, want %q", what, got, exit, c.want)
		}
	}
	o := order(image, sh(runScript)...)
	if _, err := h.d.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	h.d, _ = h.recovered(t) // the signal must survive a restart of the driver
	if err := h.d.Stop(t.Context(), o.ID, "", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if exit, err := h.d.Wait(t.Context(), o.ID); err != nil || exit.Signal != 10 {
		t.Errorf("stopped without a signal: got %+v, %v, want the image's signal SIGUSR1", exit, err)
	}
}

// TestStopWithoutASignal checks that Stop without a signal sends the Machines API's default
// signal if the image does not name one.
func TestStopWithoutASignal(t *testing.T) {
	h := newHost(t, nil)
	image := h.image(t, containerdtest.Busybox(t), ocispec.ImageConfig{})
	h.recovered(t)
	o := order(image, sh(runScript)...)
	if _, err := h.d.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := h.d.Stop(t.Context(), o.ID, "", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if exit, err := h.d.Wait(t.Context(), o.ID); err != nil || exit.Signal != bourse.DefaultStopSignal.Number() {
		t.Errorf("got exit %+v, %v, want %s", exit, err, bourse.DefaultStopSignal)
	}
}

// TestRootFiles writes files into images whose links lead out of the root file system.
func TestRootFiles(t *testing.T) {
	h := newHost(t, nil)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := containerdtest.Busybox(t)
	files["/etc/link"] = containerdtest.File{Symlink: outside}
	files["/etc/up"] = containerdtest.File{Symlink: "../../../../../../../../.." + outside}
	files["/etc/dir"] = containerdtest.File{Symlink: filepath.Dir(outside)}
	files["/etc/back"] = containerdtest.File{Symlink: "/tmp"}
	files["/etc/self"] = containerdtest.File{Symlink: "self"}
	image := h.image(t, files, ocispec.ImageConfig{})
	h.recovered(t)
	for what, c := range map[string]struct{ path, read string }{
		"a new directory":                   {"/a/b/c", "/a/b/c"},
		"over a file":                       {"/etc/passwd", "/etc/passwd"},
		"over a link":                       {"/etc/link", "/etc/link"},
		"over a link to a parent directory": {"/etc/up", "/etc/up"},
		"through a link inside":             {"/etc/back/x", "/tmp/x"},
		"upwards":                           {"/../../../../x", "/x"},
	} {
		for _, readOnly := range []bool{false, true} {
			o := order(image, sh(`cat $1; stat -c %a $1`, c.read)...)
			o.Root.ReadOnly = readOnly
			o.Root.Files = []driver.File{{Path: c.path, Data: []byte("written\n"), Mode: 0o640}}
			if got, exit := h.run(t, o); !slices.Equal(got, []string{"written", "640"}) || exit.Failed() {
				t.Errorf("%s: read %q, exit %+v", what, got, exit)
			}
		}
	}
	for what, path := range map[string]string{
		"a directory": "/etc", "through a dangling link": "/etc/dir/x", "through a file": "/etc/passwd/x",
		"a loop": "/etc/self/x", "relative": "etc/x", "the root": "/", "a NUL": "/etc/\x00",
	} {
		o := order(image, "true")
		o.Root.Files = []driver.File{{Path: path, Mode: 0o600}}
		h.refuse(t, what, o)
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "untouched" {
		t.Errorf("the host's file contains %q, %v", text, err)
	}
}

// TestReadOnlyRoot checks which paths a container with a read-only root can write to.
func TestReadOnlyRoot(t *testing.T) {
	h := newHost(t, nil)
	image := h.busybox(t)
	h.recovered(t)
	volume := t.TempDir()
	o := order(image, sh(`touch /x 2>/dev/null && echo root; touch /rw/x && echo rw; touch /ro/x 2>/dev/null && echo ro; mount -t tmpfs x /tmp 2>/dev/null && echo mounted; true`)...)
	o.Root.ReadOnly = true
	o.Mounts = []driver.Mount{{Source: volume, Target: "/rw"}, {Source: volume, Target: "/ro", ReadOnly: true}}
	if got, exit := h.run(t, o); !slices.Equal(got, []string{"rw"}) || exit.Failed() {
		t.Errorf("the program could write to %q, exit %+v, want only the writable mount", got, exit)
	}
	if _, err := os.Stat(filepath.Join(volume, "x")); err != nil {
		t.Errorf("the written file is not on the host: %v", err)
	}
	o = order(image, "true")
	o.Mounts = []driver.Mount{{Source: filepath.Join(volume, "missing"), Target: "/x"}}
	h.refuse(t, "a mount with a missing source", o)
	o.ID.Machine, o.Mounts[0] = bourse.NewMachineID(1), driver.Mount{Source: volume, Target: "/"}
	h.refuse(t, "a mount over the root", o)
}

// TestScratch checks that a container's writes go to its scratch directory, which limits their
// size. Every boot must start with an empty directory, and the image must not change.
func TestScratch(t *testing.T) {
	h := newHost(t, nil)
	image := h.busybox(t)
	h.recovered(t)
	scratch := t.TempDir()
	small := filepath.Join(scratch, "small")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", small).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	defer func() {
		if out, err := exec.Command("umount", small).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	}()
	o := order(image, sh(`[ -e /left ] && echo left; touch /left; rm /bin/vi; dd if=/dev/zero of=/big bs=1M count=16 2>/dev/null || echo full; sleep 0`)...)
	o.Root.Scratch = small
	for boot := range 2 {
		o.ID.Boot = boot + 1
		got, exit := h.run(t, o)
		if !slices.Equal(got, slices.Repeat([]string{"full"}, boot+1)) || exit.Failed() {
			t.Errorf("boot %d: got %q, exit %+v, want an empty directory that becomes full", boot+1, got, exit)
		}
	}
	plain := order(image, sh("ls /left /big /bin/vi 2>/dev/null; true")...)
	if got, _ := h.run(t, plain); !slices.Equal(got, []string{"/bin/vi"}) {
		t.Errorf("another container of the same image contains %q", got)
	}
	o.ID.Boot, o.Command = 3, []string{"no-such-command"}
	h.refuse(t, "a missing command", o)
	for _, id := range []bourse.MachineID{o.ID.Machine, plain.ID.Machine} {
		if err := h.d.Destroy(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := os.ReadDir(small); len(left) > 0 {
		t.Errorf("a failed start left %v in the scratch directory", left)
	}
}

// TestNetworkFiles checks that a container joins its network namespace and sees the host names from
// the order.
func TestNetworkFiles(t *testing.T) {
	h := newHost(t, nil)
	image := h.busybox(t)
	h.recovered(t)
	hold := exec.Command("unshare", "--net", "sleep", "1000")
	if err := hold.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hold.Process.Kill(); _ = hold.Wait() }()
	namespace := "/proc/" + itoa(hold.Process.Pid) + "/ns/net"
	var want string
	eventually(t, "a private namespace", func() bool {
		own, _ := os.Readlink("/proc/self/ns/net")
		want, _ = os.Readlink(namespace)
		return want != "" && want != own
	})
	o := order(image, sh(`readlink /proc/self/ns/net; hostname; cat /etc/hostname /etc/hosts /etc/resolv.conf; nc -l -p 80 -e true & sleep 0.1; kill $! && echo may listen`)...)
	o.User = "nobody"
	o.Network = &driver.Network{
		Namespace: namespace, Hostname: "web-1", Hosts: []string{"fdaa::3 web-1.internal\n6.6.6.6 bad"}, Resolver: []string{"fdaa::53"},
		Search: []string{"internal"}, Options: []string{"ndots:1"},
	}
	got, exit := h.run(t, o)
	for _, line := range []string{want, "web-1", "127.0.0.1\tlocalhost", "fdaa::3 web-1.internal 6.6.6.6 bad", "nameserver fdaa::53", "search internal", "options ndots:1", "may listen"} {
		if !slices.Contains(got, line) {
			t.Errorf("want a line %q in %q", line, got)
		}
	}
	if exit.Failed() {
		t.Errorf("exit %+v", exit)
	}
	plain := order(image, "readlink", "/proc/self/ns/net")
	host, _ := os.Readlink("/proc/self/ns/net")
	if got, _ := h.run(t, plain); len(got) != 1 || got[0] != host {
		t.Errorf("without a network: got %q, want the host's: %s", got, host)
	}
}

// TestDevices checks that a container receives the device whose CDI name its order contains.
func TestDevices(t *testing.T) {
	dir := t.TempDir()
	spec := `{"cdiVersion": "0.6.0", "kind": "test.local/zero", "devices": [
		{"name": "z0", "containerEdits": {"env": ["ZERO=z0"], "deviceNodes": [{"path": "/dev/test-zero", "hostPath": "/dev/zero"}]}}]}`
	if err := os.WriteFile(filepath.Join(dir, "zero.json"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, func(c *Config) { c.Devices = []string{dir} })
	image := h.busybox(t)
	h.recovered(t)
	o := order(image, sh(`head -c 5 /dev/test-zero | wc -c; echo $ZERO`)...)
	o.Devices = []string{"test.local/zero=z0"}
	if got, exit := h.run(t, o); !slices.Equal(got, []string{"5", "z0"}) || exit.Failed() {
		t.Errorf("printed %q, exit %+v", got, exit)
	}
	for _, name := range []string{"test.local/zero=z1", "nobody.local/gpu=0", "no name", "../../etc"} {
		o := order(image, "true")
		o.Devices = []string{name}
		if why := h.refuse(t, name, o); !strings.Contains(why, "test.local/zero=z0") {
			t.Errorf("got %q, want a list of the available devices", why)
		}
	}
}

// TestStopFrozen checks that Stop kills a frozen task if the grace period is over before the task
// has been resumed.
func TestStopFrozen(t *testing.T) {
	h := newHost(t, nil)
	image := h.busybox(t)
	d, _ := h.recovered(t)
	if d.Labels()["suspend"] == "" {
		t.Skip("this host cannot freeze processes")
	}
	o := order(image, sh(runScript)...)
	if _, err := d.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := d.Freeze(t.Context(), o.ID, true); err != nil {
		t.Fatal(err)
	}
	if err := d.Stop(t.Context(), o.ID, "SIGTERM", time.Nanosecond); err != nil {
		t.Fatal(err)
	}
	if exit, err := d.Wait(t.Context(), o.ID); err != nil || exit.Signal != int(unix.SIGKILL) {
		t.Errorf("got exit %+v, %v, want SIGKILL", exit, err)
	}
}
