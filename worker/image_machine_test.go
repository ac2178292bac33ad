package worker

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/machines"
)

// spy is a driver that records the tasks it was asked to start.
type spy struct {
	driver.Driver
	mu    sync.Mutex
	tasks []driver.Task
}

func (s *spy) Start(ctx context.Context, t driver.Task) (driver.Status, error) {
	s.mu.Lock()
	s.tasks = append(s.tasks, t)
	s.mu.Unlock()
	return s.Driver.Start(ctx, t)
}

// withSpy wraps the container driver of the host's next worker in a spy.
func (h *host) withSpy() *spy {
	s := &spy{}
	h.setup = func(c *Config) {
		h.rig.setup(c)
		s.Driver = c.Container
		c.Container = s
	}
	return s
}

func TestLifeOfAMachineWithAnImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRigged(t, newRig)
		spy := h.withSpy()
		h.start(nil)
		defer h.crash()
		m := h.place(image(rigImage), func(o *bourse.Order) {
			o.App.Org, o.App.Network = "us", "ours"
			o.Config.Env = map[string]string{"A": "b"}
			o.Config.Files = []bourse.File{{GuestPath: "/etc/motd", RawValue: []byte("hi")}}
			o.Config.DNS = &bourse.DNS{
				Nameservers: []string{"9.9.9.9"}, Searches: []string{"ours.internal"}, Options: []bourse.DNSOption{{Name: "ndots", Value: "2"}}, Hostname: "web1",
			}
		})
		pushed := h.rig.images.registry[rigImage].Ref
		if m.State != bourse.StateStarted || m.Image == nil || m.Image.Digest != pushed.Digest || m.Boot.Port != 0 {
			t.Errorf("the fill contains state %s, image %v, port %d", m.State, m.Image, m.Boot.Port)
		}
		app := bourse.App{Org: "us", Network: "ours"}
		if want := bourse.PrivateAddress(app.PrivateNetwork(), m.ID); m.PrivateIP != want || m.Network != "us/ours" {
			t.Errorf("address %s in network %q, want %s in us/ours", m.PrivateIP, m.Network, want)
		}
		want := []string{"launch/created", "pull/starting", "pull/starting", "start/started"}
		if diff := cmp.Diff(want, story(h.get(m.ID))); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if done := h.get(m.ID).LastEvents[1].Pull; done == nil || !done.Done || done.Bytes != rigBytes || done.Took != time.Second {
			t.Errorf("the pull's last event is %+v", done)
		}
		checkTask(t, &m, spy.tasks[0])
		second := h.place(image(rigImage))
		if h.rig.images.pulled() != 1 || slices.Contains(story(second), "pull/starting") {
			t.Errorf("%d pulls; events of the second machine: %v", h.rig.images.pulled(), story(second))
		}
		h.must(h.machines.Stop(t.Context(), m.ID, fabric.MachineAction{}))
		h.reaches(m.ID, bourse.StateStopped)
		if got := h.rig.network.attached(); !slices.Equal(got, []bourse.MachineID{second.ID}) {
			t.Errorf("networks after the first machine stopped: %v", got)
		}
		h.must(h.machines.Start(t.Context(), m.ID, fabric.MachineAction{}))
		if got := h.rig.network.attached(); len(got) != 2 || h.get(m.ID).PrivateIP != m.PrivateIP {
			t.Errorf("started again: networks of %v, address %s, previously %s", got, h.get(m.ID).PrivateIP, m.PrivateIP)
		}
		if gone, err := h.rig.images.Prune(t.Context()); err != nil || len(gone) != 0 {
			t.Errorf("an image in use was removed: %v, %v", gone, err)
		}
		for _, id := range []bourse.MachineID{m.ID, second.ID} {
			h.must(h.machines.Destroy(t.Context(), id, fabric.MachineAction{Force: true}))
		}
		if gone, err := h.rig.images.Prune(t.Context()); err != nil || len(gone) != 1 {
			t.Errorf("an unused image was not removed: %v, %v", gone, err)
		}
		if kept := h.kept(); len(kept) != 0 || len(h.rig.network.attached()) != 0 {
			t.Errorf("left behind: %v, networks of %v", kept, h.rig.network.attached())
		}
	})
}

func checkTask(t *testing.T, m *bourse.Machine, got driver.Task) {
	t.Helper()
	env := got.Env
	got.Env = nil
	want := driver.Task{
		ID: machines.TaskOf(m), Image: "example.com/web@" + m.Image.Digest, Command: []string{"run"},
		Limits: driver.Limits{Memory: 64, CPUWeight: 63, CPUQuota: 1000, PIDs: DefaultPIDs},
		Network: &driver.Network{
			Namespace: "/netns/" + string(m.ID), Hostname: "web1", Resolver: []string{"9.9.9.9"}, Search: []string{"ours.internal"},
			Options: []string{"ndots:2"}, Hosts: []string{"::1 self"},
		},
		Root: driver.Root{Files: []driver.File{{Path: "/etc/motd", Data: []byte("hi"), Mode: 0o644}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the task (-want +got):\n%s", diff)
	}
	for _, v := range []string{"A=b", "FLY_PRIVATE_IP=" + m.PrivateIP.String(), "FLY_IMAGE_REF=" + m.Image.String(), "FLY_REGION=gru"} {
		if !slices.Contains(env, v) {
			t.Errorf("the environment lacks %s: %v", v, env)
		}
	}
	for _, name := range []string{"PATH=", "HOME=", "PORT="} {
		if slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, name) }) {
			t.Errorf("the environment contains the host's %s", name)
		}
	}
}

func TestRefusalsOfImages(t *testing.T) {
	for name, c := range map[string]struct {
		setup  func(*Config)
		change func(*bourse.Order)
		reason bourse.RefusalReason
		what   string
	}{
		"no such image": {change: image("example.com/nothing"), reason: bourse.RefusedNoImage, what: "example.com/nothing"},
		"no driver":     {func(c *Config) { c.Parts = Parts{} }, image(rigImage), bourse.RefusedImage, rigImage},
		// A machine never falls back to the host's network; only the operator may choose
		// that.
		"no network": {
			func(c *Config) {
				c.Network, c.NoNetwork = nil, bourse.Errorf(bourse.CodeUnavailable, "the kernel has no nftables")
			},
			image(rigImage), bourse.RefusedUnavailable, "",
		},
		"runtime": {
			change: func(o *bourse.Order) { o.Config.Runtime = "io.containerd.kata.v2" },
			reason: bourse.RefusedUnknown, what: "runtime.io.containerd.kata.v2",
		},
		"a disk limit": {
			func(c *Config) { c.Volumes = nil }, func(o *bourse.Order) { o.Config.Rootfs = &bourse.Rootfs{SizeGB: 1} },
			bourse.RefusedUnknown, admit.LabelDiskLimit,
		},
		"a root larger than the disk": {
			change: func(o *bourse.Order) { o.Config.Rootfs = &bourse.Rootfs{SizeGB: 2000} },
			reason: bourse.RefusedResource, what: "disk",
		},
		"gpus":              {change: func(o *bourse.Order) { o.Config.Guest.GPUKind, o.Config.Guest.GPUs = "a10", 3 }, reason: bourse.RefusedResource, what: "gpu.a10"},
		"a missing program": {change: run("missing"), reason: bourse.RefusedProgram},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newRigged(t, newRig)
				h.setup = func(cfg *Config) {
					h.rig.setup(cfg)
					if c.setup != nil {
						c.setup(cfg)
					}
				}
				h.start(nil)
				defer h.crash()
				order := newOrder(t, image(rigImage), c.change)
				_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
				if err != nil || refusal == nil || refusal.Reason != c.reason || refusal.Resource != c.what || refusal.Detail == "" {
					t.Errorf("refusal %+v, %v; want reason %s and resource %q", refusal, err, c.reason, c.what)
				}
				h.leftNothing()
			})
		})
	}
}

// leftNothing checks that no machine exists and that none has left anything on the
// host.
func (h *host) leftNothing() {
	h.t.Helper()
	all, err := h.machines.List(h.t.Context(), nil, func(m *bourse.Machine) bool { return m.State != bourse.StateDestroyed })
	if err != nil || len(all) != 0 {
		h.t.Errorf("left behind: %v, %v", stories(all), err)
	}
	if kept := h.kept(); len(kept) != 0 || len(h.rig.network.attached())+len(h.rig.volumes.Scratches())+len(h.rig.volumes.Mounted()) != 0 {
		h.t.Errorf("on the host: machines %v, networks %v, scratch %v, mounts %v",
			kept, h.rig.network.attached(), h.rig.volumes.Scratches(), h.rig.volumes.Mounted())
	}
	h.verify()
}

// The worker retries a pull that its registry interrupts until the order's deadline.
// Then it refuses the order.
func TestAPullEndsWithTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		defer h.crash()
		h.rig.images.failing(func(_ context.Context, call string, after bool) error {
			if call == "Pull" && !after {
				return bourse.Errorf(bourse.CodeUnavailable, "the registry closes the connection")
			}
			return nil
		})
		begin := time.Now()
		order := newOrder(t, image(rigImage), func(o *bourse.Order) { o.Timeout = bourse.Duration(20 * time.Second) })
		_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
		const want = "image " + rigImage + ": not pulled before the order's deadline: the registry closes the connection"
		if err != nil || refusal == nil || refusal.Reason != bourse.RefusedRegistry || refusal.Detail != want {
			t.Fatalf("refusal %+v, %v; want %s", refusal, err, want)
		}
		if took := time.Since(begin); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("refused after %s, want the order's 20 s", took)
		}
		h.leftNothing()
		all, err := h.machines.List(t.Context(), nil, func(*bourse.Machine) bool { return true })
		if err != nil || len(all) != 1 || len(all[0].LastEvents) > 5 {
			t.Errorf("the attempts have recorded %d events: %v", len(all[0].LastEvents), story(all[0]))
		}
	})
}

// If the caller's own deadline is earlier than the order's, it still gets an answer in time.
func TestAPullEndsInTimeForItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		defer h.crash()
		h.rig.images.takes = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, refusal, err := h.claim(ctx, &bourse.Claim{Order: *newOrder(t, image(rigImage))})
		if err != nil || refusal == nil || refusal.Reason != bourse.RefusedRegistry || !strings.HasSuffix(refusal.Detail, "deadline") {
			t.Errorf("refusal %+v, %v", refusal, err)
		}
		h.leftNothing()
	})
}

// If a registry cannot be reached, the worker tries twice and then refuses the order, so that
// another worker can fill the order without delay. If an earlier attempt reached the registry, the
// worker keeps trying.
func TestAnUnreachableRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		defer h.crash()
		asked := 0
		h.rig.images.failing(func(_ context.Context, call string, after bool) error {
			if call == "Resolve" && !after {
				asked++
				return bourse.Errorf(bourse.CodeUnavailable, "image %s: example.com cannot be reached: no such host", rigImage)
			}
			return nil
		})
		begin := time.Now()
		_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *newOrder(t, image(rigImage))})
		const want = "image " + rigImage + ": example.com cannot be reached: no such host"
		if err != nil || refusal == nil || refusal.Reason != bourse.RefusedRegistry || refusal.Resource != rigImage || refusal.Detail != want {
			t.Errorf("refusal %+v, %v; want %s", refusal, err, want)
		}
		if took := time.Since(begin); took > time.Second || asked != 2 {
			t.Errorf("refused after %s and %d attempts", took, asked)
		}
		h.leftNothing()

		h.rig.images.failing(func(_ context.Context, call string, after bool) error {
			switch {
			case call == "Pull" && !after && asked == 2:
				asked++
				return bourse.Errorf(bourse.CodeUnavailable, "the registry closes the connection")
			case call == "Resolve" && !after && asked > 2 && asked < 6:
				asked++
				return bourse.Errorf(bourse.CodeUnavailable, "it restarts")
			}
			return nil
		})
		if m := h.place(image(rigImage)); m.State != bourse.StateStarted || asked != 6 {
			t.Errorf("%s after %d attempts", m.State, asked)
		}
	})
}

// While an order waits for its image, the pull's progress can be read.
func TestAnOrderReportsItsPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		defer h.crash()
		h.rig.images.takes = time.Minute / 2
		order := newOrder(t, image(rigImage))
		done := make(chan struct{})
		go func() {
			defer close(done)
			if fill, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order}); fill == nil {
				t.Errorf("%+v, %v", refusal, err)
			}
		}()
		time.Sleep(time.Second)
		got, err := h.machines.Pulling(t.Context(), order.ID)
		if err != nil || got.Pull == nil || got.Pull.Status != "pulling" || got.Pull.Total == 0 {
			t.Errorf("during the pull: %+v, %v", got, err)
		}
		<-done
		if got, err := h.machines.Pulling(t.Context(), order.ID); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("after the pull: %+v, %v", got, err)
		}
	})
}

// A cancellation stops a pull immediately.
func TestACancellationEndsThePull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		defer h.crash()
		h.rig.images.takes = time.Hour
		order := newOrder(t, image(rigImage))
		answered := make(chan *bourse.Refusal)
		go func() {
			_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
			if err != nil {
				t.Errorf("claim: %v", err)
			}
			answered <- refusal
		}()
		time.Sleep(10 * time.Second)
		begin := time.Now()
		if _, err := h.cancel(t.Context(), order.ID); err != nil {
			t.Fatal(err)
		}
		if refusal := <-answered; refusal == nil || refusal.Reason != bourse.RefusedCanceled {
			t.Errorf("the claim was answered with %+v, want canceled", refusal)
		}
		time.Sleep(time.Second)
		h.leftNothing()
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestAMachineThatIsNotLaunchedHasItsImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		defer h.crash()
		m := h.place(image(rigImage), func(o *bourse.Order) { o.SkipLaunch = true })
		if m.State != bourse.StateStopped || h.rig.images.pulled() != 1 || len(h.kept()) != 0 || len(h.rig.network.attached()) != 0 {
			t.Errorf("prepared: %s, %d pulls, the host has %v and networks of %v", m.State, h.rig.images.pulled(), h.kept(), h.rig.network.attached())
		}
		if m = h.get(m.ID); m.Image == nil || !m.PrivateIP.IsValid() {
			t.Errorf("prepared with image %v and address %s", m.Image, m.PrivateIP)
		}
		if m := h.must(h.machines.Start(t.Context(), m.ID, fabric.MachineAction{})); m.State != bourse.StateStarted {
			t.Errorf("started: %s", m.State)
		}
	})
}

func TestQuotesKnowWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		defer h.crash()
		missing := func() int64 {
			q, err := h.quote(t.Context(), newOrder(t, image(rigImage)))
			if err != nil || q.Refusal != nil {
				t.Fatalf("quote: %+v, %v", q.Refusal, err)
			}
			return q.MissingBytes
		}
		if n := missing(); n != admit.UnknownImage {
			t.Errorf("before: %d bytes missing, want %d", n, int64(admit.UnknownImage))
		}
		h.place(image(rigImage))
		if n := missing(); n != 0 {
			t.Errorf("after: %d bytes missing", n)
		}
	})
}

// A device belongs to at most one machine, and a machine that stops releases its
// devices.
func TestADeviceBelongsToOneMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		defer h.crash()
		gpu := func(o *bourse.Order) { o.Config.Guest.GPUKind, o.Config.Guest.GPUs = "a10", 1 }
		a, b := h.place(image(rigImage), gpu), h.place(gpu) // host processes may have devices, too
		if len(a.Devices) != 1 || len(b.Devices) != 1 || a.Devices[0] == b.Devices[0] {
			t.Fatalf("devices %v and %v", a.Devices, b.Devices)
		}
		if _, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *newOrder(t, gpu)}); err != nil || refusal == nil || refusal.Resource != "gpu.a10" {
			t.Errorf("a third machine: %+v, %v; want a refusal", refusal, err)
		}
		h.must(h.machines.Stop(t.Context(), a.ID, fabric.MachineAction{}))
		if m := h.reaches(a.ID, bourse.StateStopped); len(m.Devices) != 0 {
			t.Errorf("the stopped machine has %v", m.Devices)
		}
		c := h.place(gpu)
		if !slices.Equal(c.Devices, a.Devices) {
			t.Errorf("the third machine has %v, want %v", c.Devices, a.Devices)
		}
		if _, err := h.machines.Start(t.Context(), a.ID, fabric.MachineAction{}); bourse.CodeOf(err) != bourse.CodeInsufficient {
			t.Errorf("start without a device: %v, want insufficient_capacity", err)
		}
		h.verify()
	})
}
