package broker_test

import (
	"context"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/query"
)

// realQueries queries a real view. It ends each subscription after the first line, because the test
// does not read further.
type realQueries struct{ *query.Engine }

var _ broker.Queries = realQueries{}

func (q realQueries) Subscribe(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	return q.Engine.Subscribe(&lastLine{w, cancel}, r.WithContext(ctx))
}

// lastLine is a response writer that calls end once something is written.
type lastLine struct {
	http.ResponseWriter
	end context.CancelFunc
}

func (l *lastLine) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l *lastLine) Write(b []byte) (int, error) {
	l.end()
	return l.ResponseWriter.Write(b)
}

// askRealView returns queries of an empty view, which is closed when the test ends.
func askRealView(t *testing.T) broker.Queries {
	t.Helper()
	if err := query.BoundMemory(); err != nil { // must be called before a view is opened
		t.Fatal(err)
	}
	v, err := view.Open(view.Config{Path: filepath.Join(t.TempDir(), "view.db"), Cluster: "c", Site: "broker-1"})
	if err != nil {
		t.Fatal(err)
	}
	e, err := query.New(query.Config{Source: query.Of(v)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = v.Run(ctx) })
	running.Go(func() { _ = e.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return realQueries{e}
}
