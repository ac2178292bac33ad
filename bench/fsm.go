package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

type nothing struct{}

// benchFSM measures how many durable runs of three steps complete per second, with 16 runs in
// progress at a time. The rate is divided by the rate of a baseline, which performs three synced
// bbolt updates per run, one after another.
func benchFSM(ctx context.Context, lab *Lab, out Figures) error {
	const clients, runs, rounds = 16, 2000, 3
	journal, err := store.Open(store.Config{Dir: filepath.Join(lab.dir, "store"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer journal.Close()
	db, err := bolt.Open(filepath.Join(lab.dir, "series.db"), 0o600, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	step := func(context.Context, *fsm.Run[nothing, nothing]) fsm.Outcome { return fsm.Done() }
	def := fsm.Define[nothing, nothing]("bench").Step("one", step).Step("two", step).Step("three", step)
	engine := fsm.New(fsm.Config{Journal: journal.Journal(), Log: slog.New(slog.DiscardHandler)})
	engine.Register(def)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	<-engine.Resumed()
	var grouped, series []float64
	for round := range rounds {
		rate, err := together(clients, runs, func(i int) error {
			h, err := def.Start(ctx, engine, fmt.Sprintf("bench/%d-%d", round, i), nothing{}, fsm.StartOptions{})
			if err != nil {
				return err
			}
			_, err = h.Wait(ctx)
			return err
		})
		if err != nil {
			return err
		}
		grouped = append(grouped, rate)
		steps, err := together(1, 3*runs/8, func(i int) error { return syncedUpdate(db, i) })
		if err != nil {
			return err
		}
		series = append(series, steps/3)
	}
	stop()
	out["fsm_c16_runs_s"], out["floor_series_runs_s"] = median(grouped), median(series)
	out["fsm_c16_gain"] = median(grouped) / median(series)
	return <-ended
}

// syncedUpdate writes 512 bytes to bbolt in one synced transaction.
func syncedUpdate(db *bolt.DB, i int) error {
	return db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("floor"))
		if err != nil {
			return err
		}
		return b.Put(fmt.Appendf(nil, "%08d", i), make([]byte, 512))
	})
}
