package fsmtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
)

// Memory is an in-memory Disk with group commit. The zero value is an empty disk.
type Memory struct {
	Latency time.Duration // duration of a commit; default 0

	mu      sync.Mutex
	durable map[string]fsm.Record
	life    int // number of times that the disk was opened or closed; commits made with an earlier number are lost
	kill    int
	after   bool
	commits int
	broken  error
}

var _ Disk = (*Memory)(nil)

// Open returns a journal with the durable records.
func (m *Memory) Open(testing.TB) fsm.Journal { return m.Journal() }

// Journal is like Open, for use outside of tests.
func (m *Memory) Journal() fsm.Journal {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.life++
	m.commits = 0
	return &memoryJournal{disk: m, life: m.life}
}

// Close makes all further commits to the most recently opened journal fail.
func (m *Memory) Close(testing.TB) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.life++
}

// KillAt sets the commit at which the next journal fails.
func (m *Memory) KillAt(n int, after bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kill, m.after = n, after
}

// Break makes every commit fail with err, like a full disk. If err is nil, commits succeed
// again.
func (m *Memory) Break(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = err
}

// Commits returns the number of commits since the last Open.
func (m *Memory) Commits() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.commits
}

var errDead = bourse.Errorf(bourse.CodeUnavailable, "the process has been killed")

// keep makes records durable, unless the process dies at this commit.
func (m *Memory) keep(life int, records map[string]fsm.Record) error {
	time.Sleep(m.Latency)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life != life {
		return errDead
	}
	if m.broken != nil {
		return m.broken
	}
	m.commits++
	dies := m.commits == m.kill
	if !dies || m.after {
		m.durable = records
	}
	if dies {
		m.life++
		return errDead
	}
	return nil
}

// memoryJournal is a journal on a Memory. Its commits fail once the Memory has been closed or
// opened again.
type memoryJournal struct {
	disk *Memory
	life int

	mu      sync.Mutex
	queue   []*memoryCommit
	working bool // a goroutine is processing queue; it ends when queue is empty
}

type memoryCommit struct {
	fn            func(fsm.Tx) error
	applied, done chan struct{}
	err           error
}

func (c *memoryCommit) Applied() <-chan struct{} { return c.applied }

func (c *memoryCommit) Wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the journal: %w", ctx.Err())
	}
}

func (c *memoryCommit) finish(err error) {
	c.err = err
	close(c.done)
	select {
	case <-c.applied:
	default:
		close(c.applied)
	}
}

// Submit queues a transaction.

func (j *memoryJournal) Submit(fn func(fsm.Tx) error) fsm.Commit {
	c := &memoryCommit{fn: fn, applied: make(chan struct{}), done: make(chan struct{})}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.queue = append(j.queue, c)
	if !j.working {
		j.working = true
		go j.work()
	}
	return c
}

func (j *memoryJournal) work() {
	for {
		j.mu.Lock()
		batch := j.queue
		j.queue = nil
		j.working = len(batch) > 0
		j.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		j.commit(batch)
	}
}

func (j *memoryJournal) commit(batch []*memoryCommit) {
	state, err := j.disk.read(j.life)
	if err != nil {
		for _, c := range batch {
			c.finish(err)
		}
		return
	}
	refused := map[*memoryCommit]error{}
	for _, c := range batch {
		tx := memoryTx{maps.Clone(state)}
		if err := c.fn(tx); err != nil {
			refused[c] = err
			continue
		}
		state = tx.records
		close(c.applied)
	}
	if len(refused) < len(batch) {
		err = j.disk.keep(j.life, state)
	}
	for _, c := range batch {
		c.finish(cmp.Or(err, refused[c]))
	}
}

func (m *Memory) read(life int) (map[string]fsm.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life != life {
		return nil, errDead
	}
	if m.durable == nil {
		return map[string]fsm.Record{}, nil
	}
	return maps.Clone(m.durable), nil
}

// Unfinished returns the runs that have not ended.
func (j *memoryJournal) Unfinished() ([]fsm.Record, error) {
	records, err := j.disk.read(j.life)
	var out []fsm.Record
	for _, id := range slices.Sorted(maps.Keys(records)) {
		if !records[id].Status.Ended() {
			out = append(out, records[id])
		}
	}
	return out, err
}

// Run returns the run with an id.
func (j *memoryJournal) Run(id string) (fsm.Record, bool, error) {
	records, err := j.disk.read(j.life)
	rec, ok := records[id]
	return rec, ok, err
}

type memoryTx struct{ records map[string]fsm.Record }

func (t memoryTx) PutRun(rec fsm.Record) error {
	t.records[rec.ID] = rec
	return nil
}

func (t memoryTx) DeleteRun(rec fsm.Record) error {
	delete(t.records, rec.ID)
	return nil
}
