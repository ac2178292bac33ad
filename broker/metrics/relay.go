package metrics

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// Bounds of what a worker's metrics may cost.
const (
	relayTime  = 10 * time.Second // as Prometheus waits unless it is told otherwise
	relayBytes = 32 << 20         // a machine has about 500
)

// Relay answers with the metrics of a worker, as plain text whatever the worker
// says that it is. Errors before the first byte are those of [fabric.Pipe]; after
// it, an error means that the reply is not whole.
func Relay(w http.ResponseWriter, r *http.Request, workers fabric.Fabric, from bourse.Member) error {
	ctx, cancel := context.WithTimeout(r.Context(), relayTime)
	defer cancel()
	in, err := fabric.WorkerMetrics.Open(ctx, workers, from, struct{}{}, nil)
	if err != nil {
		return err
	}
	defer in.Close()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	n, err := io.Copy(w, io.LimitReader(in, relayBytes+1))
	if err == nil && n > relayBytes {
		err = bourse.Errorf(bourse.CodeInvalid, "the metrics of worker %s have more than %d bytes", from.ID, relayBytes)
	}
	return err
}

// Target is a worker as Prometheus' HTTP service discovery wants it.
type Target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// Targets returns the targets of workers whose metrics the broker at host, by which
// the client has called it, relays. Those that are absent are among them: that they
// are is what Prometheus is to see.
func Targets(host string, workers []bourse.Member, absent []bourse.Absence) []Target {
	out := make([]Target, 0, len(workers)+len(absent))
	add := func(m *bourse.Member) {
		out = append(out, Target{[]string{host}, map[string]string{
			"__metrics_path__": "/v1/workers/" + string(m.ID) + "/metrics", "instance": string(m.ID), "region": string(m.Region),
		}})
	}
	for i := range workers {
		add(&workers[i])
	}
	for i := range absent {
		add(&absent[i].Member)
	}
	slices.SortFunc(out, func(a, b Target) int { return cmp.Compare(a.Labels["instance"], b.Labels["instance"]) })
	return out
}
