package store

import (
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// machineIDs returns the IDs of an app's machines.
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

// TestAppsWithOneNameShareNothing checks that two apps that have used the same name at different times do not
// share machines, machine names or tasks.
func TestAppsWithOneNameShareNothing(t *testing.T) {
	s := open(t)
	former := bourse.App{Name: "web", ID: "01ARZ3NDEKTSV4RRFFQFORMERA"}
	present := bourse.App{Name: "web", ID: "01ARZ3NDEKTSV4RRFFQPRESENT", Generation: 1, CreatedAt: time.Unix(2e9, 0)}
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
				t.Errorf("machine of %s: %s, %t, %v", app.ID, id, ok, err)
			}
			if got := tx.WarmFor(app, "inc"); len(got) != 1 || got[0] != machineID(i) {
				t.Errorf("warm machines of %s: %v", app.ID, got)
			}
			if n := tx.CountMachines(app); n != 1 {
				t.Errorf("%s has %d machines", app.ID, n)
			}
		}
		return tx.Verify()
	})
}
