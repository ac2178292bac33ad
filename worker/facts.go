package worker

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
)

// Facts returns the facts that the worker publishes, including the number of machines in each state, the amounts that
// reservations hold, and the mesh's connections.
func (w *Worker) Facts() (bourse.Facts, error) {
	var facts bourse.Facts
	err := w.store.View(func(tx *store.Tx) error {
		var err error
		if facts, err = w.facts(tx); err != nil {
			return err
		}
		facts.Machines = map[bourse.State]int{}
		for m, err := range tx.Machines() {
			if err != nil {
				return err
			}
			facts.Machines[m.State]++
		}
		return addHeld(tx, facts.Accounts)
	})
	if facts.Mesh != nil {
		now := *facts.Mesh
		now.Peers = w.cfg.Mesh.Peers()
		facts.Mesh = &now
	}
	return facts, err
}

// addHeld adds the amounts that reservations hold to accounts.
func addHeld(tx *store.Tx, accounts []bourse.Account) error {
	now := time.Now()
	for h, err := range tx.Holds() {
		if err != nil {
			return err
		}
		for i := range accounts {
			if h.ExpiresAt.After(now) {
				accounts[i].Held += h.Remaining.Of(accounts[i].Resource)
			}
		}
	}
	return nil
}

// facts returns the worker's facts except machine counts and held amounts, which take longer to compute.
func (w *Worker) facts(tx *store.Tx) (bourse.Facts, error) {
	committed, err := tx.CommittedAt(time.Now())
	cordon, failed := store.CordonOf(tx)
	var end *bourse.Mesh
	if w.cfg.Mesh != nil {
		end = w.cfg.Mesh.Announcement()
	}
	return bourse.Facts{
		Cordon: cordon, Mesh: end, Worker: w.self.Worker, Tag: w.self.Tag, Region: w.self.Region, Version: w.cfg.Version,
		Labels: w.host.Labels.Load().All, Drivers: w.host.Drivers, Load: w.load.read(), Accounts: w.host.Ledger.Accounts(committed),
	}, errors.Join(err, failed)
}

// Free returns the free amount of each resource.
func (w *Worker) Free() (bourse.Amounts, error) {
	var free bourse.Amounts
	err := w.store.View(func(tx *store.Tx) error {
		committed, err := tx.CommittedAt(time.Now())
		for _, a := range w.host.Ledger.Accounts(committed) {
			free = append(free, bourse.Amount{Resource: a.Resource, Amount: a.Free()})
		}
		return err
	})
	return free, err
}

// loadGauge caches the host's load, which it reads at most once a second.
type loadGauge struct {
	mu   sync.Mutex
	at   time.Time // guarded by mu
	load float64   // guarded by mu
}

const loadMaxAge = time.Second

// read returns the number of runnable tasks per core, averaged over a minute, or 0 if
// the host does not report it.
func (g *loadGauge) read() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.at) > loadMaxAge {
		g.at, g.load = now, hostLoad()
	}
	return g.load
}

func hostLoad() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load / float64(runtime.NumCPU())
}

// cordon makes the worker refuse new orders, or accept them again. Claims are decided in the transactions that record
// them, so claims that were recorded before the cordon remain valid. Later claims are refused, even if the worker has
// already sent quotes for their orders.
func (w *Worker) cordon(ctx context.Context, req fabric.CordonRequest) (bourse.Facts, error) {
	err := w.store.Update(ctx, func(tx *store.Tx) error {
		was, err := store.CordonOf(tx)
		switch {
		case err != nil || (was != nil) == req.Cordon:
			return err
		case req.Cordon:
			return store.SetCordon(tx, &bourse.Cordon{At: time.Now().UTC(), By: req.By})
		}
		return store.SetCordon(tx, nil)
	})
	if err != nil {
		return bourse.Facts{}, err
	}
	w.log.Info("worker cordon changed", "cordoned", req.Cordon, "by", req.By)
	return w.Facts()
}
