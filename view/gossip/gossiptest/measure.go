package gossiptest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// Load configures the changes that Measure makes.
type Load struct {
	Changes int           // number of changes
	Every   time.Duration // interval between changes
	Settle  time.Duration // how long to wait for the last changes; default 10 s
	// Dice, if set, makes random nodes change rows at random intervals with an average of Every. If
	// it is nil, the nodes take turns, at fixed intervals.
	Dice *rand.Rand
	// Row returns the row that a node writes for its nth change, counted from 0. Each row must
	// differ from the previous ones. The default is the row of the node's machine after its nth
	// start or stop.
	Row func(n *Node, nth int) wire.Row
}

// next returns the index of the node that makes the ith change, and the pause before that change.
func (l *Load) next(i, nodes int) (node int, pause time.Duration) {
	if l.Dice == nil {
		return i % nodes, l.Every
	}
	return l.Dice.IntN(nodes), time.Duration(l.Dice.ExpFloat64() * float64(l.Every))
}

// Measured contains the results of Measure.
type Measured struct {
	Members, Changes int
	Unseen           int // number of changes that some node did not receive in time
	// P50, P99 and Max describe how long it took until a change was visible in the views of all
	// nodes: the median, the 99th percentile and the maximum.
	P50, P99, Max time.Duration
	// RumorBytes and HTTPBytes are the total sizes of all messages about the view, divided by the
	// number of changes and by the number of members. They do not include packet and HTTP headers.
	RumorBytes, HTTPBytes float64
	ChangeBytes           float64 // average size of an encoded change
	Pulled, Compared      uint64  // numbers of transactions that nodes pulled, and of comparisons of views
	Took                  time.Duration
}

// Bytes returns the number of bytes sent per change and member.
func (m Measured) Bytes() float64 { return m.RumorBytes + m.HTTPBytes }

func (m Measured) String() string {
	return fmt.Sprintf("%d members, %d changes: p50 %d ms, p99 %d ms, max %d ms, unseen %d; bytes per change and member: %.0f (rumors %.0f, HTTP %.0f; a change has %.0f); pulled %d, compared %d, took %.1f s",
		m.Members, m.Changes, m.P50.Milliseconds(), m.P99.Milliseconds(), m.Max.Milliseconds(), m.Unseen,
		m.Bytes(), m.RumorBytes, m.HTTPBytes, m.ChangeBytes, m.Pulled, m.Compared, m.Took.Seconds())
}

// Measure makes the nodes in group publish rows, one change after another, and measures how long
// each change takes to reach the views of all nodes. After each commit of a node's view, it checks
// which changes the view contains.
func Measure(ctx context.Context, group []*Node, load Load) (Measured, error) {
	if load.Settle == 0 {
		load.Settle = 10 * time.Second
	}
	if load.Row == nil {
		load.Row = func(n *Node, nth int) wire.Row { return inventory.MachineRow(machine(n, nth)) }
	}
	before, nth := traffic(group), make([]int, len(group))
	began := time.Now()
	due := began
	w := &watch{nodes: len(group), open: map[wire.Position]*change{}, done: make(chan struct{})}
	stop := w.run(group)
	defer stop()
	var size int
	for i := range load.Changes {
		by, wait := load.next(i, len(group))
		due = due.Add(wait)
		if err := pause(ctx, time.Until(due)); err != nil {
			return Measured{}, err
		}
		n := group[by]
		at := time.Now()
		p, err := n.View.Publish(ctx, load.Row(n, nth[by]))
		nth[by]++
		if err != nil {
			return Measured{}, err
		}
		if encoded, ok := n.View.Since(wire.Position{Stream: p.Stream, Seq: p.Seq - 1}, 1); ok && len(encoded) > 0 {
			size += len(encoded[0])
		}
		w.add(p, at, group)
	}
	w.await(ctx, load.Settle)
	m := w.result(load.Changes)
	after := traffic(group)
	per := float64(load.Changes * len(group))
	m.RumorBytes, m.HTTPBytes = float64(after.rumors-before.rumors)/per, float64(after.http-before.http)/per
	m.ChangeBytes = float64(size) / float64(load.Changes)
	m.Pulled, m.Compared, m.Took = after.pulled-before.pulled, after.compared-before.compared, time.Since(began)
	return m, nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(max(0, d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// machine returns a node's machine after its nth start or stop. Its encoded size is about 800
// bytes, including the events that starts and stops add.
func machine(n *Node, nth int) *bourse.Machine {
	at := time.Unix(1_800_000_000+int64(nth), 0)
	m := &bourse.Machine{
		ID: bourse.MachineID(fmt.Sprintf("%06x%08x", n.Number, 1)), App: "web", Name: fmt.Sprintf("web-%d", n.Number), Region: "gru", Worker: n.ID,
		State: []bourse.State{bourse.StateStarted, bourse.StateStopped}[nth%2], Boot: bourse.Boot{Number: nth, PID: 1000 + nth, Port: 20000},
		Instance: "01HZZZZZZZ0000000000000000", UpdatedAt: at,
	}
	for i := range byte(4) {
		m.LastEvents = append(m.LastEvents, bourse.Event{
			ID: bourse.EventIDAt(at, [10]byte{byte(n.Number), byte(nth), i}), Type: bourse.EventStart, From: bourse.StateStarting,
			State: m.State, Source: bourse.SourceUser, At: at, Instance: m.Instance,
		})
	}
	return m
}

// change is a change that at least one node has not received yet.
type change struct {
	at     time.Time
	unseen map[int]bool // indexes of the nodes that have not received it
}

// watch records when changes reach the nodes' views.
type watch struct {
	nodes int

	mu    sync.Mutex
	open  map[wire.Position]*change
	times []time.Duration
	ended bool // whether no further changes will be added
	done  chan struct{}
}

func (w *watch) add(p wire.Position, at time.Time, group []*Node) {
	c := &change{at: at, unseen: make(map[int]bool, len(group))}
	for i := range group {
		c.unseen[i] = true
	}
	w.mu.Lock()
	w.open[p] = c
	w.mu.Unlock()
	for i, n := range group { // some nodes may have received the change already
		w.look(i, n)
	}
}

// run starts goroutines that call look after each commit of a node's view. They end when stop is
// called.
func (w *watch) run(group []*Node) (stop func()) {
	var wg sync.WaitGroup
	end := make(chan struct{})
	for i, n := range group {
		wg.Go(func() {
			watcher := n.View.Watch()
			defer watcher.Stop()
			for {
				select {
				case <-watcher.C:
					w.look(i, n)
				case <-end:
					return
				}
			}
		})
	}
	return func() { close(end); wg.Wait() }
}

// look records which of the open changes a node has received.
func (w *watch) look(i int, n *Node) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, c := range w.open {
		if !c.unseen[i] || n.View.Head(p.Stream) < p.Seq {
			continue
		}
		if delete(c.unseen, i); len(c.unseen) == 0 {
			w.times = append(w.times, now.Sub(c.at))
			delete(w.open, p)
		}
	}
	if w.ended && len(w.open) == 0 {
		w.ended = false
		close(w.done)
	}
}

// await waits until all nodes have received all changes, but for no longer than limit.
func (w *watch) await(ctx context.Context, limit time.Duration) {
	w.mu.Lock()
	if len(w.open) == 0 {
		w.mu.Unlock()
		return
	}
	w.ended = true
	w.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (w *watch) result(changes int) Measured {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := Measured{Members: w.nodes, Changes: changes, Unseen: len(w.open)}
	if len(w.times) == 0 {
		return m
	}
	slices.Sort(w.times)
	at := func(part float64) time.Duration { return w.times[int(part*float64(len(w.times)-1))] }
	m.P50, m.P99, m.Max = at(0.5), at(0.99), w.times[len(w.times)-1]
	return m
}

type volume struct{ rumors, http, pulled, compared uint64 }

func traffic(group []*Node) volume {
	var v volume
	for _, n := range group {
		t := n.Replicator.Traffic()
		v.rumors += t.RumorBytesOut
		v.http += t.HTTPBytesOut // count only sent bytes, because each byte is received once
		v.pulled += t.Pulled
		v.compared += t.Compared
	}
	return v
}
