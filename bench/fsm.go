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

// benchFSM: durable runs of three steps, 16 at once, against one fsynced
// bbolt update for each step, in series.
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
		rate, err = together(1, runs/8, func(i int) error {
			for step := range 3 {
				if err := update(db, i*3+step); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		series = append(series, rate)
	}
	stop()
	out["fsm_c16_runs_s"] = median(grouped)
	out["floor_series_runs_s"] = median(series)
	out["fsm_c16_gain"] = median(grouped) / median(series)
	return <-ended
}
