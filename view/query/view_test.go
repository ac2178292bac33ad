package query_test

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/query"
	"github.com/bourse-dev/bourse/view/wire"
)

// TestEngineOnAView checks that an engine reads the rows that a view publishes, and sends
// changes to subscribers.
func TestEngineOnAView(t *testing.T) {
	v, err := view.Open(view.Config{Path: filepath.Join(t.TempDir(), "view.db"), Cluster: "c", Site: "broker-1"})
	if err != nil {
		t.Fatal(err)
	}
	e, err := query.New(query.Config{Source: query.Of(v)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background()) // canceled after the HTTP server was closed
	var running sync.WaitGroup
	running.Go(func() { _ = v.Run(ctx) })
	running.Go(func() { _ = e.Run(ctx) })
	srv := httptest.NewServer(routes(e))
	defer func() {
		cancel()
		running.Wait()
		srv.Close()
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}()
	s := &server{engine: e, url: srv.URL}

	st := s.subscribe(t, sql("SELECT id, state FROM machines"), "", "")
	want(t, st, `["columns",["id","state"]]`, `["end",0]`)
	for _, state := range []string{"created", "started"} {
		row := wire.Row{Table: wire.TableMachines, Key: "m1", Columns: map[string]wire.Value{"app": "web", "state": state}}
		if _, err := v.Publish(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		l := st.next(t)
		if got := l.Change[3].([]any)[1]; got != state {
			t.Fatalf("got %s, want the state %s", text(t, l), state)
		}
	}
	if got := s.ask(t, sql("SELECT state FROM machines WHERE app = ?", "web")); len(got.lines) != 3 || got.lines[1].Row[0] != "started" {
		t.Errorf("got %s, want one started machine", got.body)
	}
}
