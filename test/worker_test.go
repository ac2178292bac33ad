package test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// lossy is a cluster of two brokers and two workers, the first of which is killed.
type lossy struct {
	t              *testing.T
	mark, data     string
	lost, stays    *server
	apis           []*machinesapi.Client
	onLost, onStay []machinesapi.Machine
}

// TestWorkerLost kills a worker's daemon. Its machines must continue, and all brokers must show
// that their host is unreachable. When the daemon is back, the machines must be unchanged. Then the
// worker loses its data, and returns as a new worker with the same name.
func TestWorkerLost(t *testing.T) {
	t.Parallel()
	one := startServer(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0")
	two := newServer(t, "b2", "serve", "broker", "--listen", "127.0.0.1:0", "--join", one.Addr)
	c := &lossy{t: t, mark: "bourse-lost-" + strconv.FormatInt(time.Now().UnixNano(), 36)}
	c.lost, c.data = newWorker(t, "w-lost", "gru", "--join", one.Addr)
	c.stays, _ = newWorker(t, "w-stays", "gru", "--join", one.Addr)
	startAll(t, two, c.lost, c.stays)
	c.apis = []*machinesapi.Client{client(t, one), client(t, two)}
	eventually(t, waitTimeout, "all servers know each other", func() error { return servertest.Agreed(t.Context(), 4, c.apis...) })
	for i := range 3 {
		c.onLost = append(c.onLost, create(t, c.apis[i%2], on("w-lost", sleeper("gru", c.mark))))
		c.onStay = append(c.onStay, create(t, c.apis[i%2], on("w-stays", sleeper("gru", c.mark))))
	}
	c.converged()
	c.killAndReturn()
	c.lost.Settle()
	c.killAndReturnAtOnce()
	c.wipe()
}

func (c *lossy) converged() machines {
	c.t.Helper()
	have := converged(c.t, 4, c.apis, c.lost, c.stays)
	kept(c.t, slices.Concat(c.onLost, c.onStay), have)
	if len(have) != len(c.onLost)+len(c.onStay) {
		c.t.Errorf("%d machines exist, want %d", len(have), len(c.onLost)+len(c.onStay))
	}
	return have
}

// killAndReturn kills the worker and restarts it later. It measures how long brokers take
// to notice the kill and the restart. Package view/replication tests the limits for these
// times in virtual time; here they depend on the host's load.
func (c *lossy) killAndReturn() {
	c.t.Helper()
	pids := pidsOf(c.t, c.mark)
	if err := c.lost.Kill(); err != nil {
		c.t.Fatal(err)
	}
	dead := c.shown(machinesapi.HostUnreachable)
	if got := pidsOf(c.t, c.mark); !slices.Equal(got, pids) {
		c.t.Errorf("after the daemon was killed, the machines have the processes %v, want %v", got, pids)
	}
	begin := time.Now()
	if err := c.lost.Start(); err != nil {
		c.t.Fatal(err)
	}
	ready := time.Since(begin)
	back := ready + c.shown(machinesapi.HostOK)
	if got := pidsOf(c.t, c.mark); !slices.Equal(got, pids) {
		c.t.Errorf("after the daemon was restarted, the machines have the processes %v, want %v", got, pids)
	}
	c.t.Logf("all brokers listed the worker as unreachable %v after the kill, and as ok %v after the start (ready after %v)",
		dead.Round(time.Millisecond), back.Round(time.Millisecond), ready.Round(time.Millisecond))
	c.converged()
}

// killAndReturnAtOnce kills the worker and restarts it immediately, so that other members
// may learn about the return before they learn about the loss.
func (c *lossy) killAndReturnAtOnce() {
	c.t.Helper()
	if err := c.lost.Kill(); err != nil {
		c.t.Fatal(err)
	}
	begin := time.Now()
	if err := c.lost.Start(); err != nil {
		c.t.Fatal(err)
	}
	for _, api := range c.apis {
		var m machinesapi.CreatedMachine
		order := bourse.NewOrderID() // with an id, so that a retry finds the machine of an attempt whose answer was lost
		eventually(c.t, waitTimeout, "the worker that was restarted immediately accepts orders", func() (err error) {
			m, err = api.Create(c.t.Context(), app, on("w-lost", sleeper("gru", c.mark)), order)
			return err
		})
		c.onLost = append(c.onLost, m.Machine)
	}
	c.t.Logf("orders were filled through every broker %v after the start of a worker that was restarted immediately", time.Since(begin).Round(time.Millisecond))
	c.converged()
}

// shown waits until every broker shows the killed worker's machines with this status, and
// returns how long that took.
func (c *lossy) shown(status machinesapi.HostStatus) time.Duration {
	c.t.Helper()
	want := map[bourse.MachineID]machinesapi.HostStatus{}
	for i := range c.onLost {
		want[c.onLost[i].ID] = status
	}
	for i := range c.onStay {
		want[c.onStay[i].ID] = machinesapi.HostOK
	}
	return eventually(c.t, waitTimeout, "machines of the lost worker are shown as "+string(status), func() error {
		return hosts(c.t.Context(), want, c.apis...)
	})
}

// wipe simulates that a host gets a new disk and keeps its name.
func (c *lossy) wipe() {
	c.t.Helper()
	if err := c.lost.Kill(); err != nil {
		c.t.Fatal(err)
	}
	c.killProcesses(c.data) // kill the supervisor first, because it would record the exits of the others
	for i := range c.onLost {
		c.killPID(c.onLost[i].PID)
	}
	if err := os.RemoveAll(c.data); err != nil {
		c.t.Fatal(err)
	}
	c.lost.Args = append(c.lost.Args, "--forget-machines") // remove the leftovers of the machines
	if err := c.lost.Start(); err != nil {
		c.t.Fatal(err)
	}
	old := c.onLost
	c.onLost = nil
	took := c.shown(machinesapi.HostOK)
	c.t.Logf("no broker listed machines of the wiped worker %v after its start", took.Round(time.Millisecond))
	eventually(c.t, waitTimeout, "the brokers list the wiped worker", func() error { return servertest.Agreed(c.t.Context(), 4, c.apis...) })
	for i := range 2 {
		c.onLost = append(c.onLost, create(c.t, c.apis[i], on("w-lost", sleeper("gru", c.mark))))
	}
	have := c.converged()
	for i := range old {
		if m, ok := have[old[i].ID]; ok {
			c.t.Errorf("machine %s still exists after its worker's data was wiped: %+v", old[i].ID, m)
		}
		for _, api := range c.apis {
			m, err := api.Machine(c.t.Context(), app, old[i].ID)
			if bourse.CodeOf(err) != bourse.CodeNotFound {
				c.t.Errorf("machine %s of the wiped worker: %s, %v; want not_found", old[i].ID, m.State, err)
			}
		}
	}
	eventually(c.t, waitTimeout, "exactly the machines' processes run", func() error {
		want := map[string]bool{}
		for _, m := range have {
			want[strconv.Itoa(m.PID)] = true
		}
		if got := pidsOf(c.t, c.mark); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
			return fmt.Errorf("processes %v, want those of the machines %v", got, ids(have))
		}
		return nil
	})
}

func (c *lossy) killProcesses(mark string) {
	c.t.Helper()
	found := pidsOf(c.t, mark)
	if len(found) == 0 {
		c.t.Fatal("the supervisor was not found")
	}
	for _, text := range found {
		pid, err := strconv.Atoi(text)
		if err != nil {
			c.t.Fatal(err)
		}
		c.killPID(pid)
	}
}

func (c *lossy) killPID(pid int) {
	c.t.Helper()
	if pid <= 1 {
		c.t.Fatalf("a machine has process id %d, want more than 1", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
		c.t.Fatal(err)
	}
}
