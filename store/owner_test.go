package store

import (
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// ids lists what a sequence of the store gives.
func machineIDs(t *testing.T, tx *Tx, app bourse.App) (out []bourse.MachineID) {
	t.Helper()
	for m, err := range tx.MachinesOf(app) {
		if err != nil {
			t.Error(err)
		}
		out = append(out, m.ID)
	}
	return out
}

// A file of version 5 has no apps' ids in its records. What was made before the
// present app of its name is not that app's; all else is, and a later app of
// the name has none of it.
func TestRecordsOfVersion5BelongToTheAppThatHadTheirName(t *testing.T) {
	dir := golden(t, "version5.db.gz")
	shop := bourse.App{Name: "shop", ID: "01ARZ3NDEKTSV4RRFFQ69G5SHA", CreatedAt: time.Unix(2e9, 0)} // its worker's clock was behind
	web := bourse.App{Name: "web", ID: "01ARZ3NDEKTSV4RRFFQ69G5WEB", Life: 1, CreatedAt: time.Unix(2e9, 0)}
	next := bourse.App{Name: "web", ID: "01ARZ3NDEKTSV4RRFFQ69GNEXT", Life: 2, CreatedAt: time.Unix(3e9, 0)}
	for range 2 { // the second time the file is of this release
		s, err := Open(Config{Dir: dir, turn: smallLog})
		if err != nil {
			t.Fatal(err)
		}
		view(t, s, func(tx *Tx) error {
			for _, c := range []struct {
				app  bourse.App
				want []bourse.MachineID
				held bool
			}{
				{shop, []bourse.MachineID{machineID(0)}, true},
				{web, []bourse.MachineID{machineID(2)}, false},
				{next, nil, false},
				{bourse.App{Name: "shop", ID: "01ARZ3NDEKTSV4RRFFQ69GNEXT", Life: 1, CreatedAt: time.Unix(3e9, 0)}, nil, false},
			} {
				got := machineIDs(t, tx, c.app)
				if len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0] {
					t.Errorf("machines of %v: %v, want %v", c.app.Ref(), got, c.want)
				}
				if warm := tx.WarmFor(c.app, "inc"); len(warm) != len(c.want) || len(warm) > 0 && warm[0] != c.want[0] {
					t.Errorf("warm machines of %v: %v, want %v", c.app.Ref(), warm, c.want)
				}
				volumes := 0
				for _, err := range tx.VolumesOf(c.app) {
					if err != nil {
						return err
					}
					volumes++
				}
				if volumes != len(c.want) {
					t.Errorf("%v has %d volumes, want %d", c.app.Ref(), volumes, len(c.want))
				}
				h, ok, err := tx.Hold(aHold(0, 0, 1, 1, 1).Order)
				if err != nil || !ok || h.OwnedBy(&c.app) != c.held {
					t.Errorf("the hold %+v is %v's: %t, want %t; %v", h, c.app.Ref(), h.OwnedBy(&c.app), c.held, err)
				}
			}
			if o, ok, err := tx.Order(taskOrder(1, 2).ID); err != nil || !ok || o.Task.AppID != "" || o.Task.App != "web" {
				t.Errorf("task %+v, %v", o.Task, err)
			}
			return tx.Verify()
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Two apps that have had one name have nothing in common here: not a machine,
// not a machine's name, not a task.
func TestAppsOfOneNameShareNothing(t *testing.T) {
	s := open(t)
	former := bourse.App{Name: "web", ID: "01ARZ3NDEKTSV4RRFFQFORMERA"}
	present := bourse.App{Name: "web", ID: "01ARZ3NDEKTSV4RRFFQPRESENT", Life: 1, CreatedAt: time.Unix(2e9, 0)}
	for i, app := range []bourse.App{former, present} {
		m := machine(i, bourse.StateStarting)
		m.Name, m.App, m.AppID = "one", app.Name, app.ID
		m.Config.Task = &bourse.TaskConfig{Name: "inc"}
		update(t, s, func(tx *Tx) error { return tx.PutMachine(m) })
	}
	view(t, s, func(tx *Tx) error {
		for i, app := range []bourse.App{former, present} {
			if got := machineIDs(t, tx, app); len(got) != 1 || got[0] != machineID(i) {
				t.Errorf("machines of %s: %v", app.ID, got)
			}
			if id, ok, err := tx.MachineNamed(app, "one"); err != nil || !ok || id != machineID(i) {
				t.Errorf("the machine of %s: %s, %t, %v", app.ID, id, ok, err)
			}
			if got := tx.WarmFor(app, "inc"); len(got) != 1 || got[0] != machineID(i) {
				t.Errorf("warm machines of %s: %v", app.ID, got)
			}
			if n := tx.LivingOf(app); n != 1 {
				t.Errorf("%s has %d machines", app.ID, n)
			}
		}
		return tx.Verify()
	})
}
