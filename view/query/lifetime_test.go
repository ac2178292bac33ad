package query_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/query"
)

// pipe is a ResponseWriter whose reader accepts each write explicitly.
type pipe struct {
	header http.Header
	writes chan []byte // unbuffered: a write waits for its reader
	gone   <-chan struct{}
}

func newPipe(ctx context.Context) *pipe {
	return &pipe{http.Header{}, make(chan []byte), ctx.Done()}
}

func (p *pipe) Header() http.Header { return p.header }
func (p *pipe) WriteHeader(int)     {}
func (p *pipe) Write(b []byte) (int, error) {
	select {
	case p.writes <- bytes.Clone(b):
		return len(b), nil
	case <-p.gone:
		return 0, errors.New("the reader has disconnected")
	}
}

// inBubble runs an engine with virtual time.
func inBubble(t *testing.T, limits query.SubscriptionLimits, test func(t *testing.T, f *file, e *query.Engine)) {
	f := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		e, err := query.New(query.Config{Source: f, Subscriptions: limits})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = e.Run(ctx) })
		defer running.Wait()
		defer cancel()
		test(t, f, e)
	})
}

// follow subscribes and returns a pipe that receives the reader's lines, the subscription's ID,
// and a function that disconnects the reader.
func follow(t *testing.T, e *query.Engine, statement string) (p *pipe, id func() string, leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p = newPipe(ctx)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, query.PathSubscriptions, strings.NewReader(`{"statement":"`+statement+`"}`))
	var done sync.WaitGroup
	done.Go(func() {
		if err := e.Subscribe(p, r); err != nil {
			t.Errorf("Subscribe: %v", err)
		}
	})
	return p, func() string { return p.header.Get(query.HeaderSubscription) }, func() { cancel(); done.Wait() }
}

// resume resumes a subscription, reads once and disconnects.
func resume(t *testing.T, e *query.Engine, id, from string) (first string, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := newPipe(ctx)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, query.PathSubscriptions+"/"+id+"?from="+from, nil)
	r.SetPathValue("id", id)
	var done sync.WaitGroup
	over := make(chan struct{})
	done.Go(func() {
		defer close(over)
		err = e.Resume(p, r)
	})
	select {
	case b := <-p.writes:
		first = string(b)
	case <-over:
	}
	cancel()
	done.Wait()
	return first, err
}

func TestSubscriptionWithoutReadersEndsAfterAMinute(t *testing.T) {
	inBubble(t, query.SubscriptionLimits{}, func(t *testing.T, f *file, e *query.Engine) {
		p, id, leave := follow(t, e, "SELECT name FROM apps")
		<-p.writes
		time.Sleep(time.Hour) // a subscription continues while it has a reader
		leave()
		time.Sleep(59 * time.Second)
		if _, err := resume(t, e, id(), "0"); err != nil {
			t.Fatalf("after 59 s: %v", err)
		}
		time.Sleep(59 * time.Second)
		if _, err := resume(t, e, id(), "0"); err != nil {
			t.Fatalf("59 s after another reader: %v", err)
		}
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if _, err := resume(t, e, id(), "0"); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("after 61 s: got %v, want not_found", err)
		}
		if n := len(f.watched()); n != 0 {
			t.Errorf("the engine still has %d watchers", n)
		}
	})
}

func TestChangesAreCombined(t *testing.T) {
	inBubble(t, query.SubscriptionLimits{Pause: time.Second}, func(t *testing.T, f *file, e *query.Engine) {
		p, _, leave := follow(t, e, "SELECT name, org FROM apps")
		defer leave()
		<-p.writes
		synctest.Wait()
		began := time.Now()
		for i := range 10 {
			f.write(t, fmt.Sprintf(app, "web", itoa(i)))
		}
		if got, want := string(<-p.writes), `{"change":[1,"insert",1,["web","9"]]}`+"\n"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("the change arrived after %v, want the pause of 1s", waited)
		}
	})
}

func TestSlowReaderIsDisconnectedAndResumes(t *testing.T) {
	inBubble(t, query.SubscriptionLimits{History: 2000, IdleTime: time.Hour}, func(t *testing.T, f *file, e *query.Engine) {
		p, id, leave := follow(t, e, "SELECT name, org FROM apps")
		<-p.writes
		change := func(i int) {
			f.write(t, fmt.Sprintf(app, "web", itoa(i)))
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		for i := range 25 { // the reader does not accept any of these changes
			change(i)
		}
		got := string(<-p.writes)
		if !strings.HasPrefix(got, `{"change":[1,"insert",1,`) {
			t.Fatalf("the first changes: got %s", got)
		}
		if got, want := string(<-p.writes), `{"error":{"code":"unavailable","message":"the client reads too slowly: resume from change 1"}}`+"\n"; got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		leave()
		lines, err := resume(t, e, id(), "1")
		if err != nil || !strings.HasPrefix(lines, `{"columns":`) {
			t.Errorf("after resuming: got %s, %v", lines, err)
		}
		for i := range 30 {
			change(i)
		}
		if _, err := resume(t, e, id(), "1"); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("from a dropped change: got %v, want not_found", err)
		}
	})
}

func TestReadersAreNotifiedWhenTheServerStops(t *testing.T) {
	f := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		e, err := query.New(query.Config{Source: f})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = e.Run(ctx) })
		p, _, leave := follow(t, e, "SELECT name FROM apps")
		defer leave()
		<-p.writes
		cancel()
		if got := string(<-p.writes); got != `{"error":{"code":"unavailable","message":"the server is stopping"}}`+"\n" {
			t.Errorf("got %s, want an error that the server is stopping", got)
		}
		running.Wait()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{"statement":"SELECT 1"}`))
		if err := e.Subscribe(httptest.NewRecorder(), r); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("after that: got %v, want unavailable", err)
		}
	})
}

func TestTooManyStatementsAtOnceAreRefused(t *testing.T) {
	f := newFile(t)
	s := serve(t, f, query.Config{Limits: query.Limits{Statements: 2, Time: time.Hour}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT i, printf('%.*c', 40000, 'x') FROM n"
	for range 2 {
		resp := s.post(ctx, t, "/v1/view/queries", sql(endless))
		defer resp.Body.Close() // the statement has started, and nobody reads its rows
	}
	if got := s.ask(t, sql("SELECT 1")); got.failed.Code != "rate_limited" {
		t.Fatalf("a third statement: got %+v, want rate_limited", got)
	}
	cancel() // the readers disconnect, and their statements end
	for {
		if got := s.ask(t, sql("SELECT 1")); got.failed.Code == "" {
			return
		}
	}
}

func TestReplacedFileIsReopened(t *testing.T) {
	f := newFile(t)
	s := serve(t, f, query.Config{Subscriptions: query.SubscriptionLimits{Pause: time.Millisecond}})
	f.write(t, fmt.Sprintf(app, "old", "x"))
	st := s.subscribe(t, sql("SELECT name FROM apps"), "", "")
	want(t, st, `["columns",["name"]]`, `["row",[1,["old"]]]`, `["end",0]`)
	for round := range 3 {
		f.conn.Close()
		for _, suffix := range []string{"", "-wal", "-shm"} {
			_ = os.Remove(f.path + suffix) // SQLite may have removed some of these files
		}
		if got := s.ask(t, sql("SELECT name FROM apps")); got.failed.Code != "unavailable" {
			t.Fatalf("without a file: got %+v, want unavailable", got)
		}
		if round == 1 {
			if err := os.WriteFile(f.path, bytes.Repeat([]byte("not a database. "), 1000), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := s.ask(t, sql("SELECT name FROM apps")); got.failed.Code != "unavailable" {
				t.Fatalf("with a damaged file: got %+v, want unavailable", got)
			}
			if err := os.Remove(f.path); err != nil {
				t.Fatal(err)
			}
		}
		f.make(t)
		f.write(t, fmt.Sprintf(app, "new"+itoa(round), "x"))
		if got := s.ask(t, sql("SELECT name FROM apps")); len(got.lines) != 3 || got.lines[1].Row[0] != "new"+itoa(round) {
			t.Fatalf("with a new file: got %s", got.body)
		}
	}
	for {
		if l := text(t, st.next(t)); strings.Contains(l, `"insert"`) && strings.Contains(l, `"new2"`) {
			return
		}
	}
}

// TestDamagedFileIsUnavailable checks that a damaged file makes queries fail as unavailable, and
// has no other effect.
func TestDamagedFileIsUnavailable(t *testing.T) {
	f := newFile(t)
	f.machines(t, 2000)
	f.conn.Close()
	raw, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(raw) / 3; i < len(raw); i += 97 {
		raw[i] ^= 0xa5
	}
	if err := os.WriteFile(f.path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, f, query.Config{})
	got := s.ask(t, sql("SELECT count(*), max(config), max(state) FROM machines WHERE app > ''"))
	if got.failed.Code != "unavailable" {
		t.Errorf("got %+v %s, want unavailable", got.failed, got.body)
	}
}
