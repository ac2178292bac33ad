package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// files is a cluster of two brokers and a worker, in which one copy of the view is damaged.
type files struct {
	t        *testing.T
	mark     string
	harmed   *machinesapi.Client // client of the broker whose lists are checked while a copy is damaged
	healthy  *machinesapi.Client
	worker   *server
	ofWorker string // path of the worker's copy
	promised []machinesapi.Machine
}

// newFiles starts the cluster. one returns the broker whose copy may be damaged.
func newFiles(t *testing.T, mark string, one func(join string) *server) *files {
	t.Helper()
	two := startServer(t, "b2", "serve", "broker", "--listen", "127.0.0.1:0")
	c := &files{t: t, mark: mark + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)}
	var data string
	c.worker, data = newWorker(t, "w1", "gru", "--join", two.Addr)
	c.ofWorker = filepath.Join(data, "view.db")
	harmed := one(two.Addr)
	startAll(t, harmed, c.worker)
	c.harmed, c.healthy = client(t, harmed), client(t, two)
	eventually(t, waitTimeout, "all servers know each other", func() error { return servertest.Agreed(t.Context(), 3, c.harmed, c.healthy) })
	c.order(c.harmed)
	c.order(c.healthy)
	c.converged()
	return c
}

// TestViewFile deletes or overwrites a running server's copy of the view. Orders must still
// be filled and lists answered. Afterwards all copies must be identical again.
func TestViewFile(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	c := newFiles(t, "bourse-file", func(join string) *server {
		return newServer(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0", "--data", data, "--join", join)
	})
	ofBroker := filepath.Join(data, "view.db")
	c.replaced(ofBroker, "deleted", os.Remove)
	c.replaced(ofBroker, "deleted with its log", removeAll)
	c.replaced(ofBroker, "overwritten", func(path string) error { return overwrite(path, 0) })
	c.replaced(ofBroker, "overwritten except for its head", func(path string) error { return overwrite(path, 100) })
	c.replaced(c.ofWorker, "deleted", os.Remove)
	// A worker rarely reads what it has written, so it may notice the damage only after a
	// restart.
	c.replaced(c.ofWorker, "overwritten", func(path string) error {
		c.orders()
		if err := overwrite(path, 0); err != nil {
			return err
		}
		c.orders()
		if err := errors.Join(c.worker.Kill(), c.worker.Start()); err != nil {
			return err
		}
		eventually(t, waitTimeout, "the broker knows the worker again", func() error { return servertest.Agreed(t.Context(), 3, c.harmed, c.healthy) })
		return nil
	})
	checkProcesses(t, c.healthy, c.mark)
}

func removeAll(path string) error {
	return errors.Join(os.Remove(path), os.Remove(path+"-wal"), os.Remove(path+"-shm"))
}

// overwrite overwrites a file from an offset on, and also the log next to it.
func overwrite(path string, from int64) error {
	var errs []error
	for _, p := range []string{path, path + "-wal"} {
		f, err := os.OpenFile(p, os.O_WRONLY, 0)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		info, err := f.Stat()
		if err == nil && info.Size() > from {
			_, err = f.WriteAt(bytes.Repeat([]byte{0xA5}, int(info.Size()-from)), from)
		}
		errs = append(errs, err, f.Close())
	}
	return errors.Join(errs...)
}

func (c *files) order(api *machinesapi.Client) {
	c.t.Helper()
	c.promised = append(c.promised, create(c.t, api, sleeper("gru", c.mark)))
}

func (c *files) converged() {
	c.t.Helper()
	have := converged(c.t, 3, []*machinesapi.Client{c.harmed, c.healthy}, c.worker)
	kept(c.t, c.promised, have)
}

// orders places some orders through both brokers.
func (c *files) orders() {
	c.t.Helper()
	for range 3 {
		c.order(c.harmed)
		c.order(c.healthy)
	}
}

// replaced damages a server's file, and waits until the server has created a new one.
func (c *files) replaced(path, how string, harm func(path string) error) {
	c.t.Helper()
	what := filepath.Base(path) + " is " + how
	was, err := os.Stat(path)
	if err != nil {
		c.t.Fatal(err)
	}
	c.endures(what, func() {
		if err := harm(path); err != nil {
			c.t.Fatalf("%s: %v", what, err)
		}
		c.orders()
		took := eventually(c.t, 10*time.Second, what+": the copy is created again", func() error {
			if is, err := os.Stat(path); err != nil || os.SameFile(was, is) {
				return fmt.Errorf("the copy was not created again: %v", err) //nolint:errorlint // only shown
			}
			return nil
		})
		c.t.Logf("%s: created again after %v", what, took.Round(time.Millisecond))
	})
}

// moment limits the time during which existing machines may be missing from lists. They are missing while a copy is
// recreated, and while the other copies switch to a worker's new stream.
const moment = 3 * time.Second

// endures checks that lists are answered while do runs, and then waits until all views are
// identical.
func (c *files) endures(what string, do func()) {
	c.t.Helper()
	before := slices.Clone(c.promised)
	ctx, stop := context.WithCancel(c.t.Context())
	var lists sync.WaitGroup
	defer lists.Wait()
	defer stop()
	lists.Go(func() { c.list(ctx, what, before) })
	do()
	c.orders()
	c.converged()
}

// list lists machines through the broker harmed until ctx is done. Lists may fail only for
// a short time.
func (c *files) list(ctx context.Context, what string, want []machinesapi.Machine) {
	lists, least, lacked, whole := 0, len(want), time.Duration(0), time.Now()
	for ; ctx.Err() == nil; pause(ctx, 5*time.Millisecond) {
		begin := time.Now()
		list, err := listed(ctx, c.harmed)
		if ctx.Err() != nil {
			break
		}
		if err != nil { // the list counts as incomplete, because a worker that is restarting does not answer
			lacked = max(lacked, time.Since(whole))
			continue
		}
		lists++
		found := 0
		for i := range want {
			if _, ok := list[want[i].ID]; ok {
				found++
			}
		}
		if least = min(least, found); found == len(want) {
			whole = begin
		} else {
			lacked = max(lacked, time.Since(whole))
		}
	}
	c.t.Logf("%s: %d lists of %d machines, the shortest one of %d; incomplete for %v", what, lists, len(want), least, lacked.Round(time.Millisecond))
	if lacked > moment {
		c.t.Errorf("%s: lists were incomplete for %v, want %v at most", what, lacked, moment)
	}
}
