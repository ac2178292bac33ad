package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

const (
	app   = bourse.AppName("default")
	kills = 50 // minimum number of kills
)

// promise is the state of a machine according to the replies to its caller.
type promise struct {
	id      bourse.MachineID
	pid     int
	code    int  // exit code, if short is set
	lines   int  // number of lines that it prints
	short   bool // the program exits; otherwise it runs until it is stopped
	asked   bool // the outcome of the latest operation is unknown
	stopped bool
	gone    bool
}

// TestInvariant6KillTheDaemon tests invariant 6 with real processes. It kills the worker's daemon at random moments
// while clients create, stop and destroy machines. Afterwards every machine, exit code and log line must match the
// replies to the callers.
func TestInvariant6KillTheDaemon(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	broker := startServer(t, "broker", "serve", "broker", "--listen", "127.0.0.1:0")
	mark := "bourse-kill-" + strconv.FormatUint(seed, 36)
	worker := startServer(t, "w1", "serve", "worker", "--region", "gru", "--name", "w1", "--data", filepath.Join(t.TempDir(), "w1"),
		"--cpus", "1000", "--memory", "1TiB", "--disk", "1TiB", "--ephemeral", "--join", broker.Addr)
	api := client(t, broker)
	worker.Settle()

	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var mu sync.Mutex
	var promises []*promise
	var refused, made atomic.Int64
	for c := range uint64(6) {
		load.Go(func() {
			rng := rand.New(rand.NewPCG(seed, c))
			for ctx.Err() == nil {
				p, err := live(ctx, api, rng, mark)
				if err != nil {
					refused.Add(1)
					pause(ctx, 5*time.Millisecond) // back off while the server is down
				}
				if p != nil {
					mu.Lock()
					promises = append(promises, p)
					mu.Unlock()
					made.Add(1)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, 99))
	for range kills {
		before := made.Load()
		within(5*time.Second, func() bool { return made.Load() > before }) // wait until the server has handled requests again
		pause(ctx, time.Duration(rng.IntN(80))*time.Millisecond)           // make the moment of the kill random
		if err := worker.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	load.Wait()
	if !within(waitTimeout, func() bool {
		_, silent, err := api.Machines(t.Context(), app, machinesapi.ListMachines{})
		return err == nil && len(silent) == 0
	}) {
		t.Fatal("the worker did not become ready again")
	}
	t.Logf("%d kills, %d machines; %d calls failed or were refused", kills, len(promises), refused.Load())
	if len(promises) < kills {
		t.Errorf("only %d machines were created, which is not enough load", len(promises))
	}
	for _, p := range promises {
		p.check(t, api)
	}
	checkProcesses(t, api, mark)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// live creates a machine and possibly stops or destroys it. It returns what the replies say
// about the machine.
func live(ctx context.Context, api *machinesapi.Client, rng *rand.Rand, mark string) (*promise, error) {
	p := &promise{code: rng.IntN(100), lines: 1 + rng.IntN(20), short: rng.IntN(2) == 0}
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line-$i; i=$((i+1)); done; ", p.lines)
	if p.short {
		script += fmt.Sprintf("sleep 0.0%d; exit %d; : %s", rng.IntN(10), p.code, mark)
	} else {
		script += "sleep 1000; : " + mark
	}
	m, err := api.Create(ctx, app, machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
		Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 16}, Restart: &bourse.Restart{Policy: bourse.RestartNo},
		Init: bourse.Init{Exec: []string{"/bin/sh", "-c", script}},
	}}, "")
	if err != nil {
		return nil, err
	}
	p.id, p.pid = m.ID, m.PID
	if p.short {
		return p, nil
	}
	switch rng.IntN(3) {
	case 0:
		err = api.Stop(ctx, app, p.id, machinesapi.StopMachine{Signal: "SIGKILL"}, "")
		p.stopped = err == nil
	case 1:
		err = api.Destroy(ctx, app, p.id, machinesapi.DestroyMachine{Force: true}, "")
		p.gone = err == nil
	}
	p.asked = err != nil
	return p, err
}

func (p *promise) check(t *testing.T, api *machinesapi.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if p.gone {
		if m, err := api.Machine(ctx, app, p.id); err == nil && m.State != bourse.StateDestroyed {
			t.Errorf("machine %s was reported as destroyed, but is %s", p.id, m.State)
		}
		return
	}
	if p.asked {
		return // the machine's state is unknown, but checkProcesses still checks its process
	}
	if p.short || p.stopped {
		if _, err := api.Wait(ctx, app, p.id, machinesapi.WaitMachine{States: []string{"stopped"}, Timeout: bourse.Duration(20 * time.Second)}); err != nil {
			t.Errorf("machine %s: %v", p.id, err)
			return
		}
	}
	m, err := api.Machine(ctx, app, p.id)
	if err != nil {
		t.Errorf("machine %s: %v", p.id, err)
		return
	}
	switch {
	case p.short, p.stopped:
		p.checkExit(t, &m)
	case m.State != bourse.StateStarted || m.PID != p.pid:
		t.Errorf("machine %s was reported as started with pid %d, and is now %s with pid %d", p.id, p.pid, m.State, m.PID)
	}
	if !p.stopped { // a machine that was killed may not have printed all lines
		p.checkLines(t, api)
	}
}

func (p *promise) checkExit(t *testing.T, m *machinesapi.Machine) {
	t.Helper()
	exits := 0
	for _, e := range m.Events {
		if e.Type != bourse.EventExit {
			continue
		}
		exits++
		exit := e.Request.ExitEvent
		if p.short && exit.ExitCode != p.code {
			t.Errorf("machine %s: exit code %d (%s), want %d", p.id, exit.ExitCode, exit.Error, p.code)
		}
		if p.stopped && (!exit.RequestedStop || exit.Signal != 9) {
			t.Errorf("machine %s: exit %+v, want a requested stop by signal 9", p.id, exit)
		}
	}
	if exits != 1 {
		t.Errorf("machine %s: %d exits reported, want 1", p.id, exits)
	}
}

func (p *promise) checkLines(t *testing.T, api *machinesapi.Client) {
	t.Helper()
	read := func() (got []string) {
		if err := api.Logs(t.Context(), app, p.id, machinesapi.LogQuery{}, func(l machinesapi.LogLine) error {
			got = append(got, l.Text)
			return nil
		}); err != nil {
			t.Errorf("logs of %s: %v", p.id, err)
		}
		return got
	}
	got := read()
	if !p.short { // the program may still be printing
		within(5*time.Second, func() bool { got = read(); return len(got) >= p.lines })
	}
	for i := range max(len(got), p.lines) {
		want := "line-" + strconv.Itoa(i)
		if i >= len(got) || i >= p.lines || got[i] != want {
			t.Errorf("machine %s printed %d lines, want %d; first difference: %s", p.id, len(got), p.lines, want)
			return
		}
	}
}

// checkProcesses checks that the running processes are exactly those of the machines
// recorded as started.
func checkProcesses(t *testing.T, api *machinesapi.Client, mark string) {
	t.Helper()
	var pids []string
	want, states := map[string]bool{}, map[bourse.State]int{}
	var away []bourse.WorkerID
	same := func() bool {
		all, silent, err := api.Machines(t.Context(), app, machinesapi.ListMachines{})
		if err != nil {
			return false
		}
		clear(want)
		clear(states)
		away = silent
		for _, m := range all {
			states[m.State]++
			if m.State == bourse.StateStarted {
				want[strconv.Itoa(m.PID)] = true
			}
		}
		pids = pidsOf(t, mark)
		for _, pid := range pids {
			if !want[pid] {
				return false
			}
		}
		return len(pids) == len(want)
	}
	if !within(time.Minute, same) {
		t.Errorf("%d processes run, want %d, one for each started machine: processes %v, want %v; states %v, workers without an answer %v", len(pids), len(want), pids, want, states, away)
	}
}
