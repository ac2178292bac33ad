package worker

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// finder is a driver that reports which tasks the host has before it has recovered.
type finder struct {
	driver.Driver
	found     []driver.TaskID
	recovered bool
}

func (f *finder) Found(context.Context) ([]driver.TaskID, error) { return f.found, nil }

func (f *finder) Recover(ctx context.Context) ([]driver.Status, error) {
	f.recovered = true
	return f.Driver.Recover(ctx)
}

// If a host has machines that the store does not know, the worker refuses to start,
// names them, and changes nothing. This happens if the data directory is empty because
// its disk is not mounted, or if the store is older than a machine or one of its boots.
func TestUnknownMachinesAreNotRemoved(t *testing.T) {
	for name, c := range map[string]struct {
		id   func(known bourse.MachineID) driver.TaskID
		okay bool
	}{
		"no record":   {func(bourse.MachineID) driver.TaskID { return driver.TaskID{Machine: "abcdef01234567", Boot: 1} }, false},
		"later boot":  {func(m bourse.MachineID) driver.TaskID { return driver.TaskID{Machine: m, Boot: 2} }, false},
		"known":       {func(m bourse.MachineID) driver.TaskID { return driver.TaskID{Machine: m, Boot: 1} }, true},
		"older boots": {func(m bourse.MachineID) driver.TaskID { return driver.TaskID{Machine: m, Boot: 0} }, true},
	} {
		for _, forget := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHost(t, nil)
					m := h.place(run("run"))
					h.crash()
					f := &finder{found: []driver.TaskID{c.id(m.ID)}}
					h.setup = func(cfg *Config) { f.Driver, cfg.Driver, cfg.Forget = cfg.Driver, f, forget }
					err := h.tryStart(nil)
					if c.okay || forget {
						if err != nil {
							t.Errorf("start: %v", err)
						}
						h.crash()
						return
					}
					if bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), string(f.found[0].Machine)) {
						t.Errorf("start: %v, want an error that names machine %s", err, f.found[0].Machine)
					}
					if f.recovered || len(h.mem.Running()) != 1 {
						t.Errorf("recovered %t, %v run; want no change", f.recovered, h.mem.Running())
					}
				})
			})
		}
	}
}

// Unknown machines that only the driver's recovery finds are not removed either, unless
// --forget-machines is set.
func TestUnknownMachinesOfTheDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		h.place(run("run"))
		h.crash()
		stray := driver.TaskID{Machine: "abcdef01234567", Boot: 1}
		if _, err := h.mem.Driver().Start(t.Context(), driver.Task{ID: stray, Command: []string{"run"}}); err != nil {
			t.Fatal(err)
		}
		if err := h.tryStart(nil); bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), string(stray.Machine)) {
			t.Errorf("start: %v, want an error that names %s", err, stray.Machine)
		}
		if got := h.mem.Running(); len(got) != 2 {
			t.Errorf("runs %v, want both", got)
		}
	})
}
