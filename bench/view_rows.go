package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// Names of a fleet: so many machines of each app, on workers that have equally
// many.
const (
	fleetMachines = 100_000
	fleetApp      = 10
	fleetWorkers  = 100
)

func fleetAppName(n int) bourse.AppName { return bourse.AppName(fmt.Sprint("app-", n)) }

// fleetServices is what a machine behind a proxy usually has.
const fleetServices = `[{"protocol":"tcp","internal_port":8080,"autostop":"stop","autostart":true,"ports":[{"port":80,"handlers":["http"]},{"port":443,"handlers":["tls","http"]}],"concurrency":{"type":"requests","soft_limit":200,"hard_limit":250}}]`

// fleetMachine is the n-th machine of a fleet as they usually are, after so
// many starts. Its row has about 2 KB; that of a change, 1 KB.
func fleetMachine(n, starts int) *bourse.Machine {
	at := time.Unix(1_700_000_000+int64(n), 0).UTC()
	m := &bourse.Machine{
		ID: bourse.MachineID(fmt.Sprintf("%014x", n)), Name: fmt.Sprint("web-", n), App: fleetAppName(n % (fleetMachines / fleetApp)),
		Region: []bourse.Region{"gru", "mad", "iad"}[n%3], State: []bourse.State{bourse.StateStarted, bourse.StateStopped}[starts%2],
		Order: bourse.OrderID(fmt.Sprintf("01HZZZZZZZ%016d", n)), Instance: bourse.InstanceID(fmt.Sprintf("01HZZZZZZZ%016d", n)),
		Takes:     bourse.Amounts{{Resource: bourse.ResourceCPU, Amount: 125}, {Resource: bourse.ResourceMemory, Amount: 256}},
		Boot:      bourse.Boot{Number: 1 + starts, PID: 1000 + n, Port: 20000},
		CreatedAt: at, UpdatedAt: at.Add(time.Duration(starts) * time.Minute),
		Config: bourse.Config{
			Image: "registry.example/shop/web:v42", Guest: &bourse.Guest{CPUKind: bourse.CPUShared, CPUs: 1, MemoryMB: 256},
			Env:      map[string]string{"DATABASE_URL": "postgres://db.internal:5432/shop", "LOG_LEVEL": "info", "PORT": "8080", "PRIMARY_REGION": "gru"},
			Metadata: map[string]string{"process_group": "web", "release": "42"},
			Restart:  &bourse.Restart{Policy: bourse.RestartOnFailure, MaxRetries: 10},
		},
	}
	m.Config.Services = []byte(fleetServices)
	for i := range 4 {
		m.LastEvents = append(m.LastEvents, bourse.Event{
			ID: bourse.EventIDAt(m.UpdatedAt, [10]byte{byte(n), byte(starts), byte(i)}), Type: bourse.EventStart, From: bourse.StateStarting,
			State: m.State, Source: bourse.SourceUser, At: m.UpdatedAt, Instance: m.Instance,
		})
	}
	return m
}

// fleetKey signs for all workers of a fleet.
var fleetKey = sync.OnceValue(func() *wire.Key {
	k, err := wire.NewKey(bourse.RoleWorker)
	if err != nil {
		panic(err) // there is no randomness
	}
	return k
})

func fleetSeal() wire.Seal {
	birth, key := fleetKey().Own()
	return wire.Seal{Cluster: "bench", Birth: birth, Key: key}
}

// fleetStream is the stream of a worker that writes for the first time.
func fleetStream(worker int) wire.Stream {
	return wire.Stream{Site: bourse.WorkerID(fmt.Sprint("fleet-", worker)), Epoch: 1}
}

// applyAll has a view take in transactions of others and waits until all are in
// its file. It keeps the queue short, as a member does that pulls.
func applyAll(ctx context.Context, v *view.View, encoded [][]byte) error {
	for i, tx := range encoded {
		verdict, err := v.Apply(tx)
		if err != nil {
			return err
		}
		if verdict.Outcome != view.Taken {
			return fmt.Errorf("transaction %d of %s: outcome %d", verdict.Position.Seq, verdict.Position.Site, verdict.Outcome)
		}
		if i%4096 == 4095 {
			if err := v.Flush(ctx); err != nil {
				return err
			}
		}
	}
	return v.Flush(ctx)
}

// applyRuns is applyAll for transactions that come together.
func applyRuns(ctx context.Context, v *view.View, encoded [][]byte) error {
	for part := range slices.Chunk(encoded, 4096) {
		for _, a := range v.ApplyAll(part) {
			if a.Err != nil {
				return a.Err
			}
			if a.Outcome != view.Taken {
				return fmt.Errorf("transaction %d of %s: outcome %d", a.Position.Seq, a.Position.Site, a.Outcome)
			}
		}
		if err := v.Flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fillFleet has a view take in a whole fleet, a hundred machines in each
// transaction.
func fillFleet(ctx context.Context, v *view.View) error {
	const rows = 100
	for w := range fleetWorkers {
		var all [][]byte
		tx := &wire.Transaction{Position: wire.Position{Stream: fleetStream(w)}, At: time.Now().UnixNano()}
		for n := w; n < fleetMachines; n += fleetWorkers {
			if tx.Rows = append(tx.Rows, inventory.MachineRow(fleetMachine(n, 0))); len(tx.Rows) < rows {
				continue
			}
			tx.Seq++
			encoded, err := wire.Encode(tx, fleetSeal())
			if err != nil {
				return err
			}
			all, tx.Rows = append(all, encoded), nil
		}
		if err := applyAll(ctx, v, all); err != nil {
			return err
		}
	}
	return nil
}

// runView runs a view until stop is called, which gives what went wrong.
func runView(ctx context.Context, v *view.View) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- v.Run(ctx) }()
	return func() error {
		cancel()
		if err := <-ended; err != nil {
			return err
		}
		return v.Close()
	}
}
