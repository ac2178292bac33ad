package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// update updates a machine to its current config with changes.
func (h *host) update(ctx context.Context, id bourse.MachineID, change ...func(*bourse.Config)) (fabric.ActReply, error) {
	req, err := h.updateOf(ctx, id, change...)
	if err != nil {
		return fabric.ActReply{}, err
	}
	return h.machines.Update(ctx, req)
}

func (h *host) updateOf(ctx context.Context, id bourse.MachineID, change ...func(*bourse.Config)) (fabric.UpdateRequest, error) {
	m, err := h.state.Machine(ctx, id)
	for _, f := range change {
		f(&m.Config)
	}
	return fabric.UpdateRequest{Machine: id, Config: m.Config}, err
}

func env(name, value string) func(*bourse.Config) {
	return func(c *bourse.Config) {
		c.Env = maps.Clone(c.Env)
		if c.Env == nil {
			c.Env = map[string]string{}
		}
		c.Env[name] = value
	}
}

func metadata(key, value string) func(*bourse.Config) {
	return func(c *bourse.Config) { c.Metadata = map[string]string{key: value} }
}

func memory(n bourse.MiB) func(*bourse.Config) {
	return func(c *bourse.Config) {
		guest := *c.Guest
		guest.MemoryMB = n
		c.Guest = &guest
	}
}

func execs(words ...string) func(*bourse.Config) {
	return func(c *bourse.Config) { c.Init.Exec = words }
}

// tail returns the last n events of a machine.
func tail(m bourse.Machine, n int) []string {
	all := story(m)
	return all[max(0, len(all)-n):]
}

func TestUpdateReplacesAVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		old := h.place(run("run"))
		now := h.must(h.update(t.Context(), old.ID, env("A", "1"), memory(128)))
		if now.State != bourse.StateStarted || now.Instance == old.Instance || now.Boot.Number != 2 || now.Next != nil {
			t.Errorf("updated: %s, version %s, boot %d, next %v", now.State, now.Instance, now.Boot.Number, now.Next)
		}
		if now.Name != old.Name || now.Boot.Port != old.Boot.Port || now.Config.Env["A"] != "1" || now.Takes.Of(bourse.ResourceMemory) != 128 {
			t.Errorf("updated to %+v", now)
		}
		want := []string{"launch/created", "start/started", "update/replacing", "exit/replacing", "launch/created", "start/started"}
		if diff := cmp.Diff(want, story(now)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if exit := now.LastEvents[2].Exit; !exit.RequestedStop || exit.Restarting {
			t.Errorf("exit of the old version: %+v", exit)
		}
		if len(h.mem.Running()) != 1 {
			t.Errorf("the host runs %v", h.mem.Running())
		}
		h.verify()
	})
}

// If an update makes no difference to the program, the program keeps running.
func TestUpdateThatNoProgramNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		old := h.place(run("run"))
		now := h.must(h.update(t.Context(), old.ID, metadata("fly_release_id", "7"), func(c *bourse.Config) {
			c.Restart = &bourse.Restart{Policy: bourse.RestartAlways}
			c.Services = []byte(`[{"protocol":"tcp","internal_port":80}]`)
			c.Requirements = bourse.Requirements{"slots": {Count: 2}}
		}))
		if now.Instance == old.Instance || now.Boot.PID != old.Boot.PID || now.State != bourse.StateStarted || now.Takes.Of("slots") != 2 {
			t.Errorf("version %s, pid %d (was %d), %s, takes %v", now.Instance, now.Boot.PID, old.Boot.PID, now.State, now.Takes)
		}
		if diff := cmp.Diff([]string{"launch/created", "start/started", "update/started"}, story(now)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		grouped := h.must(h.update(t.Context(), old.ID, metadata("fly_process_group", "worker")))
		if grouped.Boot.Number != 2 {
			t.Error("the program's environment contains its group, but the program was not restarted")
		}
		h.verify()
	})
}

func TestUpdateOfAMachineThatDoesNotRun(t *testing.T) {
	for _, failed := range []bool{false, true} {
		for _, skip := range []bool{false, true} {
			t.Run(fmt.Sprintf("failed=%t/skip=%t", failed, skip), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHost(t, nil)
					defer h.crash()
					m := h.place(run("run"))
					h.must(h.machines.Stop(t.Context(), m.ID, fabric.MachineAction{}))
					h.reaches(m.ID, bourse.StateStopped)
					if failed {
						if _, err := h.update(t.Context(), m.ID, execs("missing")); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
							t.Fatalf("a missing program: %v", err)
						}
						h.reaches(m.ID, bourse.StateFailed)
					}
					req, _ := h.updateOf(t.Context(), m.ID, env("A", "1"), execs("run"))
					req.SkipLaunch = skip
					now := h.must(h.machines.Update(t.Context(), req))
					want := bourse.StateStarted
					if skip {
						want = bourse.StateStopped
					}
					if now.State != want || now.Config.Env["A"] != "1" || (len(now.Takes) == 0) != skip {
						t.Errorf("%s, takes %v: %v", now.State, now.Takes, story(now))
					}
					h.verify()
				})
			})
		}
	}
}

// A machine that is waiting for its schedule's next time keeps waiting after an update.
// If the next version has no schedule, it is started.
func TestUpdateOfAScheduledMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place(run("exit", "0"), scheduled())
		h.reaches(m.ID, bourse.StateStopped)
		now := h.must(h.update(t.Context(), m.ID, env("A", "1")))
		if now.State != bourse.StateStopped || now.Boot.Number != 1 || now.Config.Env["A"] != "1" || len(now.Takes) != 0 {
			t.Errorf("%s, boot %d, takes %v: %v, want a stopped machine", now.State, now.Boot.Number, now.Takes, story(now))
		}
		time.Sleep(70 * time.Minute)
		if now := h.get(m.ID); now.Boot.Number != 2 {
			t.Errorf("boot %d: %v, want a start by the schedule", now.Boot.Number, story(now))
		}
		h.reaches(m.ID, bourse.StateStopped)
		now = h.must(h.update(t.Context(), m.ID, execs("run"), func(c *bourse.Config) { c.Schedule = "" }))
		if now.State != bourse.StateStarted {
			t.Errorf("%s: %v, want it started", now.State, story(now))
		}
		h.verify()
	})
}

// If a new version cannot start, the machine keeps it, and the error says so.
func TestUpdateToAVersionThatDoesNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		old := h.place(run("run"))
		_, err := h.update(t.Context(), old.ID, execs("missing"))
		now := h.get(old.ID)
		if bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(bourse.MessageOf(err), string(now.Instance)) ||
			now.State != bourse.StateFailed || now.Instance == old.Instance {
			t.Errorf("%s with version %s (was %s): %v", now.State, now.Instance, old.Instance, err)
		}
		if now = h.must(h.update(t.Context(), old.ID, execs("run"))); now.State != bourse.StateStarted {
			t.Errorf("machine is %s after another update", now.State)
		}
		h.verify()
	})
}

// Two versions of a machine never run at the same time, so an update needs only the larger of the
// two amounts of each resource. Even on a full host, the image and program can be changed.
func TestUpdateOnAFullHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place(run("run"), func(o *bourse.Order) { o.Config.Guest.MemoryMB = 4096 })
		h.must(h.update(t.Context(), m.ID, env("A", "1")))
		_, err := h.update(t.Context(), m.ID, memory(4352))
		if bourse.CodeOf(err) != bourse.CodeInsufficient || !strings.Contains(bourse.MessageOf(err), "insufficient memory available to fulfill request") {
			t.Errorf("more memory than the host has: %v", err)
		}
		if now := h.get(m.ID); now.State != bourse.StateStarted || now.Next != nil || now.Takes.Of(bourse.ResourceMemory) != 4096 {
			t.Errorf("after the refusal: %s, takes %v, next %v", now.State, now.Takes, now.Next)
		}
		h.must(h.update(t.Context(), m.ID, memory(2048)))
		h.place(run("run"), func(o *bourse.Order) { o.Config.Guest.MemoryMB = 2048 })
		h.verify()
	})
}

// Updating a machine that is waiting for its schedule takes no more resources, so it
// works even on a full host.
func TestUpdateOfAScheduledMachineOnAFullHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place(run("exit", "0"), scheduled())
		h.reaches(m.ID, bourse.StateStopped)
		h.place(run("run"), func(o *bourse.Order) { o.Config.Guest.MemoryMB = 4096 })
		now := h.must(h.update(t.Context(), m.ID, env("A", "1")))
		if now.State != bourse.StateStopped || now.Config.Env["A"] != "1" || now.Takes.Of(bourse.ResourceMemory) != 0 {
			t.Errorf("machine is %s with %v, and takes %v", now.State, now.Config.Env, now.Takes)
		}
		h.verify()
	})
}

func TestUpdateRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place(run("run"))
		lease, err := h.machines.Lease(t.Context(), m.ID, fabric.LeaseRequest{TTL: time.Minute, Owner: "someone"})
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			change func(*fabric.UpdateRequest)
			code   bourse.Code
		}{
			"another's lease":       {func(r *fabric.UpdateRequest) { r.Nonce = "" }, bourse.CodeConflict},
			"an old version":        {func(r *fabric.UpdateRequest) { r.Current = bourse.NewInstanceID() }, bourse.CodeConflict},
			"another region":        {func(r *fabric.UpdateRequest) { r.Region = "fra" }, bourse.CodeInvalid},
			"another name":          {func(r *fabric.UpdateRequest) { r.Name = "other" }, bourse.CodeInvalid},
			"another kind of image": {func(r *fabric.UpdateRequest) { r.Config.Image = "example.com/web:1" }, bourse.CodeInvalid},
			"another volume": {func(r *fabric.UpdateRequest) {
				r.Config.Mounts = []bourse.Mount{{Volume: "vol_1234567890123456", Path: "/x"}}
			}, bourse.CodeFailedPrecondition},
			"a label of another host": {func(r *fabric.UpdateRequest) { r.Config.Requirements = bourse.Requirements{"arch": {Label: "arm64"}} }, bourse.CodeFailedPrecondition},
			"no program":              {func(r *fabric.UpdateRequest) { r.Config.Init.Exec = nil }, bourse.CodeInvalid},
			"an endless lease":        {func(r *fabric.UpdateRequest) { r.LeaseTTL = 1 << 40 }, bourse.CodeInvalid},
			"nothing wrong":           {func(r *fabric.UpdateRequest) { r.Name, r.Region, r.Current = m.Name, "gru", m.Instance }, ""},
		} {
			req, _ := h.updateOf(t.Context(), m.ID)
			req.Nonce = lease.Nonce
			c.change(&req)
			_, err := h.machines.Update(t.Context(), req)
			if c.code == "" && err != nil || c.code != "" && bourse.CodeOf(err) != c.code {
				t.Errorf("%s: %v, want code %q", name, err, c.code)
			}
			m = h.get(m.ID)
		}
		if len(h.mem.Running()) != 1 || h.mem.Starts() != 1 {
			t.Errorf("%d starts because of refused updates", h.mem.Starts())
		}
		if m.Lease == nil || m.Lease.Nonce != lease.Nonce {
			t.Errorf("the lease is %+v after an update", m.Lease)
		}
	})
}

// An update of a machine that keeps crashing does not wait for the machine's restart.
func TestUpdateEndsTheWaitForARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place(run("exit", "1"), restart(bourse.RestartAlways, 20))
		time.Sleep(20 * time.Second)
		h.reaches(m.ID, bourse.StateRestarting)
		now := h.must(h.update(t.Context(), m.ID, execs("run")))
		if now.State != bourse.StateStarted || len(now.Boot.Restarts) != 0 {
			t.Errorf("%s after %d restarts", now.State, len(now.Boot.Restarts))
		}
		starts := h.mem.Starts()
		time.Sleep(10 * time.Minute)
		if h.mem.Starts() != starts {
			t.Error("started again by the policy of the old version")
		}
		h.verify()
	})
}

// While a version is being stopped, each call is either refused because of the machine's state, or executed.
func TestCallsDuringAnUpdate(t *testing.T) {
	for name, c := range map[string]struct {
		call func(*host, bourse.MachineID) error
		code bourse.Code
		ends bourse.State
	}{
		"update": {func(h *host, id bourse.MachineID) error { _, err := h.update(h.t.Context(), id); return err }, bourse.CodeFailedPrecondition, bourse.StateStarted},
		"start":  {func(h *host, id bourse.MachineID) error { return h.call(h.t.Context(), bourse.CallStart, id) }, bourse.CodeFailedPrecondition, bourse.StateStarted},
		"stop":   {func(h *host, id bourse.MachineID) error { return h.call(h.t.Context(), bourse.CallStop, id) }, "", bourse.StateStopped},
		"destroy": {func(h *host, id bourse.MachineID) error {
			_, err := h.machines.Destroy(h.t.Context(), id, fabric.MachineAction{Force: true})
			return err
		}, "", bourse.StateDestroyed},
		"metadata": {func(h *host, id bourse.MachineID) error {
			_, err := h.machines.SetMetadata(h.t.Context(), id, fabric.MetadataRequest{Set: map[string]*string{"k": new("v")}})
			return err
		}, "", bourse.StateStarted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, nil)
				defer h.crash()
				m := h.place(run("ignore", "run"), func(o *bourse.Order) { o.Config.StopConfig = &bourse.StopConfig{Timeout: bourse.Duration(time.Minute)} })
				done := make(chan error, 1)
				go func() { _, err := h.update(t.Context(), m.ID, env("A", "1")); done <- err }()
				h.reaches(m.ID, bourse.StateReplacing)
				if err := c.call(h, m.ID); bourse.CodeOf(err) != c.code && (err != nil || c.code != "") {
					t.Errorf("%v, want code %q", err, c.code)
				}
				err := <-done
				now := h.get(m.ID)
				if now.State != c.ends || now.Next != nil || (err != nil) != (c.ends == bourse.StateDestroyed) {
					t.Errorf("at the end, the machine is %s (the update: %v): %v", now.State, err, story(now))
				}
				if name == "metadata" && now.Config.Metadata["k"] != "v" {
					t.Error("the metadata was lost together with its version")
				}
				h.verify()
			})
		})
	}
}

// An update's image is pulled before the current version stops.
func TestUpdateOfAnImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		defer h.crash()
		m := h.place(run("run"), image(rigImage))
		now := h.must(h.update(t.Context(), m.ID, h.rig.newImage))
		want := []string{"update/started", "pull/started", "pull/started", "update/replacing", "exit/replacing", "launch/created", "start/started"}
		if diff := cmp.Diff(want, tail(now, len(want))); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if now.Image == nil || now.Image.Tag != "2" || now.Image.Digest == m.Image.Digest {
			t.Errorf("image %v", now.Image)
		}
		same := h.must(h.update(t.Context(), m.ID, metadata("a", "b")))
		if same.Boot.Number != now.Boot.Number || same.Instance == now.Instance {
			t.Errorf("boot %d of version %s, although only metadata changed", same.Boot.Number, same.Instance)
		}
		if pulled := slices.Contains(tail(same, 1), "pull/started"); pulled {
			t.Error("an unchanged image was pulled")
		}
		h.checkRig([]bourse.Machine{h.get(m.ID)})
		h.verify()
	})
}

// If the image of an update cannot be pulled, the machine does not change.
func TestUpdateWithoutItsImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		defer h.crash()
		m := h.place(run("run"), image(rigImage))
		_, err := h.update(t.Context(), m.ID, memory(512), func(c *bourse.Config) { c.Image = "example.com/none:1" })
		now := h.get(m.ID)
		if bourse.CodeOf(err) != bourse.CodeFailedPrecondition || now.Instance != m.Instance || now.State != bourse.StateStarted || now.Boot.Number != 1 || now.Next != nil {
			t.Errorf("%s, boot %d: %v", now.State, now.Boot.Number, err)
		}
		if last := now.LastEvents[0]; last.Type != bourse.EventUpdate || !strings.Contains(last.Reason, "example.com/none:1") {
			t.Errorf("the last event is %+v, want the reason why the update was abandoned", last)
		}
		if diff := cmp.Diff(m.Takes, now.Takes); diff != "" {
			t.Errorf("the machine's resources changed (-before +after):\n%s", diff)
		}
		h.verify()
	})
}

// Each version is recorded with its original config. The number of recorded versions and their total size are limited.
func TestVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place(run("run"))
		set := fabric.MetadataRequest{Machine: m.ID, Set: map[string]*string{"k": new("v")}}
		if _, err := h.machines.SetMetadata(t.Context(), m.ID, set); err != nil {
			t.Fatal(err)
		}
		for i := range 25 {
			h.must(h.update(t.Context(), m.ID, env("N", fmt.Sprint(i)), metadata("k", fmt.Sprint(i))))
		}
		list, err := h.state.Versions(t.Context(), m.ID)
		if err != nil || len(list) != 21 || list[0].Instance != h.get(m.ID).Instance || list[0].Config.Env["N"] != "24" || list[20].Config.Env["N"] != "4" {
			t.Errorf("%d versions (%v), the first with %v", len(list), err, list[0].Config.Env)
		}
		h.must(h.update(t.Context(), m.ID, env("BIG", strings.Repeat("x", 100<<10))))
		for range 12 {
			h.must(h.update(t.Context(), m.ID, metadata("k", "v")))
		}
		list, err = h.state.Versions(t.Context(), m.ID)
		if err != nil || len(list) != 3 { // the current version, and two more that take 200 KiB
			t.Errorf("%d large versions, %v", len(list), err)
		}
		h.must(h.machines.Destroy(t.Context(), m.ID, fabric.MachineAction{Force: true}))
		if list, err = h.state.Versions(t.Context(), m.ID); err != nil || len(list) != 1 {
			t.Errorf("after the destruction, %d versions remain, %v", len(list), err)
		}
		h.verify()
	})
}

// Changing metadata does not change the recorded version.
func TestAVersionKeepsItsOriginalMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place(run("run"))
		if _, err := h.machines.SetMetadata(t.Context(), m.ID, fabric.MetadataRequest{Set: map[string]*string{"k": new("v")}}); err != nil {
			t.Fatal(err)
		}
		list, err := h.state.Versions(t.Context(), m.ID)
		if err != nil || len(list) != 1 || list[0].Config.Metadata["k"] != "" || h.get(m.ID).Config.Metadata["k"] != "v" {
			t.Errorf("versions %+v, %v", list, err)
		}
	})
}
