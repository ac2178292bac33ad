package container

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/bourse-dev/bourse/driver"
)

// TestFoundWithAnEmptyDirectory runs a daemon whose directory is empty because its disk is not mounted. Found must list
// every container of the directory, including ended ones, because the worker would remove a container that is not
// listed. It must not change any containers.
func TestFoundWithAnEmptyDirectory(t *testing.T) {
	h := newHost(t, nil)
	image := h.busybox(t)
	d, _ := h.recovered(t)
	if found, err := d.Found(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("before anything was started: found %v, %v", found, err)
	}
	runs, ends := order(image, sh(runScript)...), order(image, "true")
	for _, o := range []driver.Task{runs, ends} {
		if _, err := d.Start(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Wait(t.Context(), ends.ID); err != nil {
		t.Fatal(err)
	}
	h.close(t)
	away := h.cfg.Dir + ".away"
	if err := errors.Join(os.Rename(h.cfg.Dir, away), os.Mkdir(h.cfg.Dir, 0o711)); err != nil {
		t.Fatal(err)
	}
	d = h.open(t)
	found, err := d.Found(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []driver.TaskID{runs.ID, ends.ID} {
		if !slices.Contains(found, id) {
			t.Errorf("found %v, want a list with %v", found, id)
		}
	}
	h.close(t)
	if err := errors.Join(os.RemoveAll(h.cfg.Dir), os.Rename(away, h.cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	d, list := h.recovered(t)
	if status, err := d.Inspect(t.Context(), runs.ID); err != nil || status.Exit != nil {
		t.Errorf("afterwards: got %+v, %v, want a running task", status, err)
	}
	if len(list) != 2 {
		t.Errorf("recovered %v, want both tasks", list)
	}
}
