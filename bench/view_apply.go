package main

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"time"

	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// benchApply: transactions of one row, of a hundred other sites in turn, taken
// in by one processor until they are in the file: decoding, signatures,
// checking, the statements and the commits. They come in runs of a site, as a
// pull brings them, and in the last round one by one, as rumours do. First whole machines that are new, then,
// which is what counts, starts and stops of those.
func benchApply(ctx context.Context, lab *Lab, out Figures) (err error) {
	const machines, rounds = 20_000, 3
	v, err := view.Open(view.Config{Path: filepath.Join(lab.dir, "apply.db"), Cluster: "bench", Site: "bench"})
	if err != nil {
		return err
	}
	stop := runView(ctx, v)
	defer func() { err = errors.Join(err, stop()) }()
	history := fleetHistory{}
	var rates []float64
	var cpu time.Duration
	for starts := range rounds + 2 {
		all, err := history.round(machines, starts)
		if err != nil {
			return err
		}
		apply := applyRuns
		if starts > rounds {
			apply = applyAll
		}
		took, spent, err := onOneCore(func() error { return apply(ctx, v, all) })
		if err != nil {
			return err
		}
		switch {
		case starts == 0:
			out["view_apply_new_rows_s"] = machines / took.Seconds()
			continue
		case starts > rounds:
			out["view_apply_single_rows_s"] = machines / took.Seconds()
			continue
		}
		rates, cpu = append(rates, machines/took.Seconds()), cpu+spent
		out["view_change_bytes"] = float64(len(all[0]))
	}
	out["view_apply_rows_s"] = median(rates)
	out["view_apply_cpu_us_row"] = us(cpu) / (machines * rounds)
	return nil
}

// onOneCore measures what one processor takes for something, and the processor
// time of it.
func onOneCore(do func() error) (took, cpu time.Duration, err error) {
	runtime.GC()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	begin, before := time.Now(), processorTime()
	err = do()
	return time.Since(begin), processorTime() - before, err
}

// fleetHistory writes the transactions of a fleet's workers, by what each has
// written.
type fleetHistory [fleetWorkers]struct {
	seq  uint64
	prev []byte
}

// fleetRun is how many transactions of one worker follow each other.
const fleetRun = 20

// round returns a transaction for each machine, in runs of a worker: its row when
// it is new, and what a start or stop changes of it.
func (h *fleetHistory) round(machines, starts int) ([][]byte, error) {
	all := make([][]byte, 0, machines)
	for i := range machines {
		turn, rest := i/(fleetRun*fleetWorkers), i%(fleetRun*fleetWorkers)
		n := (turn*fleetRun+rest%fleetRun)*fleetWorkers + rest/fleetRun
		row := inventory.MachineRow(fleetMachine(n, starts))
		if starts > 0 {
			before := inventory.MachineRow(fleetMachine(n, starts-1))
			for name, value := range before.Columns {
				if row.Columns[name] == value {
					delete(row.Columns, name)
				}
			}
		}
		w := n % fleetWorkers
		h[w].seq++
		by := fleetSeal()
		if by.Prev = h[w].prev; h[w].seq > 1 {
			by.Birth = nil
		}
		encoded, err := wire.Encode(&wire.Transaction{
			Position: wire.Position{Stream: fleetStream(w), Seq: h[w].seq}, At: time.Now().UnixNano(), Rows: []wire.Row{row},
		}, by)
		if err != nil {
			return nil, err
		}
		h[w].prev = wire.Link(encoded)
		all = append(all, encoded)
	}
	return all, nil
}
