package test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// stormFor is the duration for which servers are killed.
var stormFor = flag.Duration("storm", time.Minute, "how long servers are killed in TestStorm")

const (
	stormClients = 8
	stormAnswer  = 60 * time.Second // time limit for a request, including retries
	stormLives   = 24               // number of machines above which a client destroys its oldest one
	stormAway    = 10 * time.Second // time for which the worker of the machine with a standby is sometimes down
)

// killStorm is a cluster whose servers are killed continuously, together with its clients.
type killStorm struct {
	t       *testing.T
	seed    uint64
	mark    string
	regions []string
	servers []*server // workers and brokers
	brokers []*machinesapi.Client

	mu      sync.Mutex
	orders  []*stormOrder
	freezes bool // hosts can suspend machines
	spare   stormSpare
	counts  struct{ kills, updates, suspends, resumes, answers, repeats atomic.Int64 }
}

// stormOrder is an order, together with what its client knows about it.
type stormOrder struct {
	id      bourse.OrderID
	machine bourse.MachineID
	worker  bourse.WorkerID
	ended   string // "filled", "refused" or "destroyed"; "" if the outcome is unknown
	version int    // number of times that its program was updated
	current bourse.InstanceID
	frozen  bool  // a reply reported that the machine is suspended
	why     error // error in the latest answer
}

// TestStorm kills workers and brokers every 150 to 600 ms, but not before some requests were answered. Clients repeat
// each request, with the id of its order or machine, until it is answered. No machine may be lost, duplicated, left
// running or unknown: the running processes, the suspended machines and the program versions must match the replies to
// the clients. A machine that waits for its schedule must keep waiting. If a machine has a standby, one of the two must
// run at any time and, at the end, only the machine itself.
func TestStorm(t *testing.T) {
	s := newKillStorm(t)
	s.standBy()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var killing, clients sync.WaitGroup
	for i := range uint64(2) { // one goroutine kills workers, the other brokers
		killing.Go(func() { s.kill(ctx, i) })
	}
	over := make(chan struct{})
	for i := range uint64(stormClients) {
		clients.Go(func() { s.live(rand.New(rand.NewPCG(s.seed, i)), over) })
	}
	pause(ctx, *stormFor)
	close(over)
	clients.Wait() // requests must be answered while servers are killed
	stop()
	killing.Wait()
	s.account()
}

func newKillStorm(t *testing.T) *killStorm {
	s := &killStorm{t: t, seed: uint64(time.Now().UnixNano()), regions: []string{"gru", "mad"}}
	s.mark = "bourse-storm-" + strconv.FormatUint(s.seed, 36) + "-"
	t.Logf("seed %d", s.seed)
	first := startServer(t, "b0", "serve", "broker", "--listen", "127.0.0.1:0", "--name", "b0", "--data", filepath.Join(t.TempDir(), "b0"))
	s.servers = append(s.servers, first)
	for i := 1; i < 3; i++ {
		name := "b" + strconv.Itoa(i)
		s.servers = append(s.servers, newServer(t, name, "serve", "broker", "--listen", "127.0.0.1:0", "--name", name,
			"--data", filepath.Join(t.TempDir(), name), "--join", first.Addr))
	}
	for i := range 4 {
		w, _ := newWorker(t, "w"+strconv.Itoa(i), s.regions[i%2], "--join", first.Addr, "--standby-after", "1s")
		s.servers = append(s.servers, w)
	}
	startAll(t, s.servers[1:]...)
	for i, x := range s.servers {
		x.Settle()
		for k, other := range s.servers {
			if k != i {
				x.Args = append(x.Args, "--join", other.Addr)
			}
		}
		if i < 3 {
			s.brokers = append(s.brokers, client(t, x))
		}
	}
	eventually(t, waitTimeout, "all servers know each other", func() error { return servertest.Agreed(t.Context(), 7, s.brokers...) })
	return s
}

// kill kills one worker or broker after another. It restarts each server immediately, and may kill the next one before
// the restarted one is ready. The worker of the machine with a standby sometimes stays down longer. In that time the
// standby's worker is not killed, because the standby's wait would begin again.
func (s *killStorm) kill(ctx context.Context, kind uint64) {
	victims := s.servers[3:]
	if kind == 1 {
		victims = s.servers[:3]
	}
	rng := rand.New(rand.NewPCG(s.seed, 1000+kind))
	up := make(chan *server, len(victims))
	var starting sync.WaitGroup
	defer starting.Wait()
	for _, i := range rng.Perm(len(victims)) {
		up <- victims[i]
	}
	for ctx.Err() == nil {
		pause(ctx, 150*time.Millisecond+rand.N(450*time.Millisecond))
		for ctx.Err() == nil && s.counts.answers.Load() < s.counts.kills.Load() {
			pause(ctx, 50*time.Millisecond) // servers start slowly on a busy host, so wait until clients have received some answers
		}
		var v *server
		select {
		case v = <-up:
		case <-ctx.Done():
			return
		}
		if v == s.spare.standby && s.spare.away.Load() {
			up <- v
			continue
		}
		if err := v.Kill(); err != nil {
			s.t.Errorf("kill %s: %v", v.Name, err)
			return
		}
		s.counts.kills.Add(1)
		away := v == s.spare.host && rng.IntN(6) == 0
		starting.Go(func() {
			if away {
				s.spare.away.Store(true)
				defer s.spare.away.Store(false)
				pause(ctx, stormAway)
			}
			if err := v.Start(); err != nil {
				s.t.Error(err)
				return
			}
			up <- v
		})
	}
}

// live is one client. It creates, changes and destroys machines until over is closed.
func (s *killStorm) live(rng *rand.Rand, over <-chan struct{}) {
	var mine []*stormOrder
	for {
		select {
		case <-over:
			return
		default:
		}
		o := &stormOrder{id: bourse.NewOrderID()}
		s.mu.Lock()
		s.orders = append(s.orders, o)
		s.mu.Unlock()
		s.create(rng, o)
		if o.ended == "filled" {
			mine = append(mine, o)
		}
		if len(mine) > 0 && rng.IntN(3) == 0 {
			s.update(rng, mine[rng.IntN(len(mine))])
		}
		if len(mine) > 0 && rng.IntN(4) == 0 {
			s.suspend(rng, mine[rng.IntN(len(mine))])
		}
		if len(mine) > 0 {
			s.resume(rng, mine[rng.IntN(len(mine))])
		}
		for len(mine) > stormLives || len(mine) > 0 && rng.IntN(3) == 0 {
			i := rng.IntN(len(mine))
			s.destroy(rng, mine[i])
			mine = append(mine[:i], mine[i+1:]...)
		}
	}
}

// repeat sends a request through a broker, and repeats it until ask reports that it was
// answered. A final error counts as an answer.
func (s *killStorm) repeat(rng *rand.Rand, ask func(api *machinesapi.Client) (answered bool)) {
	ctx, cancel := context.WithTimeout(s.t.Context(), stormAnswer)
	defer cancel()
	for ctx.Err() == nil {
		if ask(s.brokers[rng.IntN(len(s.brokers))]) {
			s.counts.answers.Add(1)
			return
		}
		s.counts.repeats.Add(1)
		pause(ctx, 20*time.Millisecond+rand.N(80*time.Millisecond))
	}
}

// unanswered reports whether a client must repeat a request after this error.
func unanswered(err error) bool {
	switch bourse.CodeOf(err) {
	case bourse.CodeUnavailable, bourse.CodeTimeout, bourse.CodeRateLimited:
		return true
	default:
		return false
	}
}

func (s *killStorm) create(rng *rand.Rand, o *stormOrder) {
	in := sleeper(s.regions[rng.IntN(2)], s.program(o))
	in.Deadline = bourse.Duration(5 * time.Second)
	s.repeat(rng, func(api *machinesapi.Client) bool {
		var m machinesapi.CreatedMachine
		m, o.why = api.Create(s.t.Context(), app, in, o.id)
		switch {
		case o.why == nil:
			o.ended, o.machine, o.worker, o.current = "filled", m.ID, m.Worker, m.InstanceID
		case unanswered(o.why):
			return false
		default:
			o.ended = "refused"
		}
		return true
	})
}

// program returns the argument that identifies the process of an order's machine. It
// consists of the program's version and the order's id.
func (s *killStorm) program(o *stormOrder) string {
	return fmt.Sprintf("%sv%d-%s", s.mark, o.version, o.id)
}

// update changes the program of an order's machine until the client knows that the machine
// has the new one. If the answer is lost, the client looks at the machine's config, because
// a repeated update would be refused.
func (s *killStorm) update(rng *rand.Rand, o *stormOrder) {
	o.ended = ""
	o.version++
	config := sleeper("gru", s.program(o)).Config
	s.repeat(rng, func(api *machinesapi.Client) bool {
		var m machinesapi.Machine
		if m, o.why = api.Update(s.t.Context(), app, o.machine, machinesapi.UpdateMachine{Config: config, CurrentVersion: o.current}, ""); o.why != nil {
			now, err := api.Machine(s.t.Context(), app, o.machine)
			if err != nil || now.Config == nil || now.State != bourse.StateStarted || !slices.Equal(now.Config.Init.Exec, config.Init.Exec) {
				return false
			}
			m = now
		}
		o.ended, o.current, o.frozen = "filled", m.InstanceID, false
		s.counts.updates.Add(1)
		return true
	})
}

func (s *killStorm) destroy(rng *rand.Rand, o *stormOrder) {
	o.ended = ""
	s.repeat(rng, func(api *machinesapi.Client) bool {
		o.why = api.Destroy(s.t.Context(), app, o.machine, machinesapi.DestroyMachine{Force: true}, "")
		if o.why != nil && unanswered(o.why) {
			return false
		}
		if o.why == nil || bourse.CodeOf(o.why) == bourse.CodeNotFound {
			o.ended = "destroyed"
		}
		return true
	})
}

// account checks that the running processes match the replies to the clients.
func (s *killStorm) account() {
	s.t.Helper()
	http.DefaultClient.CloseIdleConnections()
	eventually(s.t, waitTimeout, "all servers are connected again", func() error { return servertest.Agreed(s.t.Context(), 7, s.brokers...) })
	var problems []string
	if !within(waitTimeout, func() bool { // a cancellation may still be in progress
		problems = append(s.problems(), s.spare.problems(s)...)
		return len(problems) == 0
	}) {
		for _, p := range problems[:min(len(problems), 50)] {
			s.t.Error(p)
		}
	}
	filled, destroyed := 0, 0
	for _, o := range s.orders {
		switch o.ended {
		case "filled":
			filled++
		case "destroyed":
			destroyed++
		}
	}
	s.t.Logf("%d kills, %d orders: %d filled, %d of them destroyed; %d updates, %d times suspended and %d resumed; a spare was started %d times; %d answers, %d requests repeated",
		s.counts.kills.Load(), len(s.orders), filled+destroyed, destroyed, s.counts.updates.Load(), s.counts.suspends.Load(), s.counts.resumes.Load(), s.spare.stoodIn,
		s.counts.answers.Load(), s.counts.repeats.Load())
	if len(s.orders) < int(s.counts.kills.Load())/4 {
		s.t.Errorf("only %d orders during %d kills, which is not enough load", len(s.orders), s.counts.kills.Load())
	}
}

// problems returns the orders whose state differs from the replies to their clients.
func (s *killStorm) problems() []string {
	running, lines := map[bourse.OrderID][]string{}, linesOf(s.t, s.mark)
	for pid, line := range lines {
		if i := len(line) - 26; i > 0 {
			running[bourse.OrderID(line[i:])] = append(running[bourse.OrderID(line[i:])], pid)
		}
	}
	var out []string
	for _, o := range s.orders {
		pids := running[o.id]
		delete(running, o.id)
		switch n := len(pids); {
		case n > 1:
			out = append(out, fmt.Sprintf("duplicated: order %s, %s as machine %s of %s, has processes %v", o.id, o.ended, o.machine, o.worker, pids))
		case o.ended == "":
			out = append(out, fmt.Sprintf("unknown: order %s, machine %q of %q, processes %v, last answer: %v", o.id, o.machine, o.worker, pids, o.why))
		case o.ended == "filled" && n == 0:
			out = append(out, fmt.Sprintf("lost: order %s was filled by machine %s of %s, but no process runs", o.id, o.machine, o.worker))
		case o.ended == "filled" && !strings.HasSuffix(lines[pids[0]], s.program(o)):
			out = append(out, fmt.Sprintf("outdated: machine %s of %s was updated %d times, but runs %s", o.machine, o.worker, o.version, lines[pids[0]]))
		case o.ended == "filled":
			if problem := s.unsettled(o); problem != "" {
				out = append(out, problem)
			}
		case o.ended == "destroyed" && n > 0:
			out = append(out, fmt.Sprintf("undead: order %s, machine %s of %s, was reported as gone (%v), but process %v runs", o.id, o.machine, o.worker, o.why, pids))
		case o.ended == "refused":
			out = append(out, fmt.Sprintf("refused: order %s, although there is room (processes %v): %v", o.id, pids, o.why))
		}
	}
	for id, pids := range running {
		out = append(out, fmt.Sprintf("processes %v belong to order %s, which no client placed", pids, id))
	}
	return out
}
