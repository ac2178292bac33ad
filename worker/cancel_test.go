package worker

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// When a cancellation destroys a machine, a log line names the order, the machine, and
// the cancellation's source.
func TestACanceledMachineIsLogged(t *testing.T) {
	var out bytes.Buffer // read only after the daemon has stopped
	h := newHost(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&out, nil)) })
	order := newOrder(t, run("run"))
	fill, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
	if err != nil || refusal != nil {
		t.Fatal(err, refusal)
	}
	if _, err := h.cancelFor(t.Context(), order.ID, "the view"); err != nil {
		t.Fatal(err)
	}
	h.crash()
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "order="+string(order.ID)) && strings.Contains(line, "machine="+string(fill.Machine.ID)) && strings.Contains(line, `source="the view"`) {
			return
		}
	}
	t.Errorf("no log line reports the cancellation:\n%s", &out)
}

// If the daemon dies between a cancellation and the destruction of its machine, the
// next daemon destroys the machine and logs the order.
func TestAMachineCanceledBeforeARestartIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer // read only after the daemon has stopped
		h := newHost(t, nil)
		m := h.place(run("run"))
		if err := h.store.Update(t.Context(), func(tx *store.Tx) error {
			rec, _, err := tx.Order(m.Order)
			rec.Canceled = true
			return errors.Join(err, tx.PutOrder(rec))
		}); err != nil {
			t.Fatal(err)
		}
		h.crash()
		h.setup = func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&out, nil)) }
		h.start(nil)
		h.reaches(m.ID, bourse.StateDestroyed)
		h.crash()
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "order="+string(m.Order)) && strings.Contains(line, "machine="+string(m.ID)) {
				return
			}
		}
		t.Errorf("no log line contains order %s and machine %s:\n%s", m.Order, m.ID, &out)
	})
}
