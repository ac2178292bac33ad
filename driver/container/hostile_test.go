package container

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

// TestHostileOrders starts orders that refer to missing objects or to objects that belong to others. Each must be
// refused with a message that names the problem, and must not leave anything behind, which newHost checks.
func TestHostileOrders(t *testing.T) {
	h := newHost(t, nil)
	image := h.busybox(t)
	h.recovered(t)
	for what, c := range map[string]struct {
		change func(*driver.Task)
		says   string
	}{
		"no such command":          {func(o *driver.Task) { o.Command = []string{"nginx"} }, "nginx"},
		"a directory":              {func(o *driver.Task) { o.Command = []string{"/etc"} }, "/etc"},
		"no command":               {func(o *driver.Task) { o.Command = nil }, "no command"},
		"no such user":             {func(o *driver.Task) { o.User = "../../etc" }, "../../etc"},
		"no such group":            {func(o *driver.Task) { o.User = "app:wheel" }, "app:wheel"},
		"a huge user":              {func(o *driver.Task) { o.User = "99999999999" }, "99999999999"},
		"a path as the runtime":    {func(o *driver.Task) { o.Root.Runtime = "/bin/sh" }, "/bin/sh"},
		"a missing runtime":        {func(o *driver.Task) { o.Root.Runtime = "io.containerd.nothing.v9" }, "nothing"},
		"a short one":              {func(o *driver.Task) { o.Root.Runtime = "nothing" }, "nothing"},
		"env without =":            {func(o *driver.Task) { o.Env = []string{"COLOR"} }, "COLOR"},
		"a long argument":          {func(o *driver.Task) { o.Command = []string{"echo", strings.Repeat("x", 128<<10)} }, "131072"},
		"a relative dir":           {func(o *driver.Task) { o.Dir = "tmp" }, "tmp"},
		"a file as the directory":  {func(o *driver.Task) { o.Dir = "/etc/passwd" }, "/etc/passwd"},
		"a directory of the host":  {func(o *driver.Task) { o.Dir = "/proc/1/root" }, "/proc/1/root"},
		"no such namespace":        {func(o *driver.Task) { o.Network = &driver.Network{Namespace: "/no/such/ns"} }, "invalid netns path: stat (of the host)"},
		"a path as the machine id": {func(o *driver.Task) { o.ID.Machine = "../../../x" }, "../../../x"},
		"boot 0":                   {func(o *driver.Task) { o.ID.Boot = 0 }, "boot 0"},
		"stdin with a terminal":    {func(o *driver.Task) { o.TTY, o.Stdin = true, []byte("ls\n") }, "stdin"},
		"text that is not":         {func(o *driver.Task) { o.Env = []string{"X=\xff\xfe"} }, "UTF-8"},
	} {
		o := order(image, "true")
		c.change(&o)
		if why := h.refuse(t, what, o); !strings.Contains(why, c.says) {
			t.Errorf("%s: got %q, want it to contain %q", what, why, c.says)
		}
	}
	missing := order("test.local/missing@sha256:"+digest.FromString("x").Encoded(), "true")
	if _, err := h.d.Start(t.Context(), missing); bourse.CodeOf(err) != bourse.CodeNotFound || !strings.Contains(bourse.MessageOf(err), "not found on this host") {
		t.Errorf("a missing image: %v", err)
	}
	big := order(image, "printenv")
	big.Command, big.Env = sh(`echo ${#BIG}`), []string{"BIG=" + strings.Repeat("x", 100<<10)}
	if got, exit := h.run(t, big); !slices.Equal(got, []string{"102400"}) || exit.Failed() {
		t.Errorf("a variable of 100 KiB: got %q, exit %+v", got, exit)
	}
}

// TestHostileImages starts images with invalid configurations.
func TestHostileImages(t *testing.T) {
	h := newHost(t, nil)
	h.recovered(t)
	files := containerdtest.Busybox(t)
	for what, c := range map[string]struct {
		files  map[string]containerdtest.File
		config ocispec.ImageConfig
		says   string
	}{
		"a user file that is a link to the host": {nil, ocispec.ImageConfig{User: "../../etc/shadow"}, "../../etc/shadow"},
		"a passwd that is a directory":           {map[string]containerdtest.File{"/etc/passwd": {Dir: true}}, ocispec.ImageConfig{User: "app"}, "app"},
		"a passwd that is a link to the host": {
			map[string]containerdtest.File{"/etc/passwd": {Symlink: "/../../../../../../../../etc/shadow"}}, ocispec.ImageConfig{User: "app"}, "app",
		},
		"an invalid command": {nil, ocispec.ImageConfig{Entrypoint: []string{""}}, "no command"},
	} {
		with := maps.Clone(files)
		maps.Copy(with, c.files)
		if c.config.Entrypoint == nil {
			c.config.Cmd = []string{"true"}
		}
		if why := h.refuse(t, what, order(h.image(t, with, c.config))); !strings.Contains(why, c.says) {
			t.Errorf("%s: got %q, want it to contain %q", what, why, c.says)
		}
	}
	odd := h.image(t, files, ocispec.ImageConfig{Cmd: []string{"pwd"}, WorkingDir: "../../../../new/dir", Env: []string{"A", "=", "\xff=x"}})
	if got, exit := h.run(t, order(odd)); !slices.Equal(got, []string{"/new/dir"}) || exit.Failed() {
		t.Errorf("an unusual directory: got %q, exit %+v", got, exit)
	}
}

// TestExitsAtOnce starts many programs that end at once. Every exit must be reported and every
// line logged.
func TestExitsAtOnce(t *testing.T) {
	h := newHost(t, nil)
	image := h.busybox(t)
	d, _ := h.recovered(t)
	var wg sync.WaitGroup
	const lanes, boots = 4, 15
	for lane := range lanes {
		wg.Go(func() {
			o := order(image)
			for boot := range boots {
				o.ID.Boot, o.Command = boot+1, sh(`echo $1; exit $1`, itoa(lane+boot))
				_, err := d.Start(t.Context(), o)
				if err != nil {
					t.Errorf("start: %v", err)
					return
				}
				if exit, err := d.Wait(t.Context(), o.ID); err != nil || exit.Code != lane+boot {
					t.Errorf("got exit %+v, %v, want %d", exit, err, lane+boot)
				}
				if err := d.DiscardExit(t.Context(), o.ID); err != nil {
					t.Errorf("forget: %v", err)
				}
			}
			if got := texts(t, d, o.ID.Machine); len(got) != boots {
				t.Errorf("got %d lines from %d boots", len(got), boots)
			}
		})
	}
	wg.Wait()
	if left := mine(h.server.Leftovers(), d.layout.mark()); len(left) > 0 {
		t.Errorf("discarded tasks left %q behind", left)
	}
}

// TestForksWithoutEnd runs a fork bomb in a container with a process limit. The limit must hold, other containers must
// continue to work, and Stop must end the fork bomb.
func TestForksWithoutEnd(t *testing.T) {
	h := newHost(t, nil)
	image := h.busybox(t)
	d, _ := h.recovered(t)
	if how := d.Labels()["limit.pids"]; how != "cgroup" {
		t.Skipf("limit.pids is %q on this host", how)
	}
	// A shell exits if its fork fails, so the first shell must not fork while the limit is reached.
	o := order(image, sh("trap '' TERM; (while :; do sleep 1000 & done); exec sleep 1000")...)
	o.Limits = driver.Limits{PIDs: 40, CPUQuota: 500}
	if _, err := d.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has forked", func() bool { return h.Processes(t) >= 30 })
	if n := h.Processes(t); n > 40 {
		t.Errorf("got %d processes, want at most the limit of 40", n)
	}
	if got, exit := h.run(t, order(image, "echo", "others run")); len(got) != 1 || exit.Failed() {
		t.Errorf("another container: got %q, exit %+v", got, exit)
	}
	if err := d.Stop(t.Context(), o.ID, "SIGTERM", 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if n := h.Processes(t); n > 0 {
		t.Errorf("got %d processes after Stop, want none", n)
	}
}

// TestUsage checks a container's reported usage, including the time that it was throttled.
func TestUsage(t *testing.T) {
	h := newHost(t, nil)
	image := h.busybox(t)
	d, _ := h.recovered(t)
	o := order(image, sh("while :; do :; done")...)
	o.Limits = driver.Limits{CPUQuota: 63, CPUPeriod: 80 * time.Millisecond, CPUBurst: 5 * time.Millisecond, Memory: 64}
	if _, err := d.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	var u driver.Usage
	eventually(t, "the task has been throttled", func() bool {
		var err error
		u, err = d.Usage(t.Context(), o.ID)
		return err == nil && u.Throttled > 0 && u.PIDs == 1
	})
	if u.CPU <= 0 || u.PIDs != 1 || u.Memory <= 0 || u.Memory > 64<<20 {
		t.Errorf("usage %+v", u)
	}
	path := cgroup.PathOf(d.layout.mark(), d.layout.container(o.ID))
	if got := strings.TrimSpace(d.groups.Read("cpu", path, d.groups.BurstFile())); got != "5000" && got != "" {
		t.Errorf("got a burst of %s µs, want 5000", got)
	}
	if err := d.Stop(t.Context(), o.ID, "SIGKILL", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Usage(t.Context(), o.ID); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		t.Errorf("usage of an ended task: %v", err)
	}
}
