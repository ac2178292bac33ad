package store

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
)

// benchRequest is about as large as the request of a run that creates a machine.
var benchRequest = map[string]string{"config": strings.Repeat("x", 800)}

// BenchmarkRun3Steps measures durable runs of three steps. Each run makes four transitions,
// including its first record. The baseline writes the same records one after another, each in
// its own synced transaction.
func BenchmarkRun3Steps(b *testing.B) {
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) { benchRuns(b, clients) })
		b.Run(fmt.Sprintf("baseline/clients=%d", clients), func(b *testing.B) { benchSerial(b, clients) })
	}
}

func benchRuns(b *testing.B, clients int) {
	s := open(b)
	step := func(context.Context, *fsm.Run[map[string]string, map[string]string]) fsm.Outcome { return fsm.Done() }
	d := fsm.Define[map[string]string, map[string]string]("bench").Step("one", step).Step("two", step).Step("three", step)
	e := fsm.New(fsm.Config{Journal: s.Journal()})
	e.Register(d)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	<-e.Resumed()
	runConcurrently(b, clients, func(n int64) error {
		h, err := d.Start(b.Context(), e, fmt.Sprintf("machine/%d", n), benchRequest, fsm.StartOptions{})
		if err != nil {
			return err
		}
		_, err = h.Wait(b.Context())
		return err
	})
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}

func benchSerial(b *testing.B, clients int) {
	db, err := bbolt.Open(filepath.Join(b.TempDir(), "db"), 0o600, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	if err := db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("runs")); return err }); err != nil {
		b.Fatal(err)
	}
	request, err := json.Marshal(benchRequest)
	if err != nil {
		b.Fatal(err)
	}
	runConcurrently(b, clients, func(n int64) error {
		rec := fsm.Record{ID: fmt.Sprintf("run-%026d", n), Definition: "bench", Resource: fmt.Sprintf("machine/%d", n), Request: request, CreatedAt: time.Now()}
		for _, step := range []string{"one", "two", "three", ""} {
			rec.Step = step
			v, err := encode(rec)
			if err != nil {
				return err
			}
			if err := db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("runs")).Put([]byte(rec.ID), v) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// runConcurrently calls work b.N times, distributed among the clients, and reports the runs per second.
func runConcurrently(b *testing.B, clients int, work func(n int64) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range clients {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if err := work(n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
}

// BenchmarkPutMachine measures one transition of a machine and its log entry, as a step writes
// them, with 1 and 16 concurrent clients.
func BenchmarkPutMachine(b *testing.B) {
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			s := open(b)
			for n := range 2000 {
				update(b, s, func(t *Tx) error { return t.PutMachine(machine(n, bourse.StateCreated)) })
			}
			runConcurrently(b, clients, func(n int64) error {
				return s.Update(b.Context(), func(t *Tx) error {
					m, err := t.Machine(machineID(int(n % 2000)))
					if err != nil {
						return err
					}
					m.UpdatedAt = time.Now()
					if _, err := t.Append(Entry{Kind: KindMachine, ID: string(m.ID), Event: bourse.Event{Type: "start", At: m.UpdatedAt}}); err != nil {
						return err
					}
					return t.PutMachine(&m)
				})
			})
		})
	}
}

func machineID(n int) bourse.MachineID { return bourse.MachineID(fmt.Sprintf("abcdef%08x", n)) }

func machine(n int, state bourse.State) *bourse.Machine {
	config := bourse.Config{Image: "host", Guest: &bourse.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}, Env: map[string]string{"A": "b"}}
	config.Init.Exec = []string{"/bin/sleep", "1000"}
	return &bourse.Machine{
		ID: machineID(n), Name: fmt.Sprintf("m-%d", n), App: "default", Worker: "w1", Region: "gru", Order: bourse.NewOrderID(),
		Instance: bourse.NewInstanceID(), State: state, Config: config,
		Takes: bourse.Amounts{{Resource: "cpu", Amount: 125}, {Resource: "memory", Amount: 256}}, CreatedAt: time.Unix(1e9, 0), UpdatedAt: time.Unix(1e9, 0),
	}
}
