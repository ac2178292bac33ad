package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
)

// TestRemoveWorker kills a worker. The worker must remain listed, and its machine's name must remain in use, until two
// brokers remove the worker concurrently while a third broker is down. Then all brokers must no longer list the
// machine, even with a new view. When the worker returns after all, it must still have its machine and report it.
func TestRemoveWorker(t *testing.T) {
	t.Parallel()
	var log gossiptest.Log
	data := t.TempDir()
	b1 := startServer(t, "b1", "serve", "broker", "--name", "b1", "--listen", "127.0.0.1:0")
	b2 := startServer(t, "b2", "serve", "broker", "--name", "b2", "--listen", "127.0.0.1:0", "--join", b1.Addr)
	b3 := startServer(t, "b3", "serve", "broker", "--name", "b3", "--listen", "127.0.0.1:0", "--join", b1.Addr, "--data", filepath.Join(data, "b3"))
	b3.Settle()
	w1, _ := newWorker(t, "w1", "gru", "--join", b1.Addr, "--join", b2.Addr)
	w2, _ := newWorker(t, "w2", "gru", "--join", b1.Addr, "--join", b2.Addr)
	startAll(t, w1, w2)
	w1.Settle()
	one, two := client(t, b1), client(t, b2)
	named := func(worker string) machinesapi.CreateMachine {
		in := on(worker, sleeper("gru", "bourse-remove-"+fmt.Sprint(os.Getpid())))
		in.Name = "web"
		return in
	}
	var m machinesapi.CreatedMachine
	eventually(t, waitTimeout, "a machine is created on w1", func() (err error) {
		m, err = one.Create(t.Context(), app, named("w1"), "")
		return err
	})
	for _, b := range []*server{b1, b2, b3} {
		eventually(t, waitTimeout, "the view contains the machine", func() error {
			rows, err := query(t.Context(), client(t, b), "SELECT count(*) FROM machines")
			if err == nil && fmt.Sprint(rows) != "[[1]]" {
				err = fmt.Errorf("the view counts %v, want 1", rows)
			}
			return err
		})
	}
	if _, err := one.Operator().RemoveMember(t.Context(), "w1", true); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		t.Errorf("remove a running worker: %v, want failed_precondition", err)
	}
	if err := w1.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, api := range []*machinesapi.Client{one, two} {
		eventually(t, waitTimeout, "w1 is down", func() error {
			w, err := api.Worker(t.Context(), "w1")
			if err == nil && (w.Status != machinesapi.WorkerDown || w.Machines != 1 || time.Since(w.Since) > time.Minute) {
				err = fmt.Errorf("the worker is %+v, want down with one machine", w)
			}
			return err
		})
	}
	if h, err := one.ViewHealth(t.Context()); err != nil || h.Agrees {
		t.Errorf("the view's health without w1: %+v, %v; want agrees = false", h, err)
	}
	_, err := one.Create(t.Context(), app, named("w2"), "")
	if want := string(m.ID) + ` already exists with name "web", and worker w1 is DOWN since `; bourse.CodeOf(err) != bourse.CodeAlreadyExists || !strings.Contains(err.Error(), want) {
		t.Errorf("order with the name of a machine on w1: %v, want %q", err, want)
	}
	force := machinesapi.DestroyMachine{Force: true}
	err = one.Destroy(t.Context(), app, m.ID, force, "")
	if want := "cannot be destroyed now: its worker w1 "; bourse.CodeOf(err) != bourse.CodeUnavailable || !strings.Contains(err.Error(), want) {
		t.Errorf("destroy of a machine on w1: %v, want %q", err, want)
	}
	if err := b3.Kill(); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() { _, err := two.Operator().RemoveMember(t.Context(), "w1", false); failed <- err }()
	if _, err := one.Operator().RemoveMember(t.Context(), "w1", false); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	removed := func(api *machinesapi.Client) error {
		list, err := api.Workers(t.Context())
		if err == nil && len(list) != 1 {
			err = fmt.Errorf("workers %+v, want one", list)
		}
		if err != nil {
			return err
		}
		machines, _, err := api.Machines(t.Context(), app, machinesapi.ListMachines{})
		if err == nil && len(machines) != 0 {
			err = fmt.Errorf("machines %+v, want none", machines)
		}
		return err
	}
	eventually(t, waitTimeout, "b1 no longer lists w1", func() error { return removed(one) })
	eventually(t, waitTimeout, "b2 no longer lists w1", func() error { return removed(two) })
	if err := b3.Start(); err != nil { // the view of b3 still contains w1
		t.Fatal(err)
	}
	eventually(t, waitTimeout, "b3 no longer lists w1", func() error { return removed(client(t, b3)) })
	if err := b3.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(data, "b3")); err != nil {
		t.Fatal(err)
	}
	if err := b3.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitTimeout, "b3 with a new view no longer lists w1", func() error { return removed(client(t, b3)) })
	if err := one.Destroy(t.Context(), app, m.ID, force, ""); err != nil {
		t.Errorf("destroy of a machine on a removed worker: %v, want success", err)
	}
	if _, err := one.Create(t.Context(), app, named("w2"), ""); err != nil {
		t.Errorf("the machine's name is still in use: %v", err)
	}
	launch := w1.Launch
	w1.Launch = func(c *exec.Cmd) error { c.Stderr = &log; return launch(c) }
	if err := w1.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitTimeout, "w1 is back with its machine", func() error {
		list, _, err := two.Machines(t.Context(), app, machinesapi.ListMachines{})
		if err == nil && (len(list) != 2 || list[0].ID != m.ID || list[0].State != bourse.StateStarted) {
			err = fmt.Errorf("machines %+v, want two, the first of them %s, started", list, m.ID)
		}
		return err
	})
	if !log.Await(10*time.Second, "this worker had been removed from the cluster and has returned") {
		t.Errorf("the worker's log does not report its removal and return:\n%s", &log)
	}
	if err := one.Destroy(t.Context(), app, m.ID, force, ""); err != nil {
		t.Error(err)
	}
}
