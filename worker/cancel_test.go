package worker

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

// A machine that a cancellation destroys went without a line in the log: the
// line has the order, the machine and where the cancellation came from.
func TestACanceledMachineIsLogged(t *testing.T) {
	var out bytes.Buffer // read once the daemon has ended
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
	t.Errorf("no line tells of it:\n%s", &out)
}
